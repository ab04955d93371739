//! What an engine's log says, line by line.

use serde_json::Value;

use super::clock;
use super::recorder::Recorder;
use crate::history::{What, Written};

/// Takes in one line of an engine's log. Gives the engine's name in the store where the line says it.
pub(super) fn take_in(recorder: &Recorder, run: Option<&str>, line: &str) -> Option<String> {
    let Ok(line_value) = serde_json::from_str::<Value>(line) else {
        // The last line of an engine that was killed may be half a line.
        if !line.starts_with('{') {
            recorder.trouble(format!("{run:?} said: {line}"));
        }
        return None;
    };
    let fields = &line_value["fields"];
    let message = fields["message"].as_str().unwrap_or_default();
    if line_value["level"] == "ERROR" {
        recorder.trouble(format!("{run:?} said: {line}"));
    }
    let reason = fields["reason"].as_str().unwrap_or_default();
    // No fault here is a reason for that: it spends an attempt that the handler did not ask for.
    if reason.starts_with("its effects were not committed") {
        recorder.trouble(format!("{run:?} said: {line}"));
    }
    if reason.starts_with("its state changed under it") {
        recorder.count("retried for changed state", 1);
    }
    if let "running" = message {
        return fields["consumer"].as_str().map(str::to_owned);
    }
    count(recorder, message, fields);
    let span = &line_value["span"];
    let (Some(run), Some(id), Some(attempt)) = (run, span["event"].as_str(), span["attempt"].as_u64()) else {
        return None;
    };
    let at = clock::parse(line_value["timestamp"].as_str().unwrap());
    let (run, attempt) = (run.to_owned(), u32::try_from(attempt).unwrap());
    let written = |verdict| What::Written { run: run.clone(), id: id.to_owned(), attempt, verdict };
    let what = match message {
        "started" => What::Delivered { run, id: id.to_owned(), attempt },
        "acked" => written(Written::Acked),
        "will be tried again" => written(Written::Retried),
        "dead-lettered" => written(Written::DeadLettered),
        "handed back" => written(Written::HandedBack),
        _ => return None,
    };
    recorder.record_of(id, at, what);
    None
}

fn count(recorder: &Recorder, message: &str, fields: &Value) {
    match message {
        "started" => recorder.count("handler calls", 1),
        "acked" => recorder.count("acked, as engines say", 1),
        "will be tried again" => recorder.count("retried, as engines say", 1),
        "dead-lettered" => recorder.count("dead-lettered, as engines say", 1),
        "handed back" => recorder.count("handed back", 1),
        "its state has changed meanwhile; it runs again" => recorder.count("run again on changed state", 1),
        "the store does not answer; trying again until it does" => recorder.count("outages seen", 1),
        "repaired" => {
            let kind = fields["kind"].as_str().unwrap_or_default();
            recorder.count(format!("repaired: {kind}"), fields["count"].as_u64().unwrap_or(1));
        }
        _ if message.starts_with("the lease was lost") => recorder.count("stale: nothing was written", 1),
        _ if message.starts_with("no answer tells") => recorder.count("no answer tells", 1),
        _ => {}
    }
}
