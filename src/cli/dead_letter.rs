//! `wasmill dead-letter`.

use std::num::NonZeroUsize;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::context::{Access, Context, group_key};
use super::exit::Exit;
use super::output;
use crate::backend::{Backend, DeadEvent, DeadLetter};
use crate::event::{Event, GroupKey};
use crate::outcome::{Cause, FailureKind};

/// How many rows one call to the store asks for.
const PAGE: usize = 200;

#[derive(Debug, Subcommand)]
pub(super) enum DeadLetterCommand {
    /// List a group's dead letters, oldest first
    List(ListArgs),
    /// Show one dead letter with its whole event
    Show {
        /// The stream
        stream: String,
        /// The group
        group: String,
        /// The event's id, or the row's
        id: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// At most so many
    #[arg(long, default_value = "100", value_name = "N")]
    limit: NonZeroUsize,
    /// Go on after this row
    #[arg(long, value_name = "ROW")]
    after: Option<String>,
}

pub(super) async fn run(context: &Context, command: DeadLetterCommand) -> Result<(), Exit> {
    let backend = context.open_store(Access::Existing).await?;
    match command {
        DeadLetterCommand::List(args) => list(context, backend.as_ref(), &args).await,
        DeadLetterCommand::Show { stream, group, id } => {
            let key = group_key(&stream, &group)?;
            let found = find(backend.as_ref(), &key, &id).await?;
            show(context, &found)
        }
    }
}

async fn list(context: &Context, backend: &dyn Backend, args: &ListArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let (mut after, mut left) = (args.after.clone(), args.limit.get());
    let mut rows = Vec::new();
    while left > 0 {
        let page = backend.dead_letters(&key, after.as_deref(), left.min(PAGE)).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.row.clone());
        left -= page.len().min(left);
        for letter in &page {
            if context.json() {
                output::json_line(&to_json(letter))?;
            } else {
                rows.push(row(letter));
            }
        }
    }
    if context.json() {
        return Ok(());
    }
    output::table(["row", "event", ">attempts", "cause", "failure", "when", "reason"], &rows)?;
    if left == 0
        && let Some(after) = after
        && !backend.dead_letters(&key, Some(&after), 1).await?.is_empty()
    {
        output::note(&format!("shown are {}; `--after {after}` goes on", rows.len()));
    }
    Ok(())
}

async fn find(backend: &dyn Backend, key: &GroupKey, id: &str) -> Result<DeadLetter, Exit> {
    let mut after = None;
    loop {
        let page = backend.dead_letters(key, after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else {
            return Err(Exit::Failed(anyhow::anyhow!("the group `{}` has no dead letter `{id}`", key.group)));
        };
        after = Some(last.row.clone());
        let names = |letter: &DeadLetter| letter.row == id || event_id(letter) == Some(id);
        if let Some(found) = page.into_iter().find(names) {
            return Ok(found);
        }
    }
}

fn event_id(letter: &DeadLetter) -> Option<&str> {
    match &letter.event {
        DeadEvent::Event(event) => Some(&event.id),
        DeadEvent::Raw(fields) => fields.iter().find(|(name, _)| name == "id").map(|(_, id)| id.as_str()),
    }
}

fn row(letter: &DeadLetter) -> [String; 7] {
    [
        letter.row.clone(),
        event_id(letter).unwrap_or_default().to_owned(),
        letter.attempts.map(|n| n.to_string()).unwrap_or_default(),
        letter.cause.map(|cause| cause.to_string()).unwrap_or_default(),
        letter.failure.map(|failure| failure.as_str().to_owned()).unwrap_or_default(),
        letter.dead_lettered_at.clone().unwrap_or_default(),
        letter.reason.lines().next().unwrap_or_default().to_owned(),
    ]
}

/// A dead letter as JSON. Payload and metadata keep their text: it is not read into values and
/// written again, which would lose digits and repeated keys.
#[derive(Serialize)]
struct Row<'a> {
    row: &'a str,
    event: RowEvent<'a>,
    reason: &'a str,
    cause: Option<Cause>,
    failure: Option<FailureKind>,
    attempts: Option<u32>,
    consumer: Option<&'a str>,
    plugin: Option<&'a str>,
    dead_lettered_at: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RowEvent<'a> {
    Event(&'a Event),
    Raw { raw: &'a [(String, String)] },
}

fn to_json(letter: &DeadLetter) -> Row<'_> {
    Row {
        row: &letter.row,
        event: match &letter.event {
            DeadEvent::Event(event) => RowEvent::Event(event),
            DeadEvent::Raw(fields) => RowEvent::Raw { raw: fields },
        },
        reason: &letter.reason,
        cause: letter.cause,
        failure: letter.failure,
        attempts: letter.attempts,
        consumer: letter.consumer.as_deref(),
        plugin: letter.plugin.as_deref(),
        dead_lettered_at: letter.dead_lettered_at.as_deref(),
    }
}

fn show(context: &Context, letter: &DeadLetter) -> Result<(), Exit> {
    if context.json() {
        return output::json_line(&to_json(letter));
    }
    let mut lines: Vec<(&str, String)> = vec![
        ("row", letter.row.clone()),
        ("cause", letter.cause.map(|cause| cause.to_string()).unwrap_or_default()),
        ("reason", letter.reason.clone()),
        ("failure", letter.failure.map(|failure| failure.as_str().to_owned()).unwrap_or_default()),
        ("attempts", letter.attempts.map(|n| n.to_string()).unwrap_or_default()),
        ("consumer", letter.consumer.clone().unwrap_or_default()),
        ("plugin", letter.plugin.clone().unwrap_or_default()),
        ("when", letter.dead_lettered_at.clone().unwrap_or_default()),
    ];
    match &letter.event {
        DeadEvent::Event(event) => {
            lines.push(("event", event.id.clone()));
            lines.push(("place", format!("partition {}, sequence {}", event.partition, event.sequence)));
            lines.push(("time", event.timestamp.clone()));
            lines.push(("key", event.key.clone().unwrap_or_default()));
            lines.push(("type", event.event_type.clone().unwrap_or_default()));
            lines.push(("metadata", event.metadata.as_str().to_owned()));
            lines.push(("payload", event.payload.as_str().to_owned()));
        }
        DeadEvent::Raw(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, text)| format!("{name}={text}")).collect();
            lines.push(("raw", fields.join(" ")));
        }
    }
    for (name, text) in lines.iter().filter(|(_, text)| !text.is_empty()) {
        // A reason may be a backtrace of several lines: they stay lines, indented.
        let text: Vec<_> = text.lines().map(output::printable).collect();
        output::line(&format!("{name:<9} {}", text.join("\n          ")))?;
    }
    Ok(())
}
