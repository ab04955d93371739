//! `wasmill group explain`.

use clap::Args;

use super::pending;
use crate::backend::{Backend, Explanation, Holder, HolderState, PendingEntry, PendingState};
use crate::cli::context::{Context, group_key};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::event::GroupKey;

#[derive(Debug, Args)]
pub(in crate::cli) struct ExplainArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// Only this partition
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
}

pub(super) async fn run(context: &Context, backend: &dyn Backend, args: &ExplainArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let partitions = match args.partition {
        Some(partition) => vec![partition],
        None => backend.group_info(&key).await?.partitions.iter().map(|p| p.partition).collect(),
    };
    for partition in partitions {
        let explanation = backend.explain(&key, partition).await?;
        if context.json() {
            output::json_line(&json(&key, partition, &explanation))?;
        } else {
            lines(partition, &explanation)
                .iter()
                .try_for_each(|line| output::line(&output::printable(line)))?;
        }
    }
    Ok(())
}

fn json(key: &GroupKey, partition: u32, explanation: &Explanation) -> serde_json::Value {
    let holder = explanation.holder.as_ref().map(|holder| {
        let pending = match &holder.state {
            HolderState::Pending(entry) => Some(pending::json(entry)),
            _ => None,
        };
        serde_json::json!({
            "sequence": holder.sequence,
            "event": holder.event_id,
            "type": holder.event_type,
            "timestamp": holder.timestamp,
            "state": state(&holder.state),
            "pending": pending,
            "released_by": release(&holder.state),
        })
    });
    serde_json::json!({
        "stream": key.stream,
        "group": key.group,
        "partition": partition,
        "frontier": explanation.frontier,
        "high_watermark": explanation.high_watermark,
        "lag": explanation.high_watermark.saturating_sub(explanation.frontier),
        "redriven": explanation.redriven,
        "rewind": explanation.rewind,
        "holder": holder,
    })
}

fn lines(partition: u32, explanation: &Explanation) -> Vec<String> {
    let Explanation { frontier, high_watermark, .. } = explanation;
    let mut lines = vec![format!("partition {partition}: the frontier is {frontier} of {high_watermark}")];
    if let Some(kind) = explanation.rewind {
        lines.push(format!("  a {kind} is under way: nothing is delivered until it has come to its end"));
    }
    match &explanation.holder {
        Some(holder) => lines.extend(holder_lines(holder)),
        None => lines.push("  nothing holds it: all is settled".to_owned()),
    }
    if explanation.redriven > 0 {
        let redriven = output::count(explanation.redriven, "event");
        lines.push(format!("  besides, {redriven} redriven and not settled yet; the frontier does not wait"));
    }
    lines
}

fn holder_lines(holder: &Holder) -> Vec<String> {
    let mut event = format!("  held by sequence {}", holder.sequence);
    if let Some(id) = &holder.event_id {
        event.push_str(&format!(", event {id}"));
    }
    if let Some(event_type) = &holder.event_type {
        event.push_str(&format!(" of type {event_type}"));
    }
    if let Some(timestamp) = &holder.timestamp {
        event.push_str(&format!(", written {timestamp}{}", age(timestamp)));
    }
    let mut lines = vec![event, format!("  {}", said(&holder.state))];
    if let HolderState::Pending(entry) = &holder.state
        && let Some(failure) = pending::failure(entry)
    {
        lines.push(format!("  last failure: {failure}"));
    }
    lines.push(format!("  released by: {}", release(&holder.state)));
    lines
}

/// How long ago, by this machine's clock; nothing for a text that is no time.
fn age(timestamp: &str) -> String {
    let Ok(at) = timestamp.parse::<jiff::Timestamp>() else { return String::new() };
    let ms = jiff::Timestamp::now().as_millisecond().saturating_sub(at.as_millisecond());
    format!(" ({})", output::in_ms(ms.saturating_neg()))
}

