//! How each pipeline is, for those who look from outside: health checks, and tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The state of every running pipeline of an engine, by name.
#[derive(Debug, Default)]
pub struct Conditions(Mutex<BTreeMap<Arc<str>, Condition>>);

/// How a pipeline is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It takes events.
    Running,
    /// It takes none, since its plugin faulted too often.
    Paused(Pause),
}

/// Why and since when a pipeline takes no events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it paused, by the machine's clock.
    pub since: SystemTime,
    /// Faults that led to it.
    pub faults: usize,
    /// The attempts among which they were.
    pub attempts: usize,
    /// The plugin's name.
    pub plugin: String,
    /// Digest of the build that ended in the last fault.
    pub digest: Arc<str>,
    /// The last fault, in words.
    pub fault: String,
}

impl Conditions {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Condition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All pipelines that have begun and not ended.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<Arc<str>, Condition> {
        self.all().clone()
    }

    pub(super) fn set(&self, pipeline: &Arc<str>, condition: Condition) {
        self.all().insert(Arc::clone(pipeline), condition);
    }

    pub(super) fn remove(&self, pipeline: &str) {
        self.all().remove(pipeline);
    }
}
