//! How many events a pipeline may hold at once, and how many it should.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How far ahead of the handlers a pipeline claims.
const AHEAD: Duration = Duration::from_millis(100);

/// How long a rate is measured before it counts.
const MEASURE: Duration = Duration::from_millis(50);

/// Counts what is held: taken before a claim, given back after the settlement, so that a slow
/// store throttles claiming.
#[derive(Debug, Default)]
pub(super) struct Permits {
    held: AtomicUsize,
    returned: Notify,
}

/// One event's permit; goes back when dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<Permits>);

impl Permits {
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Takes a permit. There is no limit here: the one dispatcher keeps to its window.
    pub(super) fn take(self: &Arc<Self>) -> Permit {
        self.held.fetch_add(1, Ordering::AcqRel);
        Permit(Arc::clone(self))
    }

    /// Waits until `enough` is true of the number held; it is asked again whenever a permit goes
    /// back.
    pub(super) async fn until(&self, mut enough: impl FnMut(usize) -> bool) {
        loop {
            // Registered before the look, so that a return in between is not missed.
            let returned = self.returned.notified();
            if enough(self.held()) {
                return;
            }
            returned.await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
        self.0.returned.notify_one();
    }
}

/// How many events a pipeline should hold: what its handlers will start within a moment. A crash
/// spends an attempt of everything that is held, so it is no more than that.
#[derive(Debug)]
pub(super) struct Window {
    least: usize,
    most: usize,
    rate_per_second: f64,
    since: Instant,
    started_before: u64,
}

impl Window {
    pub(super) fn new(concurrency: usize, in_flight_max: usize, now: Instant) -> Self {
        let least = concurrency.min(in_flight_max).max(1);
        Self { least, most: in_flight_max.max(least), rate_per_second: 0.0, since: now, started_before: 0 }
    }

    /// The window, given how many attempts were started in all.
    pub(super) fn size(&mut self, started: u64, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= MEASURE {
            // Counts stay far below 2^53.
            #[allow(clippy::cast_precision_loss)]
            let rate = started.saturating_sub(self.started_before) as f64 / elapsed.as_secs_f64();
            self.rate_per_second = f64::midpoint(self.rate_per_second, rate);
            self.since = now;
            self.started_before = started;
        }
        let ahead = self.rate_per_second * AHEAD.as_secs_f64();
        // A cast from float saturates; the clamp does the rest.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let ahead = ahead.ceil() as usize;
        ahead.clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_rate_within_its_bounds() {
        let start = Instant::now();
        let mut window = Window::new(8, 256, start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(window.size(0, at(0)), 8);
        // 1,000 a second for a while: about 100 ahead.
        let mut size = 0;
        for step in 1..=10u64 {
            size = window.size(step * 100, at(step * 100));
        }
        assert!((95..=100).contains(&size), "{size}");
        // 100,000 a second: the upper bound.
        for step in 1..=10u64 {
            size = window.size(1000 + step * 10_000, at(1000 + step * 100));
        }
        assert_eq!(size, 256);
        // Nothing any more: back to the lower bound.
        for step in 1..=20u64 {
            size = window.size(101_000, at(2000 + step * 100));
        }
        assert_eq!(size, 8);
    }

    #[tokio::test]
    async fn a_permit_that_goes_back_wakes_who_waits() {
        let permits = Arc::new(Permits::default());
        let (first, second) = (permits.take(), permits.take());
        let waiter = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { permits.until(|held| held == 0).await }
        });
        drop(first);
        tokio::task::yield_now().await;
        assert_eq!(permits.held(), 1);
        drop(second);
        waiter.await.unwrap();
    }
}
