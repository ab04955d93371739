//! `wasmill group pending`, and how a pending entry is shown.

use std::num::NonZeroUsize;

use clap::Args;

use crate::backend::{Backend, PendingEntry, PendingState};
use crate::cli::context::{Context, group_key};
use crate::cli::exit::Exit;
use crate::cli::output;

#[derive(Debug, Args)]
pub(in crate::cli) struct PendingArgs {
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

pub(super) async fn run(context: &Context, backend: &dyn Backend, args: &PendingArgs) -> Result<(), Exit> {
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
        return entries.iter().try_for_each(|entry| output::json_line(&json(entry)));
    }
    let rows: Vec<_> = entries.iter().map(row).collect();
    output::table([">partition", ">sequence", "event", ">attempt", "state", "until", "last failure"], &rows)?;
    if entries.len() == args.limit.get() {
        output::note(&format!("shown are the first {}; --limit shows more", args.limit));
    }
    Ok(())
}

/// An entry for programs.
pub(super) fn json(entry: &PendingEntry) -> serde_json::Value {
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

fn row(entry: &PendingEntry) -> [String; 7] {
    let state = match &entry.state {
        PendingState::Leased { consumer, .. } => format!("leased by {consumer}"),
        PendingState::Parked { .. } => "parked".to_owned(),
    };
    [
        entry.partition.to_string(),
        entry.sequence.map(|n| n.to_string()).unwrap_or_default(),
        entry.event_id.clone().unwrap_or_default(),
        entry.attempt.to_string(),
        state,
        output::in_ms(entry.state.claimable_in_ms()),
        failure(entry).unwrap_or_default(),
    ]
}

/// The last failure in words.
pub(super) fn failure(entry: &PendingEntry) -> Option<String> {
    entry.failure.as_ref().map(|(kind, reason)| format!("{}: {reason}", kind.as_str()))
}
