//! Fields of an entry ↔ an event, and rows of the dead-letter stream → dead letters.

use super::reply::{Entry, lossy, parse_id};
use crate::backend::{DeadEvent, DeadLetter};
use crate::event::{Event, JsonObject, NUMBER_MAX, Name};
use crate::outcome::{Cause, FailureKind};

/// A field's name and its value.
pub(super) type Field<'f> = (&'f [u8], &'f [u8]);

/// Fields that are kept, as those that are only looked at.
pub(super) fn borrowed(fields: &[(Vec<u8>, Vec<u8>)]) -> impl Iterator<Item = Field<'_>> + Clone {
    fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
}

/// The event that an entry holds.
///
/// Metadata may be absent; the partition is that of the stream the entry stands in.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn decode<'f>(
    stream: &Name,
    partition: u32,
    fields: impl IntoIterator<Item = Field<'f>>,
) -> Result<Event, String> {
    let [mut id, mut timestamp, mut key, mut event_type, mut metadata, mut payload] = [const { None }; 6];
    let mut sequence = None;
    for (name, value) in fields {
        let slot = match name {
            b"id" => &mut id,
            b"sequence" => &mut sequence,
            b"timestamp" => &mut timestamp,
            b"key" => &mut key,
            b"type" => &mut event_type,
            b"metadata" => &mut metadata,
            b"payload" => &mut payload,
            _ => continue,
        };
        // Of a field that occurs twice the first one counts.
        if slot.is_none() {
            let text = std::str::from_utf8(value)
                .map_err(|_| format!("the field `{}` is not UTF-8", String::from_utf8_lossy(name)))?;
            *slot = Some(text);
        }
    }
    let need =
        |name: &str, value: Option<&'f str>| value.ok_or_else(|| format!("the field `{name}` is missing"));
    let object = |name: &str, text: &str| {
        JsonObject::parse(text).map_err(|error| format!("the field `{name}`: {error}"))
    };
    let sequence = need("sequence", sequence)?;
    Ok(Event {
        id: need("id", id)?.to_owned(),
        stream: stream.clone(),
        partition,
        sequence: parse_sequence(sequence)
            .ok_or_else(|| format!("`{}` is no sequence", sequence.escape_debug()))?,
        timestamp: need("timestamp", timestamp)?.to_owned(),
        key: key.map(str::to_owned),
        event_type: event_type.map(str::to_owned),
        metadata: metadata.map_or_else(|| Ok(JsonObject::empty()), |text| object("metadata", text))?,
        payload: object("payload", need("payload", payload)?)?,
    })
}

/// The sequence of an entry that is no event, where it has a readable one.
pub(super) fn raw_sequence<'f>(fields: impl IntoIterator<Item = Field<'f>>) -> Option<u64> {
    parse_sequence(raw_field(fields, "sequence")?)
}

/// The id of an entry that is no event, where it has a readable one.
pub(super) fn raw_id<'f>(fields: impl IntoIterator<Item = Field<'f>>) -> Option<String> {
    raw_field(fields, "id").filter(|id| !id.is_empty()).map(str::to_owned)
}

/// The first field of this name, where it is readable.
pub(super) fn raw_field<'f>(fields: impl IntoIterator<Item = Field<'f>>, name: &str) -> Option<&'f str> {
    let (_, value) = fields.into_iter().find(|(field, _)| *field == name.as_bytes())?;
    std::str::from_utf8(value).ok()
}

/// A sequence: 1 to 2^53 − 1, decimal.
pub(super) fn parse_sequence(text: &str) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|sequence| (1..=NUMBER_MAX).contains(sequence))
}

