use proptest::prelude::*;

use super::*;

fn object(text: &str) -> JsonObject {
    JsonObject::parse(text).unwrap()
}

fn event(timestamp: &str, metadata: &str) -> Event {
    Event {
        id: "e".into(),
        stream: Name::new("s").unwrap(),
        partition: 0,
        sequence: 1,
        timestamp: timestamp.into(),
        key: None,
        event_type: None,
        metadata: object(metadata),
        payload: object("{}"),
    }
}

#[test]
fn names_that_we_create_are_portable() {
    assert!(Name::new("Orders_1.eu-west").is_ok());
    assert_eq!(Name::new(""), Err(NameError::Empty));
    assert!(matches!(Name::new("a:b"), Err(NameError::Character { character: ':', .. })));
    assert!(matches!(Name::new("ä"), Err(NameError::Character { .. })));
    assert!(Name::new(&"n".repeat(128)).is_ok());
    assert!(matches!(Name::new(&"n".repeat(129)), Err(NameError::TooLong(_))));
    assert!(!Name::existing("a:*").unwrap().is_portable());
}

#[test]
fn an_object_keeps_its_text_and_refuses_other_values() {
    let text = "{ \"a\" : 1.0e5,\t\"a\":\"\\u0041\" }";
    assert_eq!(object(text).as_str(), text);
    assert_eq!(object(&format!(" \n{text}\n")).as_str(), text);
    for (text, found) in [
        ("[]", "an array"),
        ("\"x\"", "a string"),
        ("null", "null"),
        ("1", "a number"),
        ("true", "a boolean"),
    ] {
        assert_eq!(
            JsonObject::parse(text).unwrap_err().to_string(),
            format!("must be a JSON object, but is {found}")
        );
    }
    assert!(matches!(JsonObject::parse("{"), Err(JsonError::Syntax(_))));
    assert!(matches!(JsonObject::parse("{} {}"), Err(JsonError::Syntax(_))));
}

#[test]
fn deep_nesting_neither_overflows_nor_changes() {
    let text = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = object(&text);
    assert_eq!(deep.as_str(), text);
    assert_eq!(deep.text_field("a").map(|t| t.len()), Some(200_000));
}

#[test]
fn metadata_reads_as_text() {
    let pairs = event("", r#"{"s":"a\nb","n":1.50,"o":{"x": 1},"z":null,"b":true}"#).metadata_pairs();
    let expected = [("s", "a\nb"), ("n", "1.50"), ("o", "{\"x\": 1}"), ("b", "true")];
    assert_eq!(pairs, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
}

#[test]
fn timestamps_are_instants_where_they_are() {
    assert_eq!(event("2020-01-15T12:00:00.000Z", "{}").timestamp_ms(), Some(1_579_089_600_000));
    assert_eq!(event("2020-01-15T13:00:00+01:00", "{}").timestamp_ms(), Some(1_579_089_600_000));
    assert_eq!(event("yesterday", "{}").timestamp_ms(), None);
    assert_eq!(event("2020-01-15T12:00:00", "{}").timestamp_ms(), None);
}

#[test]
fn an_event_above_the_limit_is_refused() {
    let mut new = NewEvent::new(object(r#"{"a":"0123456789"}"#));
    assert_eq!(new.check(new.bytes()), Ok(()));
    assert!(matches!(new.check(new.bytes() - 1), Err(InvalidEvent::TooLarge { .. })));
    new.id = Some(String::new());
    assert_eq!(new.check(1000), Err(InvalidEvent::EmptyId));
}

proptest! {
    #[test]
    fn entries_agree_with_serde_json(map in proptest::collection::btree_map(".*", any::<i64>(), 0..8)) {
        let text = serde_json::to_string(&map).unwrap();
        let entries = object(&text);
        let read: std::collections::BTreeMap<String, i64> =
            entries.entries().into_iter().map(|(k, v)| (k, v.get().parse().unwrap())).collect();
        prop_assert_eq!(read, map);
    }

    #[test]
    fn parse_never_panics(text in ".*") {
        let _ = JsonObject::parse(text).map(|o| o.entries().len());
    }
}
