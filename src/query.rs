//! Which events a query is about, in what order, and where it goes on: values and pure functions.
//!
//! Equality is that of Rheo's queries: numbers compare by value (1 is 1.0, whole numbers exactly,
//! however large), texts are texts and never numbers, what is absent is null.

mod cursor;
mod json;
mod sort;

use std::cell::OnceCell;

use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::event::{Event, JsonObject};
use json::Json;

pub use cursor::{Cursor, CursorError};
pub use json::ValueError;
pub(crate) use sort::SortValues;
pub use sort::{SortField, SortKey};

/// Names that a condition looks up in the metadata; all but these and those of the event itself are
/// looked up in the payload.
const METADATA: [&str; 5] = ["correlation_id", "causation_id", "producer", "schema", "schema_version"];

/// Which events are meant: those that meet every condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Conditions on fields.
    pub conditions: Vec<Condition>,
    /// Not before this time. An event whose timestamp is no instant meets no bound of time.
    pub from: Option<Timestamp>,
    /// Not after this time.
    pub to: Option<Timestamp>,
}

/// A field that must have a value.
///
/// The field `type`, `key` or `partition` is the event's own; `correlation_id`, `causation_id`,
/// `producer`, `schema` and `schema_version` are those of its metadata; any other name is looked up
/// in the payload's top level, where the first of equal names counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    field: String,
    value: Json,
}

impl Condition {
    /// The field has the value of this JSON text.
    ///
    /// # Errors
    /// The text is not JSON, or is nested too deep.
    pub fn json(field: impl Into<String>, text: &str) -> Result<Self, ValueError> {
        Ok(Self { field: field.into(), value: Json::parse(text)? })
    }

    /// The field has this text.
    #[must_use]
    pub fn text(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self { field: field.into(), value: Json::Text(text.into()) }
    }

    fn holds(&self, event: &Event, objects: &Objects<'_>) -> bool {
        match self.field.as_str() {
            "type" => self.value.is_text(event.event_type.as_deref()),
            "key" => self.value.is_text(event.key.as_deref()),
            "partition" => self.value.is_number(event.partition.into()),
            name if METADATA.contains(&name) => self.value.is(objects.metadata(name)),
            name => self.value.is(objects.payload(name)),
        }
    }
}

impl Filter {
    /// Whether an event is meant.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        let objects = Objects { event, metadata: OnceCell::new(), payload: OnceCell::new() };
        self.conditions.iter().all(|condition| condition.holds(event, &objects)) && self.in_time(event)
    }

    fn in_time(&self, event: &Event) -> bool {
        if self.from.is_none() && self.to.is_none() {
            return true;
        }
        // At the precision of the text: a bound may lie between two events of one millisecond.
        let Ok(at) = event.timestamp.parse::<Timestamp>() else { return false };
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at <= to)
    }
}

type Entries<'a> = Vec<(String, &'a RawValue)>;

/// An event's objects, each taken apart once, when a condition first asks.
struct Objects<'a> {
    event: &'a Event,
    metadata: OnceCell<Entries<'a>>,
    payload: OnceCell<Entries<'a>>,
}

impl<'a> Objects<'a> {
    fn metadata(&self, name: &str) -> Option<&'a RawValue> {
        find(&self.metadata, &self.event.metadata, name)
    }

    fn payload(&self, name: &str) -> Option<&'a RawValue> {
        find(&self.payload, &self.event.payload, name)
    }
}

fn find<'a>(cell: &OnceCell<Entries<'a>>, object: &'a JsonObject, name: &str) -> Option<&'a RawValue> {
    let entries = cell.get_or_init(|| object.entries());
    entries.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Name;

    fn event(payload: &str, metadata: &str) -> Event {
        Event {
            id: "e".to_owned(),
            stream: Name::new("s").unwrap(),
            partition: 3,
            sequence: 7,
            timestamp: "2020-01-15T12:00:03.000Z".to_owned(),
            key: Some("42".to_owned()),
            event_type: Some("tick".to_owned()),
            metadata: JsonObject::parse(metadata).unwrap(),
            payload: JsonObject::parse(payload).unwrap(),
        }
    }

    fn holds(field: &str, json: &str, payload: &str) -> bool {
        let conditions = vec![Condition::json(field, json).unwrap()];
        Filter { conditions, ..Filter::default() }.matches(&event(payload, r#"{"producer":"p","n":1}"#))
    }

    #[test]
    fn fields_are_looked_up_where_they_belong() {
        let payload = r#"{"producer":"other","n":5,"n":6,"type":"payload"}"#;
        assert!(holds("type", r#""tick""#, payload) && !holds("type", r#""payload""#, payload));
        assert!(holds("key", r#""42""#, payload));
        assert!(!holds("key", "42", payload), "a key is text, and no text is a number");
        assert!(holds("partition", "3", payload) && holds("partition", "3.0", payload));
        assert!(holds("producer", r#""p""#, payload) && !holds("producer", r#""other""#, payload));
        assert!(holds("n", "5", payload), "of equal names the first counts");
        assert!(!holds("n", "6", payload));
    }

    #[test]
    fn what_is_absent_is_null() {
        assert!(holds("missing", "null", "{}") && holds("n", "null", r#"{"n":null}"#));
        assert!(!holds("n", "null", r#"{"n":false}"#));
        assert!(holds("schema", "null", "{}") && !holds("key", "null", "{}"));
    }

    #[test]
    fn bounds_of_time_are_inclusive_and_need_an_instant() {
        let at = |text: &str| Some(text.parse().unwrap());
        let mut event = event("{}", "{}");
        let within = |from, to, event: &Event| Filter { from, to, ..Filter::default() }.matches(event);
        assert!(within(at("2020-01-15T12:00:03Z"), at("2020-01-15T12:00:03Z"), &event));
        assert!(!within(at("2020-01-15T12:00:03.001Z"), None, &event));
        assert!(!within(None, at("2020-01-15T12:00:02.999Z"), &event));
        event.timestamp = "2020-01-15T13:00:03.0005+01:00".to_owned();
        assert!(!within(None, at("2020-01-15T12:00:03Z"), &event), "half a millisecond later");
        event.timestamp = "yesterday".to_owned();
        assert!(!within(at("1990-01-01T00:00:00Z"), None, &event));
        assert!(within(None, None, &event));
    }
}
