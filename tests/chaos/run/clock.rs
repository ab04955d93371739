//! Times as histories have them.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::history::Micros;

pub(super) fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

/// The instant that a log line or an event names.
pub(super) fn parse(text: &str) -> Micros {
    let at: jiff::Timestamp = text.parse().unwrap_or_else(|error| panic!("`{text}`: {error}"));
    u64::try_from(at.as_microsecond()).unwrap()
}
