use std::sync::Mutex;

use super::*;

/// A store that counts how often it is asked.
#[derive(Default)]
struct Shelf {
    values: BTreeMap<String, StateValue>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl StateSource for Shelf {
    async fn get(&self, _: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>, String> {
        assert!(keys.len() <= READ_KEYS_MAX, "{} keys at a time", keys.len());
        self.asked.lock().unwrap().extend(keys.iter().cloned());
        Ok(keys.iter().map(|key| self.values.get(key).cloned()).collect())
    }

    async fn keys(&self, _: &Bucket, _: Option<u64>) -> Result<StateKeys, String> {
        Err("no answer".to_owned())
    }
}

fn limits() -> EffectLimits {
    EffectLimits {
        events_max: 2,
        event_bytes_sum_max: 1000,
        event_bytes_max: 500,
        state_keys_max: 3,
        state_bytes_max: 100,
    }
}

fn staging(values: &[(&str, u64, &str)]) -> (Staging, Arc<Shelf>) {
    let value = |version, text: &str| StateValue { version, bytes: text.as_bytes().to_vec() };
    let values =
        values.iter().map(|(key, version, text)| ((*key).to_owned(), value(*version, text))).collect();
    let shelf = Arc::new(Shelf { values, asked: Mutex::default() });
    let grants = Grants { streams: vec![crate::event::Name::new("audit").unwrap()], ..Grants::default() };
    let mut staging = Staging::new(Arc::new(grants), limits());
    staging.begin("p", Some(Arc::clone(&shelf) as Arc<dyn StateSource>));
    (staging, shelf)
}

fn event(payload: &str) -> NewEvent {
    NewEvent::new(JsonObject::parse(payload).unwrap())
}

async fn get(staging: &mut Staging, bucket: &Bucket, key: &str) -> Option<Vec<u8>> {
    staging.get(bucket, vec![key.to_owned()]).await.unwrap().pop().flatten()
}

#[tokio::test]
async fn a_call_sees_its_own_writes_and_asks_once_for_each_key() {
    let (mut staging, shelf) = staging(&[("a", 7, "1")]);
    let bucket = staging.bucket("default").unwrap();
    assert_eq!(get(&mut staging, &bucket, "a").await.as_deref(), Some(&b"1"[..]));
    assert_eq!(get(&mut staging, &bucket, "none").await, None);
    staging.set(&bucket, "a".to_owned(), Some(b"2".to_vec())).unwrap();
    assert_eq!(get(&mut staging, &bucket, "a").await.as_deref(), Some(&b"2"[..]));
    staging.set(&bucket, "a".to_owned(), None).unwrap();
    assert_eq!(get(&mut staging, &bucket, "a").await, None);
    staging.set(&bucket, "blind".to_owned(), Some(vec![])).unwrap();
    assert_eq!(get(&mut staging, &bucket, "blind").await, Some(vec![]));
    assert_eq!(*shelf.asked.lock().unwrap(), ["a", "none"]);

    let effects = staging.take();
    let reads: Vec<_> = effects.reads.iter().map(|r| (r.key.as_str(), r.version)).collect();
    assert_eq!(reads, [("a", 7), ("none", 0)]);
    let writes: Vec<_> = effects.writes.iter().map(|w| (w.key.as_str(), w.value.clone())).collect();
    assert_eq!(writes, [("a", None), ("blind", Some(vec![]))]);
    assert!(staging.take().is_empty());
}

#[tokio::test]
async fn a_counter_counts_and_refuses_what_is_no_number() {
    let (mut staging, _) = staging(&[("n", 1, "41"), ("text", 1, "x"), ("full", 1, "18446744073709551615")]);
    let bucket = staging.bucket("default").unwrap();
    assert_eq!(staging.increment(&bucket, "n".to_owned(), 1).await, Ok(42));
    assert_eq!(staging.increment(&bucket, "n".to_owned(), 1).await, Ok(43));
    assert!(matches!(staging.increment(&bucket, "text".to_owned(), 1).await, Err(Refused::Invalid(_))));
    assert!(matches!(staging.increment(&bucket, "full".to_owned(), 1).await, Err(Refused::Invalid(_))));
    assert_eq!(staging.take().writes.len(), 1);
}

#[tokio::test]
async fn limits_and_grants_are_named_and_what_was_staged_before_stays() {
    let (mut staging, _) = staging(&[]);
    let denied = staging.append("other", event("{}"));
    assert!(
        matches!(denied, Err(Refused::Denied(text)) if text.contains("`other`") && text.contains("allow_streams"))
    );
    assert!(matches!(
        staging.append("audit", event(&format!("{{\"a\":\"{}\"}}", "x".repeat(500)))),
        Err(Refused::Invalid(_))
    ));
    staging.append("audit", event("{}")).unwrap();
    staging.append("audit", event("{}")).unwrap();
    let full = staging.append("audit", event("{}"));
    assert!(matches!(full, Err(Refused::Limit(text)) if text.contains("max_outbox_events")));

    let bucket = staging.bucket("default").unwrap();
    for key in ["a", "b", "c"] {
        staging.set(&bucket, key.to_owned(), Some(b"x".to_vec())).unwrap();
    }
    let many = staging.set(&bucket, "d".to_owned(), None);
    assert!(matches!(many, Err(Refused::Limit(text)) if text.contains("max_state_keys")));
    let large = staging.set(&bucket, "a".to_owned(), Some(vec![0; 100]));
    assert!(matches!(large, Err(Refused::Limit(text)) if text.contains("max_state")));
    for key in [String::new(), "k".repeat(KEY_BYTES_MAX + 1)] {
        assert!(matches!(staging.set(&bucket, key, None), Err(Refused::Invalid(_))));
    }
    let effects = staging.take();
    assert_eq!((effects.appends.len(), effects.writes.len()), (2, 3));
}

#[tokio::test]
async fn many_keys_are_read_in_parts_and_only_as_far_as_they_may() {
    let keys: Vec<String> = (0..100).map(|n| format!("k{n:02}")).collect();
    let values: Vec<_> = keys.iter().map(|key| (key.as_str(), 1, "value")).collect();
    let (mut staging, shelf) = staging(&values);
    let bucket = staging.bucket("default").unwrap();
    staging.limits = EffectLimits { state_keys_max: 100, state_bytes_max: 800, ..limits() };
    let read = staging.get(&bucket, keys.clone()).await.unwrap();
    assert_eq!(read, vec![Some(b"value".to_vec()); 100]);
    assert_eq!(*shelf.asked.lock().unwrap(), keys);

    staging.take();
    staging.begin("p", Some(Arc::clone(&shelf) as Arc<dyn StateSource>));
    staging.limits.state_bytes_max = 80;
    let large = staging.get(&bucket, keys).await;
    assert!(matches!(large, Err(Refused::Limit(text)) if text.contains("max_state")));
    assert_eq!(shelf.asked.lock().unwrap().len(), 100 + READ_KEYS_MAX);
}

#[tokio::test]
async fn outside_of_a_call_there_is_no_state() {
    let (mut staging, _) = staging(&[]);
    let bucket = staging.bucket("default").unwrap();
    staging.take();
    assert!(matches!(staging.get(&bucket, vec!["a".to_owned()]).await, Err(Refused::Denied(_))));
}

#[test]
fn what_a_guest_stages_is_checked_like_any_event() {
    let event = |payload: &[u8]| GuestEvent {
        event_type: None,
        key: None,
        partition: None,
        metadata: vec![("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())],
        payload: payload.to_vec(),
    };
    assert_eq!(event(b"{ }").into_new().unwrap().metadata.as_str(), r#"{"a":"2"}"#);
    for wrong in [&b"\xff"[..], b"[]", b"", b"{"] {
        assert!(matches!(event(wrong).into_new(), Err(Refused::Invalid(_))));
    }
}
