//! Options that say which events are meant: shared by all commands that ask.

use clap::Args;
use jiff::Timestamp;

use super::exit::Exit;
use crate::query::{Condition, Filter};

/// Conditions on an event's fields.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct FieldArgs {
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events with this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only events whose field F is V (repeatable: all must hold). correlation_id, causation_id,
    /// producer, schema and schema_version are fields of the metadata, others of the payload's top
    /// level. V is read as JSON where it is JSON (`n=1`, `id="1"`), else as text; `null` is absent
    #[arg(long = "where", value_name = "F=V")]
    conditions: Vec<String>,
}

impl FieldArgs {
    /// Whether there is no condition.
    pub(super) fn is_empty(&self) -> bool {
        self.event_type.is_none() && self.key.is_none() && self.conditions.is_empty()
    }

    /// The conditions as a filter.
    pub(super) fn filter(&self) -> Result<Filter, Exit> {
        let own = [("type", &self.event_type), ("key", &self.key)];
        let own = own.into_iter().filter_map(|(field, text)| Some(Condition::text(field, text.clone()?)));
        let mut conditions: Vec<Condition> = own.collect();
        for condition in &self.conditions {
            conditions.push(read(condition)?);
        }
        Ok(Filter { conditions, ..Filter::default() })
    }
}

fn read(condition: &str) -> Result<Condition, Exit> {
    let parts = condition.split_once('=').filter(|(field, _)| !field.is_empty());
    let Some((field, value)) = parts else {
        return Err(Exit::usage(format!("--where: `{condition}` is not of the form FIELD=VALUE")));
    };
    // Types and keys are texts, whatever they look like.
    if matches!(field, "type" | "key") && value != "null" {
        return Ok(Condition::text(field, value));
    }
    Ok(Condition::json(field, value).unwrap_or_else(|_| Condition::text(field, value)))
}

/// Reads a time of the command line: RFC 3339; without an offset, and for a date alone, in UTC.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let civil = text.parse::<jiff::civil::DateTime>().ok();
    let at = civil.and_then(|civil| jiff::tz::TimeZone::UTC.to_timestamp(civil).ok());
    at.ok_or_else(|| {
        "a time is written as in `2026-01-31T12:00:00Z`, `2026-01-31T12:00` or `2026-01-31` (in UTC)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_utc_unless_they_say_otherwise() {
        for text in
            ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00", "2026-01-31 12:00:00"]
        {
            assert_eq!(time(text).unwrap().to_string(), "2026-01-31T12:00:00Z", "{text}");
        }
        assert_eq!(time("2026-01-31").unwrap().to_string(), "2026-01-31T00:00:00Z");
        assert!(time("soon").unwrap_err().contains("2026-01-31"));
        assert!(time("12").is_err());
    }

    #[test]
    fn values_are_json_where_they_can_be() {
        assert_eq!(read("n=1").unwrap(), Condition::json("n", "1").unwrap());
        assert_eq!(read("n=\"1\"").unwrap(), Condition::text("n", "1"));
        assert_eq!(read("currency=EUR").unwrap(), Condition::text("currency", "EUR"));
        assert_eq!(read("a=b=c").unwrap(), Condition::text("a", "b=c"));
        assert_eq!(read("key=42").unwrap(), Condition::text("key", "42"));
        assert!(read("n").is_err() && read("=1").is_err());
    }
}
