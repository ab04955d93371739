//! Dead letters as a store gives them back.

use crate::event::Event;
use crate::outcome::{Cause, FailureKind};

/// A dead letter: the whole event and how it ended. Fields that its writer did not know (Rheo
/// keeps only the reason and the time) are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The row's own id, and the cursor after which [`super::Backend::dead_letters`] goes on.
    pub row: String,
    /// The event, or what stood in its place.
    pub event: DeadEvent,
    /// Why in words.
    pub reason: String,
    /// Why in one word.
    pub cause: Option<Cause>,
    /// The last attempt's failure.
    pub failure: Option<FailureKind>,
    /// How often it was delivered.
    pub attempts: Option<u32>,
    /// The consumer that had it last.
    pub consumer: Option<String>,
    /// Digest of the plugin that had it last.
    pub plugin: Option<String>,
    /// When, ISO 8601.
    pub dead_lettered_at: Option<String>,
}

/// The event inside a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadEvent {
    /// A readable event.
    Event(Box<Event>),
    /// The fields of an entry that is no event, in order; bytes that are no UTF-8 are replaced
    /// here, not in the store.
    Raw(Vec<(String, String)>),
}
