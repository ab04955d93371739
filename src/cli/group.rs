//! `wasmill group`.

use std::num::NonZeroUsize;

use clap::{Args, Subcommand, ValueEnum};

use super::context::{Access, Context, group_key, name};
use super::exit::Exit;
use super::output;
use crate::backend::{Backend, GroupInfo, NewGroup, PendingEntry, PendingState, Start};
use crate::event::{GroupKey, Name};

#[derive(Debug, Subcommand)]
pub(super) enum GroupCommand {
    /// Create a group
    Create(CreateArgs),
    /// List a stream's groups
    List {
        /// The stream
        stream: String,
    },
    /// Show a group's state
    Info {
        /// The stream
        stream: String,
        /// The group
        group: String,
    },
    /// List what was delivered and is not settled: who holds it, or when it comes back
    Pending(PendingArgs),
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// The stream
    stream: String,
    /// The group's name: letters, digits, `.`, `_` and `-`
    group: String,
    /// Where it begins
    #[arg(long, value_enum, default_value_t = StartArg::Beginning)]
    start: StartArg,
    /// Deliveries after which a failure is a dead letter
    #[arg(long, default_value_t = 5, value_name = "N")]
    max_attempts: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StartArg {
    /// With the first event of the log
    Beginning,
    /// With the next event that is appended
    End,
}

#[derive(Debug, Args)]
pub(super) struct PendingArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// Only this partition
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// At most so many entries
    #[arg(long, default_value = "100", value_name = "N")]
    limit: NonZeroUsize,
}

pub(super) async fn run(context: &Context, command: GroupCommand) -> Result<(), Exit> {
    let access = if matches!(command, GroupCommand::Create(_)) { Access::Create } else { Access::Existing };
    let backend = context.open_store(access).await?;
    match command {
        GroupCommand::Create(args) => create(context, backend.as_ref(), &args).await,
        GroupCommand::List { stream } => {
            let stream = name(&stream)?;
            let groups = backend.groups(&stream).await?;
            if context.json() {
                let row = |group| output::json_line(&serde_json::json!({ "stream": stream, "group": group }));
                return groups.iter().try_for_each(row);
            }
            let rows: Vec<_> = groups.iter().map(|group| [group.to_string()]).collect();
            output::table(["group"], &rows)
        }
        GroupCommand::Info { stream, group } => {
            let key = group_key(&stream, &group)?;
            info(context, &key, &backend.group_info(&key).await?)
        }
        GroupCommand::Pending(args) => pending(context, backend.as_ref(), &args).await,
    }
}

async fn create(context: &Context, backend: &dyn Backend, args: &CreateArgs) -> Result<(), Exit> {
    let key = GroupKey::new(name(&args.stream)?, Name::new(&args.group)?);
    let start = match args.start {
        StartArg::Beginning => Start::Beginning,
        StartArg::End => Start::End,
    };
    backend.create_group(&key, NewGroup { max_attempts: args.max_attempts, start }).await?;
    if context.json() {
        return output::json_line(&serde_json::json!({
            "stream": key.stream, "group": key.group, "max_attempts": args.max_attempts
        }));
    }
    output::line(&format!("created the group `{}` of the stream `{}`", key.group, key.stream))
}

fn info(context: &Context, key: &GroupKey, info: &GroupInfo) -> Result<(), Exit> {
    let lag = info.lag(|_| true);
    let in_flight: u64 = info.partitions.iter().map(|p| p.in_flight).sum();
    let parked: u64 = info.partitions.iter().map(|p| p.parked).sum();
    if context.json() {
        return output::json_line(&serde_json::json!({
            "stream": key.stream,
            "group": key.group,
            "max_attempts": info.max_attempts,
            "lag": lag,
            "in_flight": in_flight,
            "parked": parked,
            "frontier": info.partitions.iter().map(|p| p.frontier).collect::<Vec<_>>(),
            "dead_letters": info.dead_letters,
        }));
    }
    output::line(&format!(
        "group {} of the stream {}: lag {lag}, in flight {in_flight}, parked {parked}, dead letters {}, max attempts {}",
        key.group, key.stream, info.dead_letters, info.max_attempts
    ))?;
    let rows: Vec<_> = info
        .partitions
        .iter()
        .map(|p| {
            [u64::from(p.partition), p.frontier, p.high_watermark, p.lag(), p.in_flight, p.parked]
                .map(|n| n.to_string())
        })
        .collect();
    output::table([">partition", ">frontier", ">high watermark", ">lag", ">in flight", ">parked"], &rows)
}

async fn pending(context: &Context, backend: &dyn Backend, args: &PendingArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let partitions = match args.partition {
        Some(partition) => vec![partition],
        None => backend.group_info(&key).await?.partitions.iter().map(|p| p.partition).collect(),
    };
    let mut entries = Vec::new();
    for partition in partitions {
        let room = args.limit.get().saturating_sub(entries.len());
        if room > 0 {
            entries.extend(backend.pending(&key, partition, None, room).await?);
        }
    }
    if context.json() {
        return entries.iter().try_for_each(|entry| output::json_line(&pending_json(entry)));
    }
    let rows: Vec<_> = entries.iter().map(pending_row).collect();
    output::table([">partition", ">sequence", "event", ">attempt", "state", "until", "last failure"], &rows)?;
    if entries.len() == args.limit.get() {
        output::note(&format!("shown are the first {}; --limit shows more", args.limit));
    }
    Ok(())
}

fn pending_json(entry: &PendingEntry) -> serde_json::Value {
    let mut value = serde_json::json!({
        "partition": entry.partition,
        "sequence": entry.sequence,
        "event": entry.event_id,
        "receipt": entry.receipt,
        "attempt": entry.attempt,
        "failure": entry.failure.as_ref().map(|(kind, _)| kind.as_str()),
        "reason": entry.failure.as_ref().map(|(_, reason)| reason),
    });
    let (state, rest) = match &entry.state {
        PendingState::Leased { consumer, expires_in_ms } => (
            "leased",
            vec![("consumer", consumer.as_str().into()), ("expires_in_ms", (*expires_in_ms).into())],
        ),
        PendingState::Parked { due_in_ms } => ("parked", vec![("due_in_ms", (*due_in_ms).into())]),
    };
    value["state"] = state.into();
    for (field, content) in rest {
        value[field] = content;
    }
    value
}

fn pending_row(entry: &PendingEntry) -> [String; 7] {
    let (state, until) = match &entry.state {
        PendingState::Leased { consumer, expires_in_ms } => (format!("leased by {consumer}"), *expires_in_ms),
        PendingState::Parked { due_in_ms } => ("parked".to_owned(), *due_in_ms),
    };
    let failure = entry.failure.as_ref().map(|(kind, reason)| format!("{}: {reason}", kind.as_str()));
    [
        entry.partition.to_string(),
        entry.sequence.map(|n| n.to_string()).unwrap_or_default(),
        entry.event_id.clone().unwrap_or_default(),
        entry.attempt.to_string(),
        state,
        output::in_ms(until),
        failure.unwrap_or_default(),
    ]
}