/// The dead letter that a row holds: fields of the event first, then `reason` and what follows it.
/// The event's own fields may have the same names, so the last `reason` counts.
pub(super) fn decode_dead(stream: &Name, row: Entry) -> DeadLetter {
    let mut fields = row.fields;
    let at = end_of_event(&fields);
    let ours: Vec<(String, String)> =
        fields.split_off(at).into_iter().map(|(name, value)| (lossy(name), lossy(value))).collect();
    let get = |name: &str| ours.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
    let partition = raw_field(borrowed(&fields), "partition").and_then(|text| text.parse().ok());
    let event = match partition.map(|partition| decode(stream, partition, borrowed(&fields))) {
        Some(Ok(event)) => DeadEvent::Event(Box::new(event)),
        _ => DeadEvent::Raw(fields.into_iter().map(|(name, value)| (lossy(name), lossy(value))).collect()),
    };
    DeadLetter {
        row: row.id,
        event,
        reason: get("reason").unwrap_or_default(),
        cause: get("cause").and_then(|text| Cause::parse(&text)),
        failure: get("failure").and_then(|text| FailureKind::parse(&text)),
        attempts: get("attempts").and_then(|text| text.parse().ok()),
        consumer: get("consumer"),
        plugin: get("plugin"),
        dead_lettered_at: get("dead_lettered_at"),
    }
}

/// Where the fields of the event end in a row, and ours begin.
fn end_of_event(fields: &[(Vec<u8>, Vec<u8>)]) -> usize {
    fields.iter().rposition(|(name, _)| name == b"reason").unwrap_or(fields.len())
}

/// Partition and entry id of the event in a row, where the row says them.
pub(super) fn dead_receipt(row: &Entry) -> Option<(u32, String)> {
    let (partition, id) = raw_field(borrowed(&row.fields[end_of_event(&row.fields)..]), "receipt")
        .and_then(|text| text.split_once('/').map(|(p, id)| (p.to_owned(), id.to_owned())))?;
    let (ms, low) = parse_id(&id)?;
    Some((partition.parse().ok()?, format!("{ms}-{low}")))
}

