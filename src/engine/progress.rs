//! When a pipeline last did something, so that one that does nothing can be told from one that has
//! nothing to do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No pipeline is called stuck before it was quiet for so long.
const QUIET_MIN: Duration = Duration::from_secs(30);

/// How long a pipeline may be quiet. In this time every call that it has begun comes to an end, and every
/// lease that it cannot renew runs out.
pub(super) fn quiet_max(lease: Duration, call_max: Duration) -> Duration {
    QUIET_MIN.max(lease.saturating_add(call_max))
}

/// The last signs of life of one pipeline.
#[derive(Debug)]
pub(super) struct Progress {
    since: Instant,
    /// In milliseconds behind `since`.
    looked: AtomicU64,
    moved: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { since: Instant::now(), looked: AtomicU64::default(), moved: AtomicU64::default() }
    }
}

impl Progress {
    fn stamp(&self, last: &AtomicU64, now: Instant) {
        let ms = now.saturating_duration_since(self.since).as_millis();
        last.store(u64::try_from(ms).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The store has answered a claim, with something or with nothing.
    pub(super) fn looked(&self, now: Instant) {
        self.stamp(&self.looked, now);
    }

    /// Something was claimed or settled.
    pub(super) fn moved(&self, now: Instant) {
        self.stamp(&self.moved, now);
    }

    /// How long it has been quiet at `now`, given how many events it holds: whoever holds some must
    /// settle them, whoever holds none must ask for some.
    pub(super) fn quiet(&self, held: usize, now: Instant) -> Duration {
        let moved = self.moved.load(Ordering::Relaxed);
        let last = if held > 0 { moved } else { moved.max(self.looked.load(Ordering::Relaxed)) };
        now.saturating_duration_since(self.since).saturating_sub(Duration::from_millis(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_something_must_settle_and_whoever_holds_nothing_must_ask() {
        let progress = Progress::default();
        let at = |seconds| progress.since + Duration::from_secs(seconds);
        assert_eq!(progress.quiet(1, at(40)), Duration::from_secs(40));
        progress.moved(at(10));
        progress.looked(at(50));
        assert_eq!(progress.quiet(3, at(60)), Duration::from_secs(50), "claims in vain are no progress");
        assert_eq!(progress.quiet(0, at(60)), Duration::from_secs(10));
        assert_eq!(progress.quiet(0, at(20)), Duration::ZERO);
        progress.moved(at(60));
        assert_eq!(progress.quiet(3, at(60)), Duration::ZERO);
    }

    #[test]
    fn the_bound_follows_from_lease_and_timeout() {
        let s = Duration::from_secs;
        assert_eq!(quiet_max(s(1), Duration::from_millis(5)), s(30));
        assert_eq!(quiet_max(s(30), s(120)), s(150));
    }
}
