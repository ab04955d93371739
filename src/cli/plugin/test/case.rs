//! One line of an events file: an event, how it is delivered, and what is expected.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::expect::{Expectation, Verdict};
use crate::event::{Event, JsonObject, NUMBER_MAX, Name};

/// The stream of events that do not name theirs.
const STREAM: &str = "test";

/// An event that is to be tried.
pub(super) struct Case {
    pub(super) event: Event,
    pub(super) attempt: Option<u32>,
    /// What the line says of itself.
    pub(super) note: Option<String>,
    pub(super) setting: Setting,
    /// Bucket → key → text, as the handler names them.
    pub(super) state: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) expectation: Expectation,
}

/// What of the plugin differs for a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) config: BTreeMap<String, String>,
    pub(super) streams: Vec<Name>,
}

/// The line as it is written: what `append` takes, and more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    payload: JsonObject,
    id: Option<String>,
    stream: Option<String>,
    partition: Option<u32>,
    sequence: Option<u64>,
    timestamp: Option<String>,
    key: Option<String>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    metadata: Option<JsonObject>,
    attempt: Option<u32>,
    #[serde(default)]
    config: BTreeMap<String, Value>,
    #[serde(default)]
    allow_streams: Vec<String>,
    #[serde(default)]
    state: BTreeMap<String, BTreeMap<String, String>>,
    note: Option<String>,
    expect: Option<Verdict>,
    reason: Option<String>,
    delay_ms: Option<u64>,
    logs: Option<Vec<String>>,
    appends: Option<Vec<Value>>,
    writes: Option<Vec<Value>>,
}

impl Case {
    /// Reads one line; `number` counts from 1.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn read(line: &[u8], number: u64) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|error| format!("not valid UTF-8: {error}"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let written: Written = serde_json::from_str(text).map_err(|error| {
            let hint = if error.is_data() || !text.trim_start().starts_with('{') {
                "; a line is {\"payload\": {…}, \"key\"?, \"type\"?, \"expect\"?, …}"
            } else {
                ""
            };
            format!("{error}{hint}").replace(" at line 1 column ", " at column ")
        })?;
        let sequence = written.sequence.unwrap_or(number);
        if !(1..=NUMBER_MAX).contains(&sequence) {
            return Err(format!("`sequence` is {sequence}: it can be 1 to {NUMBER_MAX}"));
        }
        if written.attempt == Some(0) {
            return Err("`attempt` is 0: the first one is 1".to_owned());
        }
        let name = |text: &str| Name::existing(text).map_err(|error| error.to_string());
        let config = written.config.into_iter().map(|(key, value)| (key, as_setting(value))).collect();
        let streams = written.allow_streams.iter().map(|text| name(text)).collect::<Result<_, _>>()?;
        Ok(Self {
            event: Event {
                id: written.id.unwrap_or_else(|| format!("event-{number}")),
                stream: name(written.stream.as_deref().unwrap_or(STREAM))?,
                partition: written.partition.unwrap_or(0),
                sequence,
                timestamp: written.timestamp.unwrap_or_else(now),
                key: written.key,
                event_type: written.event_type,
                metadata: written.metadata.unwrap_or_else(JsonObject::empty),
                payload: written.payload,
            },
            attempt: written.attempt,
            note: written.note,
            setting: Setting { config, streams },
            state: written.state,
            expectation: Expectation {
                verdict: written.expect,
                reason: written.reason,
                delay_ms: written.delay_ms,
                logs: written.logs.unwrap_or_default(),
                appends: written.appends,
                writes: written.writes,
            },
        })
    }
}

/// As a pipeline file gives settings to a plugin: text as it is, anything else as its JSON text.
fn as_setting(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Result<Case, String> {
        Case::read(line.as_bytes(), 7)
    }

    #[test]
    fn what_a_line_leaves_out_is_filled_in() {
        let case = read(r#"{"payload":{ "a" : 1.0}}"#).unwrap();
        assert_eq!(case.event.payload.as_str(), r#"{ "a" : 1.0}"#);
        assert_eq!((case.event.id.as_str(), case.event.sequence), ("event-7", 7));
        assert!(case.event.timestamp_ms().is_some(), "{}", case.event.timestamp);
        assert_eq!((case.attempt, case.setting), (None, Setting::default()));
    }

    #[test]
    fn settings_are_texts() {
        let case = read(r#"{"payload":{},"config":{"a":"1","b":1,"c":[true]}}"#).unwrap();
        let expected = [("a", "1"), ("b", "1"), ("c", "[true]")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(case.setting.config, expected.into());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            (r#"{"payload":{},"expects":"ack"}"#, "unknown field `expects`"),
            (r#"{"payload":{},"expect":"acked"}"#, "unknown variant `acked`"),
            (r#"{"key":"k"}"#, "missing field `payload`"),
            (r#"{"payload":{},"sequence":0}"#, "`sequence` is 0"),
            (r#"{"payload":{},"sequence":9007199254740992}"#, "it can be 1 to 9007199254740991"),
            (r#"{"payload":{},"attempt":0}"#, "`attempt` is 0"),
            (r#"{"payload":{},"stream":""}"#, "a name cannot be empty"),
            ("7", "a line is {\"payload\""),
        ] {
            let message = read(line).map(|_| ()).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Case::read(&line, 1);
        }
    }
}
