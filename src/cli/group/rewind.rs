//! `wasmill group replay`, `reset` and `delete`: what each would touch, and doing it.

use std::collections::BTreeSet;

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use serde::Serialize;

use super::start::StartArgs;
use crate::backend::{
    Backend, Error, GroupInfo, Positions, REDRIVE_BATCH_MAX, Rewind, RewindKind, earliest, places_of,
    positions_at, rewind,
};
use crate::cli::confirm::confirmed;
use crate::cli::context::{Context, group_key};
use crate::cli::exit::Exit;
use crate::cli::filter::{FieldArgs, time};
use crate::cli::output;
use crate::cli::redriven::Tally;
use crate::event::{GroupKey, NUMBER_MAX};

/// Pending entries that one call asks for.
const PAGE: usize = 500;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("place").args(["from", "at", "event"]))]
pub(in crate::cli) struct ReplayArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// Event N of each partition, and everything behind it, is delivered again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=NUMBER_MAX))]
    from: Option<u64>,
    /// So is the first event of this time or later, and everything behind it
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
    /// Only the event with this id is (repeatable); the frontier does not move
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    event: Vec<String>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Only this partition
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Do it; without this, only say what would be touched
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ResetArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    #[command(flatten)]
    start: StartArgs,
    /// Only this partition
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Do it; without this, only say what would be touched
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// Do it; without this, only say what would be touched
    #[arg(long)]
    yes: bool,
}

pub(super) async fn replay(context: &Context, backend: &dyn Backend, args: &ReplayArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let ways = [args.from.is_some() || args.at.is_some(), !args.event.is_empty(), !args.fields.is_empty()];
    if ways.iter().filter(|way| **way).count() != 1 {
        return Err(Exit::usage(
            "say what is replayed: --from, --at, --event, or conditions (--type, --key, --where)",
        ));
    }
    let info = backend.group_info(&key).await?;
    let partitions = chosen(&key, &info, args.partition)?;
    if !args.event.is_empty() {
        return replay_events(context, backend, &key, &partitions, args).await;
    }
    let to: Positions = match (args.from, args.at) {
        (Some(from), _) => partitions.iter().map(|partition| (*partition, from - 1)).collect(),
        (None, Some(at)) => positions_at(backend, &key.stream, &partitions, at).await?,
        (None, None) => {
            let first = earliest(backend, &key.stream, &partitions, &args.fields.filter()?).await?;
            first.into_iter().map(|(partition, sequence)| (partition, sequence - 1)).collect()
        }
    };
    if to.is_empty() {
        return Err(Exit::Failed(anyhow::anyhow!("no event matches: there is nothing to replay")));
    }
    carry_out(context, backend, &key, &info, Rewind { kind: RewindKind::Replay, to }, args.yes).await
}

pub(super) async fn reset(context: &Context, backend: &dyn Backend, args: &ResetArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    if args.start.is_empty() {
        return Err(Exit::usage("say where the group is to begin: --start, --after or --at"));
    }
    let info = backend.group_info(&key).await?;
    let partitions = chosen(&key, &info, args.partition)?;
    let to = args.start.positions(backend, &key.stream, &partitions).await?;
    carry_out(context, backend, &key, &info, Rewind { kind: RewindKind::Reset, to }, args.yes).await
}

pub(super) async fn delete(context: &Context, backend: &dyn Backend, args: &DeleteArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let info = backend.group_info(&key).await?;
    let rewind = Rewind { kind: RewindKind::Delete, to: Positions::new() };
    carry_out(context, backend, &key, &info, rewind, args.yes).await
}

/// The partitions that are meant.
fn chosen(key: &GroupKey, info: &GroupInfo, only: Option<u32>) -> Result<Vec<u32>, Exit> {
    let all: Vec<u32> = info.partitions.iter().map(|p| p.partition).collect();
    match only {
        None => Ok(all),
        Some(partition) if all.contains(&partition) => Ok(vec![partition]),
        Some(partition) => {
            let partitions = u32::try_from(all.len()).unwrap_or(u32::MAX);
            Err(Error::PartitionNotFound { stream: key.stream.clone(), partition, partitions }.into())
        }
    }
}

/// Delivers chosen events again.
async fn replay_events(
    context: &Context,
    backend: &dyn Backend,
    key: &GroupKey,
    partitions: &[u32],
    args: &ReplayArgs,
) -> Result<(), Exit> {
    let ids: BTreeSet<String> = args.event.iter().cloned().collect();
    let places = places_of(backend, &key.stream, partitions, &ids).await?;
    if let Some(id) = places.missing.first() {
        return Err(Exit::Failed(anyhow::anyhow!("the stream `{}` has no event `{id}`", key.stream)));
    }
    let events = output::count(places.found.len() as u64, "event");
    confirmed(
        args.yes,
        format!("this delivers {events} to the group `{}` again, and moves no frontier", key.group),
    )?;
    let mut tally = Tally::default();
    for batch in places.found.chunks(REDRIVE_BATCH_MAX) {
        tally.add(&backend.redeliver(key, batch).await?);
    }
    if context.json() {
        return output::json_line(
            &serde_json::json!({ "stream": key.stream, "group": key.group, "events": tally }),
        );
    }
    output::line(&tally.said())
}

