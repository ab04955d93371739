//! Whether the store answers, said once when that changes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::Error;
use crate::event::GroupKey;

/// The first wait after a failure; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_INITIAL: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// A group that holds up a stream's retention is named no more often than this.
const HELD_AGAIN: Duration = Duration::from_secs(3600);

/// Shared by all pipelines of an engine: a store that goes away is one line in the log, and one
/// more when it is back, however many operations fail meanwhile.
#[derive(Debug, Default)]
pub(super) struct Health {
    down: AtomicBool,
    outage: Mutex<Option<Outage>>,
    /// When the last outage ended.
    back: Mutex<Option<std::time::Instant>>,
    /// When a group was last named that holds up its stream's retention.
    held: Mutex<HashMap<GroupKey, Instant>>,
}

/// A time in which the store does no work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) since: Instant,
    /// It is there, but refuses.
    pub(super) refuses: bool,
}

impl Health {
    /// The outage that lasts, if one does.
    pub(super) fn outage(&self) -> Option<Outage> {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the last outage ended, if there was one.
    pub(super) fn back(&self) -> Option<std::time::Instant> {
        *self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation failed in a way that may pass.
    pub(super) fn failed(&self, error: &Error) {
        if self.down.swap(true, Ordering::AcqRel) {
            return;
        }
        let outage = Outage { since: Instant::now(), refuses: matches!(error, Error::Busy(_)) };
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(outage);
        tracing::warn!(%error, "the store does not answer; trying again until it does");
    }

    /// A claim succeeded. Only claims say so: an out-of-memory store still takes settlements.
    pub(super) fn works(&self) {
        if !self.down.load(Ordering::Acquire) || !self.down.swap(false, Ordering::AcqRel) {
            return;
        }
        // First, so that no one who sees the end of the outage misses when it was.
        *self.back.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::time::Instant::now());
        let outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner).take();
        let after = outage.map_or(Duration::ZERO, |outage| outage.since.elapsed());
        tracing::info!(
            after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            "the store answers again"
        );
    }
}

impl Health {
    /// Whether it is time to say that a group holds up its stream's retention. Of all pipelines, the
    /// first one that asks says it.
    pub(super) fn says_held(&self, group: &GroupKey) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let said = held.get(group).is_some_and(|at| at.elapsed() < HELD_AGAIN);
        if !said {
            held.insert(group.clone(), Instant::now());
        }
        !said
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
