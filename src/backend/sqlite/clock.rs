//! Time as the embedded store sees it.
//!
//! Leases and retries are measured by a time that never steps back, neither when the wall clock
//! is set back nor when another process with a slower clock opens the file: each transaction
//! reads the largest time that was stored, goes on from there, and stores what it used. Texts for
//! people (an event's timestamp) show the wall clock as it is.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

/// Where the store takes the time from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's clocks.
    #[default]
    System,
    /// A clock that a test moves.
    Manual(ManualClock),
}

/// A clock that stands still until it is moved. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(watch::Sender<Reading>);

/// What the clocks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Milliseconds since 1970; may step in either direction.
    pub(super) wall_ms: i64,
    /// Milliseconds since some moment; never steps.
    pub(super) steady_ms: i64,
}

impl ManualClock {
    /// A clock that shows `wall_ms` milliseconds since 1970.
    #[must_use]
    pub fn new(wall_ms: i64) -> Self {
        Self(watch::Sender::new(Reading { wall_ms, steady_ms: 0 }))
    }

    /// Lets time pass; wakes those who wait for it.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|reading| {
            reading.wall_ms = reading.wall_ms.saturating_add(millis(by));
            reading.steady_ms = reading.steady_ms.saturating_add(millis(by));
        });
    }

    /// Sets the wall clock, as an administrator would: no time passes.
    pub fn set_wall_ms(&self, wall_ms: i64) {
        self.0.send_modify(|reading| reading.wall_ms = wall_ms);
    }
}

impl Default for ManualClock {
    /// 2020-01-15T12:00:00Z.
    fn default() -> Self {
        Self::new(1_579_089_600_000)
    }
}

impl Clock {
    pub(super) fn read(&self) -> Reading {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match self {
            Self::System => {
                // A clock before 1970 counts as 1970: the stored time carries on all the same.
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Reading { wall_ms: millis(wall), steady_ms: millis(START.elapsed()) }
            }
            Self::Manual(clock) => *clock.0.borrow(),
        }
    }

    /// Resolves when a manual clock is moved after `seen`; the system's clocks move by themselves,
    /// so there it never does.
    pub(super) async fn moved(&self, seen: Reading) {
        match self {
            Self::System => std::future::pending().await,
            Self::Manual(clock) => {
                // The sender lives in `self`, so waiting cannot fail.
                let _ = clock.0.subscribe().wait_for(|reading| *reading != seen).await;
            }
        }
    }

    /// Whether waiting for a time of this clock means to wait as long as it says.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::System)
    }
}

/// The time of one store in this process, shared by its threads.
#[derive(Debug)]
pub(super) struct Time {
    clock: Clock,
    /// The last time that was given out, and when that was.
    last: Mutex<Option<(i64, i64)>>,
}

/// The time of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// What leases and retries are measured by; never steps back.
    pub(super) now_ms: i64,
    /// The wall clock, for people.
    pub(super) wall_ms: i64,
}

impl Time {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, last: Mutex::new(None) }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time now, given the largest one that the store knows.
    ///
    /// Behind a wall clock that was set back, time goes on at the steady clock's pace. It would
    /// be wrong to stand still until the wall clock has caught up (no lease would ever end), and
    /// wrong to keep a fixed distance to it (setting it right again would end them all).
    pub(super) fn moment(&self, stored_ms: i64) -> Moment {
        let reading = self.clock.read();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let carried = last.map_or(stored_ms, |(now_ms, steady_ms)| {
            now_ms.saturating_add(reading.steady_ms.saturating_sub(steady_ms).max(0))
        });
        let now_ms = reading.wall_ms.max(carried).max(stored_ms);
        *last = Some((now_ms, reading.steady_ms));
        Moment { now_ms, wall_ms: reading.wall_ms }
    }
}

/// A duration in whole milliseconds, rounded up so that nothing is due too early.
pub(super) fn millis(duration: Duration) -> i64 {
    let ms = duration.as_nanos().div_ceil(1_000_000);
    // 2^53 - 1 ms are 285,000 years; sums of two such times fit an i64.
    i64::try_from(ms).unwrap_or(i64::MAX).min(crate::event::NUMBER_MAX as i64)
}

/// ISO 8601 with milliseconds and `Z`; the empty text outside the years that can be written so.
pub(super) fn iso(wall_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(wall_ms).map(|at| format!("{at:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn goes_on_behind_a_wall_clock_that_was_set_back_and_right_again() {
        let clock = ManualClock::new(100_000);
        let time = Time::new(Clock::Manual(clock.clone()));
        assert_eq!(time.moment(0).now_ms, 100_000);
        clock.set_wall_ms(40_000);
        assert_eq!(time.moment(100_000), Moment { now_ms: 100_000, wall_ms: 40_000 });
        clock.advance(SECOND);
        assert_eq!(time.moment(100_000), Moment { now_ms: 101_000, wall_ms: 41_000 });
        clock.set_wall_ms(101_500);
        assert_eq!(time.moment(101_000).now_ms, 101_500);
    }

    #[test]
    fn follows_a_faster_process_and_keeps_its_pace() {
        let clock = ManualClock::new(1_000);
        let time = Time::new(Clock::Manual(clock.clone()));
        assert_eq!(time.moment(5_000).now_ms, 5_000);
        clock.advance(SECOND);
        assert_eq!(time.moment(5_000).now_ms, 6_000);
        assert_eq!(time.moment(9_000).now_ms, 9_000);
    }

    #[test]
    fn durations_are_rounded_up_and_bounded() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::MAX), crate::event::NUMBER_MAX as i64);
    }

    #[test]
    fn writes_milliseconds_always() {
        assert_eq!(iso(1_579_089_600_000), "2020-01-15T12:00:00.000Z");
        assert_eq!(iso(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(iso(i64::MAX), "");
    }
}