/// What a rewind does to one partition.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Touched {
    partition: u32,
    frontier: u64,
    /// `None` where the group goes.
    new_frontier: Option<u64>,
    /// Events that are delivered afterwards: again, or for the first time.
    to_deliver: u64,
    /// Pending entries that are dropped, their leases with them.
    dropped: u64,
}

/// Says what would be touched, or does it.
async fn carry_out(
    context: &Context,
    backend: &dyn Backend,
    key: &GroupKey,
    info: &GroupInfo,
    plan: Rewind,
    yes: bool,
) -> Result<(), Exit> {
    if !yes {
        preview(context, &touched(backend, key, info, &plan).await?)?;
        if context.is_redis()? {
            output::note(
                "a Rheo consumer does not wait while this is under way: stop those of this group before, \
                 and start them again afterwards",
            );
        }
        if plan.kind == RewindKind::Delete {
            output::note(
                "a pipeline of this group that runs creates it again, at the beginning: stop it before",
            );
        }
    }
    confirmed(yes, would(key, info, plan.kind))?;
    let dropped = rewind(backend, key, &plan).await?;
    if context.json() {
        return output::json_line(&serde_json::json!({
            "stream": key.stream, "group": key.group, "kind": plan.kind, "dropped": dropped,
        }));
    }
    let done = match plan.kind {
        RewindKind::Replay => "was set back",
        RewindKind::Reset => "was reset",
        RewindKind::Delete => "was deleted",
    };
    let dropped = match dropped {
        1 => "1 pending entry was dropped".to_owned(),
        dropped => format!("{dropped} pending entries were dropped"),
    };
    output::line(&format!("the group `{}` of the stream `{}` {done}; {dropped}", key.group, key.stream))
}

fn would(key: &GroupKey, info: &GroupInfo, kind: RewindKind) -> String {
    let letters = output::count(info.dead_letters, "dead letter");
    let (what, letters) = match kind {
        RewindKind::Replay => ("replays", format!("its {letters} stay")),
        RewindKind::Reset => ("resets", format!("its {letters} stay")),
        RewindKind::Delete => ("deletes", format!("its {letters} go with it")),
    };
    format!("this {what} the group `{}` of the stream `{}`; {letters}", key.group, key.stream)
}

async fn touched(
    backend: &dyn Backend,
    key: &GroupKey,
    info: &GroupInfo,
    plan: &Rewind,
) -> Result<Vec<Touched>, Exit> {
    let mut rows = Vec::new();
    for p in &info.partitions {
        let position = match plan.kind {
            RewindKind::Delete => None,
            RewindKind::Replay | RewindKind::Reset => match plan.to.get(&p.partition) {
                Some(position) => Some((*position).min(p.high_watermark)),
                None => continue,
            },
        };
        let pending = p.in_flight + p.parked;
        let dropped = match (plan.kind, position) {
            (RewindKind::Replay, Some(position)) if pending > 0 && position > 0 => {
                pending_above(backend, key, p.partition, position).await?
            }
            _ => pending,
        };
        rows.push(Touched {
            partition: p.partition,
            frontier: p.frontier,
            // A replay never skips: the frontier does not move forward.
            new_frontier: position.map(|position| match plan.kind {
                RewindKind::Replay => position.min(p.frontier),
                RewindKind::Reset | RewindKind::Delete => position,
            }),
            to_deliver: position.map_or(0, |position| p.high_watermark - position),
            dropped,
        });
    }
    Ok(rows)
}

/// How many pending entries lie above a sequence. One without a readable sequence is dropped too.
async fn pending_above(
    backend: &dyn Backend,
    key: &GroupKey,
    partition: u32,
    position: u64,
) -> Result<u64, Exit> {
    let (mut after, mut count): (Option<String>, u64) = (None, 0);
    loop {
        let page = backend.pending(key, partition, after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(count) };
        after = Some(last.receipt.clone());
        let above = page.iter().filter(|entry| entry.sequence.is_none_or(|sequence| sequence > position));
        count += above.count() as u64;
    }
}

fn preview(context: &Context, rows: &[Touched]) -> Result<(), Exit> {
    if context.json() {
        return rows.iter().try_for_each(output::json_line);
    }
    let cells = |row: &Touched| {
        [
            row.partition.to_string(),
            row.frontier.to_string(),
            row.new_frontier.map_or_else(|| "none".to_owned(), |frontier| frontier.to_string()),
            row.to_deliver.to_string(),
            row.dropped.to_string(),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    output::table(
        [">partition", ">frontier", ">new frontier", ">events to deliver", ">pending dropped"],
        &rows,
    )
}
