//! Whether the store answers, said once when that changes.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::Error;

/// The first wait after a failure; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_INITIAL: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// Shared by all pipelines of an engine: a store that goes away is one line in the log, and one
/// more when it is back, however many operations fail meanwhile.
#[derive(Debug, Default)]
pub(super) struct Health {
    down: AtomicBool,
    since: Mutex<Option<Instant>>,
}

impl Health {
    /// An operation failed in a way that may pass.
    pub(super) fn failed(&self, error: &Error) {
        if self.down.swap(true, Ordering::AcqRel) {
            return;
        }
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        tracing::warn!(%error, "the store does not answer; trying again until it does");
    }

    /// A claim succeeded. Only claims say so: an out-of-memory store still takes settlements.
    pub(super) fn works(&self) {
        if !self.down.load(Ordering::Acquire) || !self.down.swap(false, Ordering::AcqRel) {
            return;
        }
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        let after = since.map_or(Duration::ZERO, |since| since.elapsed());
        tracing::info!(
            after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            "the store answers again"
        );
    }
}

/// Waits between attempts at the same operation.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF_INITIAL)
    }
}

impl Backoff {
    /// The next wait: doubling, with half of it random, so that many engines do not come at once.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(BACKOFF_MAX);
        wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}
