//! Events that a handler appends: all of them with the acknowledgement of its own event, in the same
//! atomic step, or none. The operator grants the streams (`allow_streams`).
//!
//! ```no_run
//! use wasmill_handler::{Delivery, Event, Result, outbox};
//!
//! fn handle(event: Event, _delivery: Delivery) -> Result {
//!     outbox::Event::new(r#"{"seen":true}"#)
//!         .event_type("order-seen")
//!         .key(event.id)
//!         .metadata("reason", "audit")
//!         .append_to("audit")?;
//!     Ok(())
//! }
//! ```

use crate::bindings::wasmill::handler::outbox as raw;
use crate::{Failure, HOSTED};

pub use raw::Error;

/// An event to append. The host adds its id, its time, and where it comes from.
#[derive(Clone, Debug)]
#[must_use = "it is appended by `append_to`"]
pub struct Event(raw::NewEvent);

impl Event {
    /// An event with this payload: the text of a JSON object, which is kept byte for byte.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        let payload = payload.into();
        let metadata = Vec::new();
        Self(raw::NewEvent { event_type: None, key: None, partition: None, metadata, payload })
    }

    /// An event whose payload is `payload` as JSON: something that becomes an object.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    #[cfg(feature = "json")]
    pub fn json(payload: &impl serde::Serialize) -> serde_json::Result<Self> {
        serde_json::to_vec(payload).map(Self::new)
    }

    /// Names its type.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.0.event_type = Some(event_type.into());
        self
    }

    /// Its routing key: events with equal keys go to the same partition, in order.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.key = Some(key.into());
        self
    }

    /// Its partition, from 0, whatever the key says.
    pub fn partition(mut self, partition: u32) -> Self {
        self.0.partition = Some(partition);
        self
    }

    /// Adds a field to its metadata. `causation_id`, `producer` and `hops` are the host's.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.metadata.push((key.into(), value.into()));
        self
    }

    /// Stages it for a stream. Events of one call are appended in the order of these calls.
    ///
    /// # Errors
    /// The stream is not granted, the event cannot be stored, or the call has staged too much. What was
    /// staged before stays.
    pub fn append_to(self, stream: &str) -> Result<(), Error> {
        if !HOSTED {
            return Err(Error::AccessDenied("there is no outbox without a host".to_owned()));
        }
        raw::append(stream, &self.0)
    }
}

/// A missing grant can be mended before the last attempt; an event that cannot be stored will never be.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::AccessDenied(text) => Self::retry(text),
            Error::Invalid(text) | Error::Limit(text) => Self::reject(text),
        }
    }
}
