//! How many events a pipeline may hold at once, and how many it should.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How far ahead of the handlers a pipeline claims.
const AHEAD: Duration = Duration::from_millis(100);

/// How long a rate is measured before it counts, and how long the first one.
const MEASURE: Duration = Duration::from_millis(50);
const MEASURE_FIRST: Duration = Duration::from_millis(5);

/// Counts what is held: taken before a claim, given back after the settlement, so that a slow
/// store throttles claiming.
#[derive(Debug, Default)]
pub(super) struct Permits {
    held: AtomicUsize,
    /// Who waits is woken once so few are held: not by each permit that goes back.
    wake_at: AtomicUsize,
    returned: Notify,
}

/// What a look at the number held says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Enough,
    /// The next look is worth its while once at most so many are held.
    AtMost(usize),
}

impl Look {
    /// It is worth its while whenever one goes back.
    pub(super) fn at_any(held: usize) -> Self {
        Self::AtMost(held.saturating_sub(1))
    }
}

/// One event's permit; goes back when dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<Permits>);

impl Permits {
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Takes a permit. There is no limit here: the one dispatcher keeps to its window.
    pub(super) fn take(self: &Arc<Self>) -> Permit {
        self.held.fetch_add(1, Ordering::SeqCst);
        Permit(Arc::clone(self))
    }

    /// Waits until a look says that it is enough. One task waits at a time.
    pub(super) async fn until(&self, mut look: impl FnMut(usize) -> Look) {
        loop {
            // Registered before the look, so that a return in between is not missed.
            let returned = self.returned.notified();
            let held = self.held();
            let Look::AtMost(next) = look(held) else { return };
            // Who returns one counts first and reads this then; here it is the other way round, so one of
            // the two sees the other.
            self.wake_at.store(next, Ordering::SeqCst);
            let now = self.held();
            if now == held || now > next {
                returned.await;
            }
        }
    }

    /// Waits until none is held.
    pub(super) async fn none_held(&self) {
        self.until(|held| if held == 0 { Look::Enough } else { Look::AtMost(0) }).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let held = self.0.held.fetch_sub(1, Ordering::SeqCst) - 1;
        if held <= self.0.wake_at.load(Ordering::SeqCst) {
            self.0.returned.notify_one();
        }
    }
}

/// How many events a pipeline should hold: what its handlers will start within a moment. A crash
/// spends an attempt of everything that is held, so it is no more than that.
#[derive(Debug)]
pub(super) struct Window {
    least: usize,
    most: usize,
    rate_per_second: f64,
    measured: bool,
    since: Instant,
    started_before: u64,
}

impl Window {
    pub(super) fn new(concurrency: usize, in_flight_max: usize, now: Instant) -> Self {
        let least = concurrency.min(in_flight_max).max(1);
        let most = in_flight_max.max(least);
        Self { least, most, rate_per_second: 0.0, measured: false, since: now, started_before: 0 }
    }

    /// The window, given how many attempts were started in all.
    pub(super) fn size(&mut self, started: u64, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.since);
        let measure = if self.measured { MEASURE } else { MEASURE_FIRST };
        if elapsed >= measure {
            // The first handlers begin at once, however long they take.
            let at_once = if self.measured { 0 } else { self.least as u64 };
            self.measured = true;
            let begun = started.saturating_sub(self.started_before + at_once);
            // Counts stay far below 2^53.
            #[allow(clippy::cast_precision_loss)]
            let rate = begun as f64 / elapsed.as_secs_f64();
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

    #[test]
    fn slow_handlers_that_all_begin_at_once_are_no_rate() {
        let start = Instant::now();
        let mut window = Window::new(8, 256, start);
        assert_eq!(window.size(8, start + Duration::from_millis(5)), 8);
        let mut window = Window::new(8, 256, start);
        // 8 at once, and 392 more in five milliseconds.
        assert_eq!(window.size(400, start + Duration::from_millis(5)), 256);
    }

    #[tokio::test]
    async fn a_permit_that_goes_back_wakes_who_waits() {
        let permits = Arc::new(Permits::default());
        let (first, second) = (permits.take(), permits.take());
        let waiter = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { permits.none_held().await }
        });
        drop(first);
        tokio::task::yield_now().await;
        assert_eq!(permits.held(), 1);
        drop(second);
        waiter.await.unwrap();
    }

    #[tokio::test]
    async fn who_waits_looks_again_only_once_few_enough_are_held() {
        let permits = Arc::new(Permits::default());
        let mut held: Vec<_> = (0..10).map(|_| permits.take()).collect();
        let looks = Arc::new(AtomicUsize::new(0));
        let waiter = tokio::spawn({
            let (permits, looks) = (Arc::clone(&permits), Arc::clone(&looks));
            async move {
                let look = |held| {
                    looks.fetch_add(1, Ordering::SeqCst);
                    if held <= 4 { Look::Enough } else { Look::AtMost(4) }
                };
                permits.until(look).await;
            }
        });
        tokio::task::yield_now().await;
        while held.len() > 4 {
            assert!(!waiter.is_finished());
            held.pop();
            tokio::task::yield_now().await;
        }
        waiter.await.unwrap();
        assert_eq!(looks.load(Ordering::SeqCst), 2);
    }
}
