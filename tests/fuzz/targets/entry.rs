//! Fields of a Redis entry, as Rheo and whoever else writes them → an event or a dead letter.

use wasmill::backend::DeadEvent;
use wasmill::backend::redis::fuzzing::{self, Fields};
use wasmill::event::{NUMBER_MAX, Name};
use wasmill::query::{Condition, Filter};

/// The input is a field a line, `name=value`; all of it is also read as the copy of a redriven event.
pub(crate) fn entry(input: &[u8]) {
    let stream = Name::new("orders").unwrap();
    let fields: Fields = input
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            let at = line.iter().position(|&byte| byte == b'=').unwrap_or(line.len());
            (line[..at].to_vec(), line.get(at + 1..).unwrap_or_default().to_vec())
        })
        .collect();
    decoded(&stream, &fields, input.len());

    let (letter, _) = fuzzing::dead_letter(&stream, "1-0", fields);
    match &letter.event {
        DeadEvent::Event(event) => assert!((1..=NUMBER_MAX).contains(&event.sequence)),
        // A byte that is no UTF-8 becomes a replacement character of three.
        DeadEvent::Raw(raw) => assert!(bytes(raw) <= 3 * input.len()),
    }
    assert!(letter.reason.len() <= 3 * input.len());

    if let Some(copied) = fuzzing::copy(input) {
        assert!(copied.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= input.len());
        decoded(&stream, &copied, input.len());
    }
}

fn bytes(fields: &[(String, String)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn decoded(stream: &Name, fields: &Fields, length: usize) {
    let event = match fuzzing::event(stream, 2, fields) {
        Ok(event) => event,
        Err(why) => return assert!(!why.is_empty() && why.len() <= 6 * length + 200, "{why}"),
    };
    assert!((1..=NUMBER_MAX).contains(&event.sequence));
    let payload = fields.iter().find(|(name, _)| name == b"payload").map(|(_, value)| value.as_slice());
    // White space around the object is no part of it.
    let trimmed = payload.map(|text| text.trim_ascii());
    assert_eq!(trimmed, Some(event.payload.as_str().as_bytes()), "delivered byte for byte");
    // What the host and the queries make of it.
    let _ = event.timestamp_ms();
    assert!(event.metadata_pairs().len() <= length);
    assert!(event.payload.entries().len() <= length);
    let _ = event.payload.text_field("key");
    let conditions = vec![Condition::json("a", "1.0e5").unwrap(), Condition::text("producer", "p")];
    let _ = Filter { conditions, from: Some(jiff::Timestamp::UNIX_EPOCH), to: None }.matches(&event);
    for (name, raw) in event.payload.entries() {
        if let Ok(same) = Condition::json(name, raw.get()) {
            let _ = Filter { conditions: vec![same], from: None, to: None }.matches(&event);
        }
    }
}
