//! `wasmill stream trim`.

use std::time::Duration;

use clap::Args;

use crate::backend::{Backend, Error, Held, PartitionInfo, Trim};
use crate::cli::confirm::confirmed;
use crate::cli::context::{Context, name};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config;
use crate::event::Name;

#[derive(Debug, Args)]
pub(in crate::cli) struct TrimArgs {
    /// The stream
    stream: String,
    /// Only this partition
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// So many entries of each partition stay
    #[arg(long, value_name = "N")]
    max_length: Option<u64>,
    /// Entries that were appended longer ago than this go
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    max_age: Option<Duration>,
    /// Entries up to this sequence go
    #[arg(long, value_name = "SEQ")]
    until: Option<u64>,
    /// Also what groups have not settled: for them it is missing
    #[arg(long)]
    force: bool,
    /// Do it; without this, only say what would be touched
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(context: &Context, backend: &dyn Backend, args: &TrimArgs) -> Result<(), Exit> {
    if args.max_length.is_none() && args.max_age.is_none() && args.until.is_none() {
        return Err(Exit::usage("say what goes: --max-length, --max-age or --until"));
    }
    let stream = name(&args.stream)?;
    let info = backend.stream_info(&stream).await?;
    let partitions = u32::try_from(info.partitions.len()).unwrap_or(u32::MAX);
    if let Some(partition) = args.partition.filter(|partition| *partition >= partitions) {
        return Err(Error::PartitionNotFound { stream, partition, partitions }.into());
    }
    let chosen = info.partitions.iter().filter(|p| args.partition.is_none_or(|only| p.partition == only));
    let chosen: Vec<&PartitionInfo> = chosen.collect();
    if !args.yes {
        preview(context, &chosen, args)?;
    }
    confirmed(args.yes, would(&stream, args))?;
    for partition in chosen {
        trim(context, backend, &stream, partition.partition, args).await?;
    }
    Ok(())
}

/// Trims one partition to its end, step by step.
async fn trim(
    context: &Context,
    backend: &dyn Backend,
    stream: &Name,
    partition: u32,
    args: &TrimArgs,
) -> Result<(), Exit> {
    let step = Trim {
        partition,
        max_length: args.max_length,
        max_age: args.max_age,
        until: args.until,
        force: args.force,
    };
    let mut removed = 0;
    let held = loop {
        let trimmed = backend.trim(stream, step).await?;
        removed += trimmed.removed;
        if !trimmed.more {
            break trimmed.held;
        }
    };
    if context.json() {
        output::json_line(&serde_json::json!({
            "stream": stream,
            "partition": partition,
            "removed": removed,
            "held_by": held.as_ref().map(|held| &held.group),
            "held_at": held.as_ref().map(|held| held.sequence),
        }))?;
    } else {
        output::line(&format!("partition {partition}: removed {}", entries(removed)))?;
    }
    if let Some(Held { group, sequence }) = held {
        output::note(&format!(
            "the group `{group}` still needs partition {partition} from sequence {sequence} on; where no one uses \
             it any more, `wasmill group delete {stream} {group}` lets go of it"
        ));
    }
    Ok(())
}

fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn would(stream: &Name, args: &TrimArgs) -> String {
    let needed = if args.force {
        "what groups have not settled goes too, and will be missing for them"
    } else {
        "what a group has not settled stays"
    };
    format!("this removes events of the stream `{stream}` for good; {needed}")
}

/// What the bounds say, groups left aside. How much is too old, only the store can tell.
fn preview(context: &Context, partitions: &[&PartitionInfo], args: &TrimArgs) -> Result<(), Exit> {
    let by_bounds = |p: &PartitionInfo| {
        let by_length = args.max_length.map_or(0, |length| p.length.saturating_sub(length));
        let below =
            p.first.zip(args.until).map_or(0, |(first, until)| until.saturating_add(1).saturating_sub(first));
        by_length.max(below.min(p.length))
    };
    let age = args.max_age.map(|_| "more, by age");
    if context.json() {
        return partitions.iter().try_for_each(|p| {
            output::json_line(&serde_json::json!({
                "partition": p.partition, "entries": p.length, "first": p.first, "to_remove_max": by_bounds(p),
                "by_age": args.max_age.is_some(),
            }))
        });
    }
    let row = |p: &&PartitionInfo| {
        let first = p.first.map(|first| first.to_string()).unwrap_or_default();
        let most = match age {
            Some(age) => format!("{} or {age}", by_bounds(p)),
            None => format!("up to {}", by_bounds(p)),
        };
        [p.partition.to_string(), first, p.length.to_string(), most]
    };
    let rows: Vec<_> = partitions.iter().map(row).collect();
    output::table([">partition", ">first", ">entries", ">to remove"], &rows)
}
