//! What is seen, by the parts of the run: a part begins with a round or with an empty store, and is a
//! history of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::history::{Micros, Record, What};

#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    parts: BTreeMap<u32, Vec<Record>>,
    drained: Vec<Record>,
    counts: BTreeMap<String, u64>,
    troubles: Vec<String>,
}

/// The id of the `number`-th event of a part.
pub(super) fn id(part: u32, number: u64) -> String {
    format!("part-{part}-{number}")
}

fn part_of(id: &str) -> Option<u32> {
    id.strip_prefix("part-")?.split('-').next()?.parse().ok()
}

impl Recorder {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was seen while a part was under way.
    pub(super) fn record(&self, part: u32, at: Micros, what: What) {
        self.seen().parts.entry(part).or_default().push(Record { at, what });
    }

    /// Notes what was seen of an event, in the part that it belongs to.
    pub(super) fn record_of(&self, id: &str, at: Micros, what: What) {
        match part_of(id) {
            Some(part) => self.record(part, at, what),
            None => self.trouble(format!("an event that is not ours: {what:?}")),
        }
    }

    pub(super) fn drained(&self, at: Micros, run: String) {
        self.seen().drained.push(Record { at, what: What::Drained { run } });
    }

    pub(super) fn count(&self, name: impl Into<String>, by: u64) {
        *self.seen().counts.entry(name.into()).or_default() += by;
    }

    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.seen().counts.clone()
    }

    /// Notes what must not be, other than in a history.
    pub(super) fn trouble(&self, text: String) {
        self.seen().troubles.push(text);
    }

    /// Forgets those that were to be.
    pub(super) fn forgive(&self, text: &str) {
        self.seen().troubles.retain(|trouble| !trouble.contains(text));
    }

    pub(super) fn take_troubles(&self) -> Vec<String> {
        std::mem::take(&mut self.seen().troubles)
    }

    /// All that was recorded of a part.
    pub(super) fn take(&self, part: u32) -> Vec<Record> {
        let mut seen = self.seen();
        let mut records = seen.parts.remove(&part).unwrap_or_default();
        records.extend(seen.drained.iter().cloned());
        records
    }
}
