//! How long a guest computes: the time that its call spends on a thread, waiting not counted.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

/// The error that ends a call that has computed for too long.
#[derive(Debug, thiserror::Error)]
#[error("the call has used up its time on the processor")]
pub(super) struct Spent;

/// Measures one call at a time, where there is a limit to what it may compute. Clones are handles to the
/// same meter: one of them drives the call, the other one is asked from inside it.
#[derive(Clone)]
pub(super) struct Meter(Option<Arc<Times>>);

struct Times {
    max: Duration,
    start: Instant,
    /// When the call got its thread, since `start`.
    resumed_ns: AtomicU64,
    /// What it had used before that.
    spent_ns: AtomicU64,
}

impl Meter {
    /// A meter for calls that may compute for so long. Without a limit it looks at no clock.
    pub(super) fn new(max: Option<Duration>) -> Self {
        let (resumed_ns, spent_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(max.map(|max| Arc::new(Times { max, start: Instant::now(), resumed_ns, spent_ns })))
    }

    /// How long a call may compute.
    pub(super) fn max(&self) -> Option<Duration> {
        self.0.as_ref().map(|times| times.max)
    }

    /// Runs a call to its end, and measures it from zero.
    pub(super) async fn measure<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        if let Some(times) = &self.0 {
            times.spent_ns.store(0, Ordering::Relaxed);
        }
        std::future::poll_fn(|cx| -> Poll<T> {
            let Some(times) = &self.0 else { return call.as_mut().poll(cx) };
            times.resumed_ns.store(times.now_ns(), Ordering::Relaxed);
            let polled = call.as_mut().poll(cx);
            times.spent_ns.fetch_add(times.turn_ns(), Ordering::Relaxed);
            polled
        })
        .await
    }

    /// Whether the call has used what it may; asked from inside it.
    pub(super) fn is_spent(&self) -> bool {
        self.0.as_ref().is_some_and(|times| times.spent() >= times.max)
    }
}

impl Times {
    /// What the call has used so far.
    fn spent(&self) -> Duration {
        Duration::from_nanos(self.spent_ns.load(Ordering::Relaxed).saturating_add(self.turn_ns()))
    }

    /// What the present turn has used.
    fn turn_ns(&self) -> u64 {
        self.now_ns().saturating_sub(self.resumed_ns.load(Ordering::Relaxed))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[tokio::test]
    async fn computing_counts_and_waiting_does_not() {
        let meter = Meter::new(Some(Duration::from_millis(500)));
        for _ in 0..2 {
            let inside = meter.clone();
            let spent = meter
                .measure(async move {
                    compute(Duration::from_millis(20));
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    compute(Duration::from_millis(20));
                    inside.0.map(|times| times.spent()).unwrap()
                })
                .await;
            // A machine that is busy with other things may add to it, but not all of the wait.
            assert!((Duration::from_millis(40)..Duration::from_millis(500)).contains(&spent), "{spent:?}");
        }
    }
}
