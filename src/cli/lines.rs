//! From a line of input to an event.

use std::io::{BufRead, Read};

use serde::Deserialize;

use crate::event::{JsonObject, NewEvent};

/// What flags say for lines that leave it out.
#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    pub(super) key: Option<String>,
    pub(super) event_type: Option<String>,
    pub(super) partition: Option<u32>,
    pub(super) id: Option<String>,
    pub(super) metadata: Option<JsonObject>,
}

/// One line of `append`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    payload: JsonObject,
    key: Option<String>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    partition: Option<u32>,
    id: Option<String>,
    timestamp: Option<String>,
    metadata: Option<JsonObject>,
}

/// Reads one line; `raw` takes all of it as payload.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn event(line: &[u8], raw: bool, defaults: &Defaults) -> Result<NewEvent, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not valid UTF-8: {error}"))?;
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut event = if raw { from_raw(text)? } else { from_envelope(text)? };
    event.key = event.key.or_else(|| defaults.key.clone());
    event.event_type = event.event_type.or_else(|| defaults.event_type.clone());
    event.partition = event.partition.or(defaults.partition);
    event.id = event.id.or_else(|| defaults.id.clone());
    Ok(event).map(|event| match &defaults.metadata {
        Some(metadata) if event.metadata.entries().is_empty() => {
            NewEvent { metadata: metadata.clone(), ..event }
        }
        _ => event,
    })
}

fn from_envelope(text: &str) -> Result<NewEvent, String> {
    let envelope: Envelope = serde_json::from_str(text).map_err(|error| {
        let hint = if error.is_data() || !text.trim_start().starts_with('{') {
            "; a line is {\"payload\": {…}, \"key\"?, \"type\"?, …}, or use --raw"
        } else {
            ""
        };
        // The parser sees one line only: its number there says nothing.
        format!("{error}{hint}").replace(" at line 1 column ", " at column ")
    })?;
    if let Some(timestamp) = &envelope.timestamp
        && timestamp.parse::<jiff::Timestamp>().is_err()
    {
        return Err(format!("`timestamp` is {timestamp:?}, not a time such as 2026-01-31T12:00:00.000Z"));
    }
    Ok(NewEvent {
        id: envelope.id,
        partition: envelope.partition,
        key: envelope.key,
        event_type: envelope.event_type,
        timestamp: envelope.timestamp,
        metadata: envelope.metadata.unwrap_or_else(JsonObject::empty),
        payload: envelope.payload,
    })
}

/// The whole line is the payload; its fields `key`, `type` and `metadata` mean what they mean to
/// Rheo: the first two stay in the payload, the third leaves it.
fn from_raw(text: &str) -> Result<NewEvent, String> {
    let payload = JsonObject::parse(text).map_err(|error| error.to_string())?;
    let (key, event_type) = (payload.text_field("key"), payload.text_field("type"));
    let entries = payload.entries();
    let metadata = entries.iter().find(|(name, _)| name == "metadata");
    let metadata = metadata.and_then(|(_, raw)| JsonObject::from_raw((*raw).to_owned()).ok());
    let Some(metadata) = metadata else {
        return Ok(NewEvent { key, event_type, ..NewEvent::new(payload) });
    };
    let rest: Vec<String> = entries
        .iter()
        .filter(|(name, _)| name != "metadata")
        .map(|(name, raw)| format!("{}:{}", serde_json::Value::from(name.as_str()), raw.get()))
        .collect();
    let payload = JsonObject::parse(format!("{{{}}}", rest.join(","))).map_err(|error| error.to_string())?;
    Ok(NewEvent { key, event_type, metadata, ..NewEvent::new(payload) })
}

/// What reading a line gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Text(Vec<u8>),
    /// A line longer than the bound; it was skipped without being held.
    TooLong,
    /// The end of the input.
    End,
}

/// Reads the next line of at most `bytes_max` bytes.
///
/// # Errors
/// The input cannot be read.
pub(super) fn next_line(input: &mut impl BufRead, bytes_max: usize) -> std::io::Result<Line> {
    let mut line = Vec::new();
    // One more than the bound and the line's end, to see that it is exceeded.
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(2);
    let read = input.by_ref().take(limit).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(Line::End);
    }
    let ended = line.last() == Some(&b'\n');
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    if line.len() <= bytes_max {
        return Ok(Line::Text(line));
    }
    drop(line);
    if !ended {
        skip_line(input)?;
    }
    Ok(Line::TooLong)
}