/// The state in a word.
fn state(state: &HolderState) -> &'static str {
    match state {
        HolderState::Undelivered => "undelivered",
        HolderState::Pending(PendingEntry { state: PendingState::Leased { .. }, .. }) => "leased",
        HolderState::Pending(PendingEntry { state: PendingState::Parked { .. }, .. }) => "parked",
        HolderState::Unwritten => "unwritten",
        HolderState::Missing => "missing",
        HolderState::Unclear => "unclear",
        HolderState::Settled => "settled",
    }
}

/// The state in words.
fn said(state: &HolderState) -> String {
    match state {
        HolderState::Undelivered => "no one has taken it yet".to_owned(),
        HolderState::Pending(PendingEntry { attempt, state, .. }) => match state {
            PendingState::Leased { consumer, expires_in_ms } => {
                let ended = if *expires_in_ms > 0 { "ends" } else { "ended" };
                let ends = output::in_ms(*expires_in_ms);
                format!("leased by {consumer} at attempt {attempt}; the lease {ended} {ends}")
            }
            PendingState::Parked { due_in_ms } => {
                format!("parked after attempt {attempt}; due {}", output::in_ms(*due_in_ms))
            }
        },
        HolderState::Unwritten => {
            "no entry has this sequence: an append is under way, or left a hole".to_owned()
        }
        HolderState::Missing => "its entry was removed from the log before it was settled".to_owned(),
        HolderState::Unclear => "it was delivered, and is neither pending nor known as settled".to_owned(),
        HolderState::Settled => "it is settled, and the frontier is behind".to_owned(),
    }
}

/// What makes the frontier move on.
fn release(state: &HolderState) -> &'static str {
    match state {
        HolderState::Undelivered => "an engine that runs a pipeline of this group",
        HolderState::Pending(PendingEntry { state, .. }) => match state {
            PendingState::Leased { expires_in_ms, .. } if *expires_in_ms > 0 => {
                "its holder's verdict, or the end of the lease and another engine's"
            }
            PendingState::Leased { .. } => "its holder's late verdict, or the next engine that takes it",
            PendingState::Parked { .. } => "the attempt that follows when it is due",
        },
        HolderState::Unwritten => {
            "the append, or a running engine, which passes a hole once it is old enough"
        }
        HolderState::Missing | HolderState::Unclear | HolderState::Settled => {
            "a running engine, whose next repair decides"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explanation(state: HolderState) -> Explanation {
        let holder = Holder {
            sequence: 5,
            event_id: Some("evt-5".to_owned()),
            event_type: Some("tick".to_owned()),
            timestamp: Some("whenever".to_owned()),
            state,
        };
        Explanation { frontier: 4, high_watermark: 9, redriven: 2, rewind: None, holder: Some(holder) }
    }

    #[test]
    fn says_who_holds_and_what_would_release() {
        let entry = PendingEntry {
            partition: 0,
            sequence: Some(5),
            event_id: Some("evt-5".to_owned()),
            receipt: "1-0".to_owned(),
            attempt: 3,
            state: PendingState::Parked { due_in_ms: 60_000 },
            failure: Some((crate::outcome::FailureKind::Retry, "not yet".to_owned())),
        };
        assert_eq!(
            lines(1, &explanation(HolderState::Pending(entry.clone()))).join("\n"),
            "partition 1: the frontier is 4 of 9\n  held by sequence 5, event evt-5 of type tick, written whenever\n  \
             parked after attempt 3; due in 60.0 s\n  last failure: retry: not yet\n  \
             released by: the attempt that follows when it is due\n  \
             besides, 2 events redriven and not settled yet; the frontier does not wait"
        );
        let key = GroupKey::new(crate::event::Name::new("s").unwrap(), crate::event::Name::new("g").unwrap());
        let json = json(&key, 1, &explanation(HolderState::Pending(entry)));
        assert_eq!((&json["lag"], &json["holder"]["state"]), (&5.into(), &"parked".into()));
        assert_eq!(json["holder"]["pending"]["due_in_ms"], 60_000);
    }

    #[test]
    fn a_group_that_is_done_is_held_by_nothing() {
        let done = Explanation { frontier: 9, high_watermark: 9, redriven: 0, rewind: None, holder: None };
        assert_eq!(lines(0, &done)[1], "  nothing holds it: all is settled");
    }
}
