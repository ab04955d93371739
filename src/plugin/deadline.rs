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

    #[tokio::test(start_paused = true)]
    async fn only_what_is_over_in_time_answers() {
        let in_a_second = tokio::time::Instant::now().into_std() + Duration::from_secs(1);
        let after = |ms| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            ms
        };
        assert_eq!(until(in_a_second, after(0)).await, Some(0));
        assert_eq!(until(in_a_second, after(999)).await, Some(999));
        assert_eq!(until(in_a_second, after(60_000)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_never_waits_for_anything_but_its_turn_ends_too() {
        let in_a_second = tokio::time::Instant::now().into_std() + Duration::from_secs(1);
        let turns = async {
            loop {
                // Time stands still while there is something to do.
                tokio::time::advance(Duration::from_millis(1)).await;
                tokio::task::coop::consume_budget().await;
            }
        };
        assert_eq!(until::<()>(in_a_second, turns).await, None);
    }
}
