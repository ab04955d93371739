//! From rows to events and back to words.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::event::{Event, JsonObject, Name};

/// The columns of an event in the order in which [`event`] reads them. `e` is the table.
macro_rules! event_columns {
    () => {
        "e.id, e.timestamp, e.key, e.type, e.metadata, e.payload"
    };
}
pub(super) use event_columns;

/// The same columns where the entry may have been redriven: from the record `r` where there is one,
/// since the log may have the event no more.
macro_rules! kept_event_columns {
    () => {
        "COALESCE(r.id, e.id), COALESCE(r.timestamp, e.timestamp), COALESCE(r.key, e.key), \
         COALESCE(r.type, e.type), COALESCE(r.metadata, e.metadata), COALESCE(r.payload, e.payload)"
    };
}
pub(super) use kept_event_columns;

/// How many columns [`event_columns`] names.
pub(super) const EVENT_COLUMNS: usize = 6;

/// Their names, where they have to be shown one by one.
const NAMES: [&str; EVENT_COLUMNS] = ["id", "timestamp", "key", "type", "metadata", "payload"];

/// The place of an event, which comes from elsewhere than its columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) stream: &'a Name,
    pub(super) partition: u32,
    pub(super) sequence: u64,
}

/// What stands in a row instead of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoEvent {
    /// Nothing: there is no row.
    Missing,
    /// Values that are no event: someone else wrote them.
    Undecodable {
        /// What is wrong.
        detail: String,
        /// The id, where it is a text.
        event_id: Option<String>,
        /// All values that are there, bytes that are no UTF-8 replaced.
        fields: Vec<(String, String)>,
    },
}

/// Reads an event from the columns from `first` on.
pub(super) fn event(
    row: &Row<'_>,
    first: usize,
    place: Place<'_>,
) -> rusqlite::Result<Result<Event, NoEvent>> {
    if row.get_ref(first)? == ValueRef::Null {
        return Ok(Err(NoEvent::Missing));
    }
    let mut texts = Vec::with_capacity(EVENT_COLUMNS);
    for (index, name) in NAMES.iter().enumerate() {
        match text(row.get_ref(first + index)?) {
            Ok(text) => texts.push(text),
            Err(why) => return undecodable(row, first, format!("`{name}` {why}")).map(Err),
        }
    }
    match decode(texts, place) {
        Ok(event) => Ok(Ok(event)),
        Err(detail) => undecodable(row, first, detail).map(Err),
    }
}

fn text(value: ValueRef<'_>) -> Result<Option<&str>, &'static str> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) => str::from_utf8(bytes).map(Some).map_err(|_| "is not valid UTF-8"),
        _ => Err("is no text"),
    }
}

fn decode(texts: Vec<Option<&str>>, place: Place<'_>) -> Result<Event, String> {
    let Ok([id, timestamp, key, event_type, metadata, payload]) = <[_; EVENT_COLUMNS]>::try_from(texts)
    else {
        return Err("columns are missing".to_owned());
    };
    let there = |name: &str, text: Option<&str>| {
        text.ok_or_else(|| format!("`{name}` is missing")).map(str::to_owned)
    };
    let object = |name: &str, text: Option<&str>| {
        JsonObject::parse(there(name, text)?).map_err(|error| format!("`{name}`: {error}"))
    };
    Ok(Event {
        id: there("id", id)?,
        stream: place.stream.clone(),
        partition: place.partition,
        sequence: place.sequence,
        timestamp: there("timestamp", timestamp)?,
        key: key.map(str::to_owned),
        event_type: event_type.map(str::to_owned),
        metadata: object("metadata", metadata)?,
        payload: object("payload", payload)?,
    })
}

fn undecodable(row: &Row<'_>, first: usize, detail: String) -> rusqlite::Result<NoEvent> {
    let mut fields = Vec::new();
    for (index, name) in NAMES.iter().enumerate() {
        let shown = match row.get_ref(first + index)? {
            ValueRef::Null => continue,
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => number.to_string(),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        };
        fields.push(((*name).to_owned(), shown));
    }
    let event_id = text(row.get_ref(first)?).ok().flatten().map(str::to_owned);
    Ok(NoEvent::Undecodable { detail, event_id, fields })
}

/// The receipt of an entry: what [`crate::event::Lease::receipt`] holds.
pub(super) fn receipt(partition: u32, sequence: u64) -> String {
    format!("{partition}-{sequence}")
}

/// Whether a text is the receipt of this entry.
pub(super) fn is_receipt(text: &str, partition: u32, sequence: u64) -> bool {
    sequence_of(text, partition) == Some(sequence)
}

/// The sequence in a receipt of this partition; `None` for any other text.
pub(super) fn sequence_of(text: &str, partition: u32) -> Option<u64> {
    let (before, sequence) = text.split_once('-')?;
    (digits(before)? == u64::from(partition)).then(|| digits(sequence)).flatten()
}

/// A number as it is written without a sign and without zeros before it.
fn digits(text: &str) -> Option<u64> {
    let plain =
        text.starts_with(|first: char| first.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// A sequence or a count as it is stored. None of ours exceeds [`crate::event::NUMBER_MAX`]; a
/// larger one names nothing that is there.
pub(super) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A sequence or a count that was stored.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// A number of bytes that was asked for; none where there is nothing to measure.
pub(super) fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<usize> {
    let bytes: Option<i64> = row.get(column)?;
    Ok(bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0))
}

/// A limit or a number of rows as it is stored.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_reads_back_and_nothing_else_does() {
        assert_eq!(sequence_of(&receipt(3, 17), 3), Some(17));
        assert_eq!(sequence_of(&receipt(0, 0), 0), Some(0));
        for other in ["3-017", "03-17", "+3-17", "2-17", "3", "", "3-", "3-17-1", "3-x", "3-+17"] {
            assert_eq!(sequence_of(other, 3), None, "{other}");
        }
    }
}
