//! Keeps what is held from running out, and tells an attempt when its lease is lost.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::health::Health;
use super::pipeline::Pipeline;
use crate::backend::{ErrorClass, SETTLE_BATCH_MAX, Settled, Shared};
use crate::event::Lease;

/// The leases that one pipeline holds.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Mutex<ByTicket>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// When it was granted or last renewed, by our clock and before the request was sent: the
    /// store's own end of the lease is never before this plus its length.
    granted: Instant,
    standing: Arc<Standing>,
}

/// What an attempt and the keeper of its lease tell each other.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// [`LOST`] and [`OVER`], in one, so that each side knows whether the other one came first.
    state: AtomicU8,
    told: Notify,
}

/// The store has said that the lease is lost.
const LOST: u8 = 1;
/// There is nothing left to give up: the lease is kept only until the verdict is written.
const OVER: u8 = 2;

impl Standing {
    /// The attempt has ended, and its verdict is to be written.
    pub(super) fn attempt_over(&self) {
        self.state.fetch_or(OVER, Ordering::AcqRel);
    }

    /// The attempt runs once more.
    pub(super) fn attempt_again(&self) {
        self.state.fetch_and(!OVER, Ordering::AcqRel);
    }

    /// The lease is lost; whether an attempt ran until now.
    fn lose(&self) -> bool {
        let before = self.state.fetch_or(LOST, Ordering::AcqRel);
        self.told.notify_waiters();
        before & OVER == 0
    }

    fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) & LOST != 0
    }

    /// Returns once the lease is lost.
    pub(super) async fn lost(&self) {
        // Made before the look, so that what is told in between is not missed.
        let told = self.told.notified();
        if !self.is_lost() {
            told.await;
        }
    }
}

/// Spreads tickets, which are numbers in a row.
#[derive(Default)]
struct TicketHasher(u64);

impl Hasher for TicketHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // An odd number without a pattern: 2^64 by the golden ratio.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type ByTicket = HashMap<u64, Held, BuildHasherDefault<TicketHasher>>;

impl Leases {
    fn lock(&self) -> MutexGuard<'_, ByTicket> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep leases that were granted together, each under a ticket: from `first` on, in this
    /// order.
    pub(super) fn keep<'l>(
        &self,
        first: u64,
        leases: impl Iterator<Item = &'l Lease>,
        granted: Instant,
    ) -> Vec<Arc<Standing>> {
        let mut held = self.lock();
        let keep = |(ticket, lease): (u64, &Lease)| {
            let standing = Arc::new(Standing::default());
            held.insert(ticket, Held { lease: lease.clone(), granted, standing: Arc::clone(&standing) });
            standing
        };
        (first..).zip(leases).map(keep).collect()
    }

    /// Stops keeping a lease: it is settled, or given up.
    pub(super) fn forget(&self, ticket: u64) {
        self.lock().remove(&ticket);
    }

    /// How many leases are kept.
    pub(super) fn count(&self) -> u64 {
        u64::try_from(self.lock().len()).unwrap_or(u64::MAX)
    }

    /// The leases that are older than `age`.
    fn older_than(&self, age: Duration) -> Vec<(u64, Lease)> {
        let held = self.lock();
        let due = held.iter().filter(|(_, held)| held.granted.elapsed() >= age && !held.standing.is_lost());
        due.map(|(ticket, held)| (*ticket, held.lease.clone())).collect()
    }

    fn renewed(&self, ticket: u64, at: Instant) {
        if let Some(held) = self.lock().get_mut(&ticket) {
            held.granted = at;
        }
    }

    /// Ends the attempt under a lost lease, and says whether there was one: of a verdict that is
    /// being written meanwhile, the settler hears what became.
    fn lost(&self, ticket: u64) -> bool {
        let held = self.lock();
        held.get(&ticket).is_some_and(|held| held.standing.lose())
    }
}

/// Renews until dropped: looks twelve times in a lease's length and renews what is older than a
/// quarter of it, so that each lease is renewed by a third of its time and has two more chances.
pub(super) async fn renew(
    backend: Shared,
    pipeline: Arc<Pipeline>,
    leases: Arc<Leases>,
    health: Arc<Health>,
) {
    let mut looks = tokio::time::interval(pipeline.lease / 12);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let due = leases.older_than(pipeline.lease / 4);
        for chunk in due.chunks(SETTLE_BATCH_MAX) {
            renew_chunk(&backend, &pipeline, &leases, &health, chunk).await;
        }
    }
}

async fn renew_chunk(
    backend: &Shared,
    pipeline: &Pipeline,
    leases: &Leases,
    health: &Health,
    chunk: &[(u64, Lease)],
) {
    let sent = Instant::now();
    let tokens: Vec<Lease> = chunk.iter().map(|(_, lease)| lease.clone()).collect();
    match backend.renew(&pipeline.group, &tokens, pipeline.lease).await {
        Ok(answers) => {
            for ((ticket, lease), answer) in chunk.iter().zip(answers) {
                match answer {
                    Settled::Done => leases.renewed(*ticket, sent),
                    // Renewing has no effects: the last two are never answered.
                    Settled::Stale | Settled::ReceiptMismatch | Settled::Conflict | Settled::Refused(_) => {
                        if leases.lost(*ticket) {
                            tracing::warn!(
                                pipeline = %pipeline.name, partition = lease.partition,
                                sequence = lease.sequence, attempt = lease.attempt,
                                "a lease was lost; its attempt is given up"
                            );
                        }
                    }
                }
            }
        }
        // The next look tries again; whether a lease is lost, only the store can say.
        Err(error) if matches!(error.class(), ErrorClass::Retry | ErrorClass::Ambiguous) => {
            health.failed(&error)
        }
        Err(error) => tracing::warn!(pipeline = %pipeline.name, %error, "leases cannot be renewed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_lost_before_or_while_one_waits_is_told() {
        let standing = Arc::new(Standing::default());
        let waiter = tokio::spawn({
            let standing = Arc::clone(&standing);
            async move { standing.lost().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        assert!(standing.lose(), "the attempt ran");
        waiter.await.unwrap();
        standing.lost().await;
    }

    #[test]
    fn an_attempt_that_is_over_is_not_given_up() {
        let standing = Standing::default();
        standing.attempt_over();
        standing.attempt_again();
        standing.attempt_over();
        assert!(!standing.lose());
        assert!(standing.is_lost());
    }
}
