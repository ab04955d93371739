//! What a call stages: with an ack it is handed over as a whole, and with anything else not at all.

use std::sync::Arc;
use std::time::Duration;

use wasmill::event::Name;
use wasmill::outcome::{Effects, FaultKind, Outcome};
use wasmill::plugin::{Plugin, PluginSpec};
use wasmill::state::{Bucket, StateRead, StateWrite};

use crate::support::{Memory, ask, ask_with, load, rejection, retry};

fn grant_audit(spec: &mut PluginSpec) {
    spec.grants.streams = vec![Name::new("audit").unwrap()];
    spec.limits.timeout = Duration::from_millis(500);
}

fn effects(outcome: Outcome) -> Effects {
    match outcome {
        Outcome::Ack(effects) => effects,
        other => panic!("expected an ack, got {other:?}"),
    }
}

/// Stages an event and a count, and gives what was handed over.
async fn staged(plugin: &Plugin, memory: &Arc<Memory>) -> Effects {
    effects(ask_with(plugin, "stage", memory).await.unwrap())
}

#[tokio::test]
async fn an_ack_hands_over_what_was_staged_and_read() {
    let plugin = load("hostile", grant_audit).await;
    let memory = Arc::new(Memory::default());
    memory.put("default", "count", 7, "41");
    let effects = staged(&plugin, &memory).await;
    let (bucket, key) = (Bucket::own("p", "default").unwrap(), "count".to_owned());
    assert_eq!(effects.reads, [StateRead { bucket: bucket.clone(), key: key.clone(), version: 7 }]);
    assert_eq!(effects.writes, [StateWrite { bucket, key, value: Some(b"42".to_vec()) }]);
    let [appended] = effects.appends.try_into().unwrap();
    assert_eq!(appended.stream.as_str(), "audit");
    assert_eq!(appended.event.key.as_deref(), Some("e-1"));
    assert_eq!(appended.event.payload.as_str(), r#"{"count":42}"#);
}

/// The next call begins with nothing, whatever the one before left, on a fresh instance or not.
#[tokio::test]
async fn what_does_not_end_in_an_ack_leaves_nothing() {
    let plugin = load("hostile", grant_audit).await;
    let memory = Arc::new(Memory::default());
    assert_eq!(rejection(ask_with(&plugin, "stage-then-reject", &memory).await), "never");
    assert_eq!(staged(&plugin, &memory).await.appends.len(), 1);
    for (behaviour, kind) in [("stage-then-trap", FaultKind::Trap), ("stage-then-loop", FaultKind::Timeout)] {
        assert_eq!(ask_with(&plugin, behaviour, &memory).await.unwrap_err().kind, kind);
        let effects = staged(&plugin, &memory).await;
        assert_eq!((effects.appends.len(), effects.writes.len()), (1, 1), "{behaviour}");
        assert_eq!(effects.writes[0].value.as_deref(), Some(&b"1"[..]), "{behaviour}");
    }
    assert_eq!(effects(ask(&plugin, "ok").await.unwrap()), Effects::default());
}

#[tokio::test]
async fn a_huge_outbox_ends_at_its_limit() {
    let plugin = load("hostile", |spec| {
        grant_audit(spec);
        spec.limits.timeout = Duration::from_secs(30);
        spec.limits.effects.events_max = 500;
        spec.limits.effects.event_bytes_sum_max = 1 << 20;
    })
    .await;
    assert_eq!(
        rejection(ask(&plugin, "huge-outbox").await),
        r#"500 times, then Error::Limit("a call appends at most 500 events (`max_outbox_events` raises it)")"#
    );
    let text = rejection(ask(&plugin, "big-events").await);
    assert!(text.starts_with("10 times, then "), "{text}");
    assert!(text.contains("have at most 1048576 bytes together (`max_outbox` raises it)"), "{text}");
}

#[tokio::test]
async fn an_event_that_cannot_be_stored_is_refused_at_once() {
    let plugin = load("hostile", |spec| {
        grant_audit(spec);
        spec.limits.effects.event_bytes_max = 10_000;
    })
    .await;
    let text = rejection(ask(&plugin, "big-events").await);
    assert!(text.starts_with("0 times, then ") && text.contains("10000"), "{text}");
    let text = rejection(ask(&plugin, "no-json").await);
    assert!(text.starts_with("the payload: "), "{text}");
}

#[tokio::test]
async fn a_million_keys_end_at_their_limit() {
    let plugin = load("hostile", |spec| {
        spec.limits.effects.state_keys_max = 300;
        spec.limits.effects.state_bytes_max = 3 << 20;
    })
    .await;
    let memory = Arc::new(Memory::default());
    let text = rejection(ask_with(&plugin, "million-keys", &memory).await);
    assert!(text.starts_with("300 times, then "), "{text}");
    assert!(
        text.contains("a call touches at most 300 keys of its state (`max_state_keys` raises it)"),
        "{text}"
    );
    let text = rejection(ask_with(&plugin, "big-state", &memory).await);
    assert!(text.starts_with("2 times, then "), "{text}");
    assert!(
        text.contains("reads and writes at most 3145728 bytes of state (`max_state` raises it)"),
        "{text}"
    );
}

#[tokio::test]
async fn a_stream_that_is_not_granted_is_named() {
    let plugin = load("hostile", grant_audit).await;
    assert_eq!(
        retry(ask(&plugin, "other-stream").await),
        "appending to the stream `payroll` is not granted to this plugin: add it to `allow_streams`"
    );
}
