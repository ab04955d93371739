//! Calls that end in time.

use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use tokio::task::coop::unconstrained;
use tokio::time::sleep_until;

/// Runs a call until its deadline; `None` where it was not over by then.
///
/// Most calls of a warm instance are over when they are polled for the first time. Only one that has
/// to wait gets a timer: making one costs as much as a good part of such a call.
pub(super) async fn until<T>(deadline: Instant, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    let mut alarm = pin!(None);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(done) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if alarm.is_none() {
            // A call that has used up its task's share of polls must not keep the timer from being seen.
            alarm.set(Some(unconstrained(sleep_until(deadline.into()))));
        }
        match alarm.as_mut().as_pin_mut() {
            Some(alarm) => alarm.poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn an_answer_counts_whenever_it_is_there() {
        assert_eq!(until(Instant::now(), async { 1 }).await, Some(1));
        let waiting = async {
            tokio::task::yield_now().await;
            2
        };
        assert_eq!(until(Instant::now() + HOUR, waiting).await, Some(2));
    }

    #[tokio::test]
    async fn what_does_not_answer_ends_at_its_deadline() {
        let soon = Instant::now() + Duration::from_millis(10);
        assert_eq!(until(soon, std::future::pending::<()>()).await, None);
        assert!(Instant::now() >= soon);
    }

    #[tokio::test]
    async fn what_uses_up_its_tasks_share_ends_too() {
        let greedy = async {
            loop {
                tokio::task::coop::consume_budget().await;
            }
        };
        let soon = Instant::now() + Duration::from_millis(10);
        assert_eq!(until::<()>(soon, greedy).await, None);
    }
}