/// The fields that `lua/lib/copy.lua` put into one text: for each name and value its length, a colon,
/// its bytes. `None` for a text of another form.
pub(super) fn decode_copy(mut copy: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut texts = Vec::new();
    while !copy.is_empty() {
        let colon = copy.iter().position(|&byte| byte == b':')?;
        let length: usize = std::str::from_utf8(&copy[..colon]).ok()?.parse().ok()?;
        let rest = &copy[colon + 1..];
        texts.push(rest.get(..length)?.to_vec());
        copy = &rest[length..];
    }
    let mut texts = texts.into_iter();
    let mut fields = Vec::with_capacity(texts.len() / 2);
    while let Some(name) = texts.next() {
        fields.push((name, texts.next()?));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    fn stream() -> Name {
        Name::new("orders").unwrap()
    }

    const WHOLE: [(&str, &str); 8] = [
        ("id", "e1"),
        ("sequence", "7"),
        ("partition", "2"),
        ("timestamp", "2020-01-15T12:00:00.000Z"),
        ("key", "k"),
        ("type", "t"),
        ("metadata", "{\"a\": 1}"),
        ("payload", "{ \"b\":1.0e5 }"),
    ];

    #[test]
    fn an_entry_is_an_event_byte_for_byte() {
        let event = decode(&stream(), 2, borrowed(&fields(&WHOLE))).unwrap();
        assert_eq!((event.id.as_str(), event.sequence, event.partition), ("e1", 7, 2));
        assert_eq!((event.key.as_deref(), event.event_type.as_deref()), (Some("k"), Some("t")));
        assert_eq!(event.payload.as_str(), "{ \"b\":1.0e5 }");
        assert_eq!(event.metadata.as_str(), "{\"a\": 1}");
    }

    /// An event is read of its fields, which are made here too.
    #[test]
    fn workload_of_an_entry() {
        let stream = stream();
        crate::instructions::repeat(|| {
            assert_eq!(decode(&stream, 2, borrowed(&fields(&WHOLE))).unwrap().sequence, 7);
        });
    }

    #[test]
    fn what_is_no_event_says_why() {
        for (name, value, expected) in [
            ("payload", "[]", "must be a JSON object"),
            ("payload", "{", "not valid JSON"),
            ("metadata", "1", "must be a JSON object"),
            ("sequence", "-1", "no sequence"),
            ("sequence", "0", "no sequence"),
            ("sequence", "9007199254740992", "no sequence"),
        ] {
            let mut pairs = WHOLE.to_vec();
            pairs.iter_mut().find(|pair| pair.0 == name).unwrap().1 = value;
            let message = decode(&stream(), 2, borrowed(&fields(&pairs))).unwrap_err();
            assert!(message.contains(expected), "{name}={value}: {message}");
        }
        for missing in ["id", "sequence", "timestamp", "payload"] {
            let pairs: Vec<_> = WHOLE.into_iter().filter(|pair| pair.0 != missing).collect();
            let message = decode(&stream(), 2, borrowed(&fields(&pairs))).unwrap_err();
            assert_eq!(message, format!("the field `{missing}` is missing"));
        }
        let broken = vec![(b"id".to_vec(), vec![0xff])];
        assert_eq!(decode(&stream(), 0, borrowed(&broken)).unwrap_err(), "the field `id` is not UTF-8");
    }

    #[test]
    fn a_row_of_rheo_and_one_of_ours() {
        let mut pairs = WHOLE.to_vec();
        pairs.extend([("reason", ":boom"), ("dead_lettered_at", "2020-01-15T12:00:09.000Z")]);
        let letter = decode_dead(&stream(), Entry { id: "1-0".into(), fields: fields(&pairs) });
        assert_eq!((letter.reason.as_str(), letter.cause), (":boom", None));
        assert!(matches!(&letter.event, DeadEvent::Event(event) if event.sequence == 7));

        pairs.extend([
            ("cause", "attempts-exhausted"),
            ("failure", "trap"),
            ("attempts", "5"),
            ("consumer", "c"),
        ]);
        let letter = decode_dead(&stream(), Entry { id: "1-0".into(), fields: fields(&pairs) });
        assert_eq!(letter.cause, Some(Cause::AttemptsExhausted));
        assert_eq!(letter.failure, Some(FailureKind::Trap));
        assert_eq!((letter.attempts, letter.consumer.as_deref(), letter.plugin), (Some(5), Some("c"), None));
    }

    #[test]
    fn a_copy_is_read_back_byte_for_byte() {
        let copy = b"2:id2:e17:payload4:{:\xff\n0:0:";
        let expected = vec![
            (b"id".to_vec(), b"e1".to_vec()),
            (b"payload".to_vec(), b"{:\xff\n".to_vec()),
            (Vec::new(), Vec::new()),
        ];
        assert_eq!(decode_copy(copy), Some(expected));
        assert_eq!(decode_copy(b""), Some(Vec::new()));
        for wrong in ["x", "2:a", "2:ab", "-1:a", "1:a1:b1:c", "99999999999999999999:a1:b", ":a1:b"] {
            assert_eq!(decode_copy(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_row_names_the_entry_of_its_event() {
        let row = |receipt: &str| {
            let pairs = [("id", "e1"), ("receipt", "9/9-9"), ("reason", "r"), ("receipt", receipt)];
            Entry { id: "1-0".into(), fields: fields(&pairs) }
        };
        assert_eq!(dead_receipt(&row("2/17-5")), Some((2, "17-5".to_owned())));
        for wrong in ["", "17-5", "2/", "2/x", "x/17-5"] {
            assert_eq!(dead_receipt(&row(wrong)), None, "{wrong}");
        }
        let rheo = fields(&[("id", "e1"), ("receipt", "9/9-9"), ("reason", ":boom")]);
        assert_eq!(dead_receipt(&Entry { id: "1-0".into(), fields: rheo }), None);
    }

    #[test]
    fn a_row_that_held_no_event_keeps_its_fields() {
        let pairs = [("foo", "1"), ("reason", "mine"), ("reason", "no event"), ("cause", "undecodable")];
        let letter = decode_dead(&stream(), Entry { id: "1-0".into(), fields: fields(&pairs) });
        assert_eq!(letter.reason, "no event");
        let kept = vec![("foo".to_owned(), "1".to_owned()), ("reason".to_owned(), "mine".to_owned())];
        assert_eq!(letter.event, DeadEvent::Raw(kept));
    }
}
