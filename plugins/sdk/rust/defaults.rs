//! An event and a delivery to begin with, for unit tests.

use crate::{Delivery, Event};

/// An event with an empty object as its payload, and nothing optional.
impl Default for Event {
    fn default() -> Self {
        Self {
            id: "event-1".to_owned(),
            stream_name: "test".to_owned(),
            partition: 0,
            sequence: 1,
            timestamp: "1970-01-01T00:00:00.000Z".to_owned(),
            timestamp_ms: Some(0),
            key: None,
            event_type: None,
            metadata: Vec::new(),
            payload: b"{}".to_vec(),
        }
    }
}

/// The first of five attempts.
impl Default for Delivery {
    fn default() -> Self {
        Self {
            pipeline: "test".to_owned(),
            group: "test".to_owned(),
            attempt: 1,
            max_attempts: 5,
            timeout_ms: 30_000,
        }
    }
}
