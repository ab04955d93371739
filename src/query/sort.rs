//! Orders other than that of the log.

use std::cmp::Ordering;
use std::str::FromStr;

use jiff::Timestamp;

use crate::event::Event;

/// A field that events are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortField {
    /// [`Event::sequence`].
    Sequence,
    /// [`Event::partition`].
    Partition,
    /// The instant that [`Event::timestamp`] names; texts that are no instant come last.
    Timestamp,
    /// [`Event::event_type`]; events without one come first.
    Type,
    /// [`Event::key`]; events without one come first.
    Key,
    /// [`Event::id`].
    Id,
}

/// A field with its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The field.
    pub field: SortField,
    /// The largest first.
    pub descending: bool,
}

const FIELDS: [(&str, SortField); 6] = [
    ("sequence", SortField::Sequence),
    ("partition", SortField::Partition),
    ("timestamp", SortField::Timestamp),
    ("type", SortField::Type),
    ("key", SortField::Key),
    ("id", SortField::Id),
];

impl FromStr for SortKey {
    type Err = String;

    /// Reads `FIELD`, `FIELD:asc` or `FIELD:desc`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, direction) = text.split_once(':').unwrap_or((text, "asc"));
        let field = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
        match (field, direction) {
            (Some(field), "asc") => Ok(Self { field, descending: false }),
            (Some(field), "desc") => Ok(Self { field, descending: true }),
            _ => {
                let known: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
                Err(format!("an order is one of {}, with `:desc` for the largest first", known.join(", ")))
            }
        }
    }
}

/// What an event is ordered by, taken from it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortValues {
    values: Vec<(Value, bool)>,
    /// Between equals: the order of the log, partition by partition.
    place: (u32, u64),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Missing,
    Number(u64),
    Time(Timestamp),
    Text(String),
}

impl SortValues {
    pub(crate) fn of(event: &Event, keys: &[SortKey]) -> Self {
        let text = |text: &Option<String>| text.clone().map_or(Value::Missing, Value::Text);
        let value = |field| match field {
            SortField::Sequence => Value::Number(event.sequence),
            SortField::Partition => Value::Number(event.partition.into()),
            SortField::Timestamp => {
                event.timestamp.parse().map_or_else(|_| Value::Text(event.timestamp.clone()), Value::Time)
            }
            SortField::Type => text(&event.event_type),
            SortField::Key => text(&event.key),
            SortField::Id => Value::Text(event.id.clone()),
        };
        let values = keys.iter().map(|key| (value(key.field), key.descending)).collect();
        Self { values, place: (event.partition, event.sequence) }
    }
}

impl Ord for SortValues {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.values.iter().zip(&other.values);
        let each = pairs.map(|((a, descending), (b, _))| if *descending { b.cmp(a) } else { a.cmp(b) });
        each.fold(Ordering::Equal, Ordering::then).then(self.place.cmp(&other.place))
    }
}

impl PartialOrd for SortValues {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{JsonObject, Name};

    fn event(partition: u32, sequence: u64, timestamp: &str, event_type: Option<&str>) -> Event {
        Event {
            id: format!("{partition}-{sequence}"),
            stream: Name::new("s").unwrap(),
            partition,
            sequence,
            timestamp: timestamp.to_owned(),
            key: None,
            event_type: event_type.map(str::to_owned),
            metadata: JsonObject::empty(),
            payload: JsonObject::empty(),
        }
    }

    fn sorted(keys: &[&str]) -> Vec<String> {
        let keys: Vec<SortKey> = keys.iter().map(|key| key.parse().unwrap()).collect();
        let mut events = [
            event(0, 1, "2020-01-01T02:00:00+02:00", Some("b")),
            event(0, 2, "2019-12-31T23:59:59.9Z", None),
            event(1, 1, "2020-01-01T00:00:00Z", Some("a")),
            event(1, 2, "no time", Some("b")),
        ];
        events.sort_by_key(|event| SortValues::of(event, &keys));
        events.map(|event| event.id).to_vec()
    }

    #[test]
    fn events_come_in_the_order_asked_for() {
        assert_eq!(sorted(&["timestamp"]), ["0-2", "0-1", "1-1", "1-2"]);
        assert_eq!(sorted(&["timestamp:desc"]), ["1-2", "0-1", "1-1", "0-2"]);
        assert_eq!(sorted(&["type", "sequence:desc"]), ["0-2", "1-1", "1-2", "0-1"]);
        assert_eq!(sorted(&["sequence:desc"]), ["0-2", "1-2", "0-1", "1-1"]);
        assert_eq!(sorted(&["key"]), ["0-1", "0-2", "1-1", "1-2"]);
    }

    #[test]
    fn other_orders_are_refused() {
        for text in ["", "payload", "type:down", "type:desc:asc"] {
            assert!(text.parse::<SortKey>().unwrap_err().contains("sequence, partition"), "{text}");
        }
    }
}