/// Passes over the rest of a line in pieces.
fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                input.consume(end + 1);
                return Ok(());
            }
            None => {
                let length = buffer.len();
                input.consume(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str, raw: bool) -> Result<NewEvent, String> {
        event(line.as_bytes(), raw, &Defaults::default())
    }

    #[test]
    fn workload_of_an_envelope() {
        let line = r#"{"id":"wR3bU5pTQyO8Gk1nV0hJ2A","key":"customer-17","type":"order.placed","payload":{"order":"o-4711","amount":1299,"items":[{"sku":"a","n":1}]},"timestamp":"2026-01-02T03:04:05.678Z"}"#;
        crate::instructions::repeat(|| {
            assert_eq!(parse(line, false).unwrap().key.as_deref(), Some("customer-17"));
        });
    }

    #[test]
    fn an_envelope_gives_its_payload_byte_for_byte() {
        let event = parse(
            r#"{"key":"k", "payload": { "a" : 1.0e5, "b":"\u0041" } ,"type":"t","partition":3}"#,
            false,
        )
        .unwrap();
        assert_eq!(event.payload.as_str(), r#"{ "a" : 1.0e5, "b":"\u0041" }"#);
        assert_eq!(
            (event.key.as_deref(), event.event_type.as_deref(), event.partition),
            (Some("k"), Some("t"), Some(3))
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, expected) in [
            (r#"{"payload":{},"tpye":"x"}"#, "unknown field `tpye`"),
            (r#"{"key":"k"}"#, "missing field `payload`"),
            (r#"{"payload":[]}"#, "must be a JSON object, but is an array"),
            (r#"{"payload":{}"#, "EOF"),
            (r#"{"payload":{},"timestamp":"today"}"#, "not a time such as"),
            (r#"{"payload":{},"partition":-1}"#, "invalid value"),
            (r#"{"payload":{},"payload":{}}"#, "duplicate field"),
            ("[]", "--raw"),
            ("not json", "--raw"),
        ] {
            let message = parse(line, false).unwrap_err();
            assert!(message.contains(expected), "{line}: {message}");
        }
        let message = event(b"{\"payload\":{\"a\":\"\xff\"}}", false, &Defaults::default()).unwrap_err();
        assert!(message.contains("UTF-8"), "{message}");
    }

    #[test]
    fn raw_fields_mean_what_they_mean_to_rheo() {
        let event = parse(r#"{"key":42,"type":"tick","n": 1.0e5}"#, true).unwrap();
        assert_eq!(event.payload.as_str(), r#"{"key":42,"type":"tick","n": 1.0e5}"#);
        assert_eq!((event.key.as_deref(), event.event_type.as_deref()), (Some("42"), Some("tick")));
        let event = parse(r#"{"a": [1, 2],"metadata":{"producer":"p"},"b\n":"x"}"#, true).unwrap();
        assert_eq!(event.payload.as_str(), r#"{"a":[1, 2],"b\n":"x"}"#);
        assert_eq!(event.metadata.as_str(), r#"{"producer":"p"}"#);
        let event = parse(r#"{"metadata":7}"#, true).unwrap();
        assert_eq!(event.payload.as_str(), r#"{"metadata":7}"#);
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        assert_eq!(parse("\u{feff}{\"payload\":{}}", false).unwrap().payload.as_str(), "{}");
    }

    #[test]
    fn flags_fill_what_a_line_leaves_out() {
        let defaults = Defaults {
            key: Some("dk".into()),
            partition: Some(1),
            metadata: Some(JsonObject::parse(r#"{"m":1}"#).unwrap()),
            ..Defaults::default()
        };
        let filled = event(br#"{"payload":{},"key":"k"}"#, false, &defaults).unwrap();
        assert_eq!((filled.key.as_deref(), filled.partition), (Some("k"), Some(1)));
        assert_eq!(filled.metadata.as_str(), r#"{"m":1}"#);
        let own = event(br#"{"payload":{},"metadata":{"x":2}}"#, false, &defaults).unwrap();
        assert_eq!(own.metadata.as_str(), r#"{"x":2}"#);
    }

    #[test]
    fn a_line_beyond_the_bound_is_passed_over() {
        let mut input = std::io::Cursor::new(b"abc\nabcdefgh\nab\r\n\nabcd".to_vec());
        let mut next = || next_line(&mut input, 4).unwrap();
        assert_eq!(next(), Line::Text(b"abc".to_vec()));
        assert_eq!(next(), Line::TooLong);
        assert_eq!(next(), Line::Text(b"ab".to_vec()));
        assert_eq!(next(), Line::Text(Vec::new()));
        assert_eq!(next(), Line::Text(b"abcd".to_vec()));
        assert_eq!(next(), Line::End);
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..200), raw in any::<bool>()) {
            let _ = event(&line, raw, &Defaults::default());
        }

        #[test]
        fn lines_are_the_ones_that_the_standard_library_finds(
            text in "[ab\n]{0,60}", bound in 0usize..10,
        ) {
            let mut input = std::io::BufReader::with_capacity(3, text.as_bytes());
            let mut found = Vec::new();
            loop {
                match next_line(&mut input, bound).unwrap() {
                    Line::End => break,
                    line => found.push(line),
                }
            }
            let expected: Vec<Line> = text
                .lines()
                .map(|line| if line.len() <= bound { Line::Text(line.into()) } else { Line::TooLong })
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
