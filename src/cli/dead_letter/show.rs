//! `wasmill dead-letter show`, and how a dead letter is shown.

use serde::Serialize;

use super::{PAGE, event_id};
use crate::backend::{Backend, DeadEvent, DeadLetter, Error};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::event::{Event, GroupKey};
use crate::outcome::{Cause, FailureKind};

pub(super) async fn run(
    context: &Context,
    backend: &dyn Backend,
    key: &GroupKey,
    id: &str,
) -> Result<(), Exit> {
    let letter = find(backend, key, id).await?;
    if context.json() { output::json_line(&to_json(&letter)) } else { show(&letter) }
}

async fn find(backend: &dyn Backend, key: &GroupKey, id: &str) -> Result<DeadLetter, Exit> {
    let mut after = None;
    loop {
        let page = backend.dead_letters(key, after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else {
            let (group, row) = (key.clone(), id.to_owned());
            return Err(Error::DeadLetterNotFound { group, row }.into());
        };
        after = Some(last.row.clone());
        let names = |letter: &DeadLetter| letter.row == id || event_id(letter) == Some(id);
        if let Some(found) = page.into_iter().find(names) {
            return Ok(found);
        }
    }
}

/// A dead letter as JSON. Payload and metadata keep their text: it is not read into values and
/// written again, which would lose digits and repeated keys.
#[derive(Serialize)]
pub(super) struct Row<'a> {
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

pub(super) fn to_json(letter: &DeadLetter) -> Row<'_> {
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

fn show(letter: &DeadLetter) -> Result<(), Exit> {
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
