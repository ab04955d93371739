//! The workloads of what is public.

use std::time::Duration;

use super::repeat;
use crate::event::{Event, JsonObject, Name};
use crate::outcome::{Effects, OnFault, Outcome, Verdict, decide};
use crate::retry::RetryPolicy;
use crate::routing::partition_for_key;

#[test]
fn decide_ack() {
    let policy = RetryPolicy::default();
    repeat(|| {
        let verdict = decide(Ok(Outcome::Ack(Effects::default())), 1, &policy, OnFault::Retry, 0.5);
        assert!(matches!(verdict, Verdict::Ack(_)));
    });
}

#[test]
fn decide_retry() {
    let policy = RetryPolicy::default();
    repeat(|| {
        let outcome =
            Outcome::Retry { reason: "the upstream service did not answer".to_owned(), delay: None };
        let verdict = decide(Ok(outcome), 3, &policy, OnFault::Retry, 0.5);
        assert!(matches!(verdict, Verdict::Retry { delay, .. } if delay == Duration::from_millis(800)));
    });
}

/// What a handler is given that is not there as it is: the metadata as pairs, and the instant.
#[test]
fn event_to_handler() {
    let metadata =
        r#"{"causation_id":"eHBzBfHwUWDCOqjZYm2PMw","correlation_id":"eHBzBfHwUWDCOqjZYm2PMw","hops":1}"#;
    let event = Event {
        id: "e1".to_owned(),
        stream: Name::new("orders").unwrap(),
        partition: 0,
        sequence: 4711,
        timestamp: "2026-01-02T03:04:05.678Z".to_owned(),
        key: None,
        event_type: None,
        metadata: JsonObject::parse(metadata).unwrap(),
        payload: JsonObject::empty(),
    };
    repeat(|| {
        assert_eq!(event.metadata_pairs().len(), 3);
        assert_eq!(event.timestamp_ms(), Some(1_767_323_045_678));
    });
}

#[test]
fn partition_of_key() {
    repeat(|| assert_eq!(partition_for_key(Some("EUR-EURIBOR-6M"), 64), 61));
}
