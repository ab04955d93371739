//! Keeps what is held from running out, and tells an attempt when its lease is lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::pipeline::Pipeline;
use crate::backend::{ErrorClass, SETTLE_BATCH_MAX, Settled, Shared};
use crate::event::Lease;

/// The leases that one pipeline holds.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Mutex<HashMap<u64, Held>>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// When it was granted or last renewed, by our clock and before the request was sent: the
    /// store's own end of the lease is never before this plus its length.
    granted: Instant,
    lost: CancellationToken,
    /// There is nothing left to give up: the lease is kept only until the verdict is written.
    attempt_over: bool,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep a lease; the token is cancelled once the store says that it is lost.
    pub(super) fn keep(&self, ticket: u64, lease: Lease, granted: Instant) -> CancellationToken {
        let lost = CancellationToken::new();
        self.lock().insert(ticket, Held { lease, granted, lost: lost.clone(), attempt_over: false });
        lost
    }

    /// Stops keeping a lease: it is settled, or given up.
    pub(super) fn forget(&self, ticket: u64) {
        self.lock().remove(&ticket);
    }

    /// The attempt has ended, and its verdict is to be written.
    pub(super) fn attempt_over(&self, ticket: u64) {
        if let Some(held) = self.lock().get_mut(&ticket) {
            held.attempt_over = true;
        }
    }

    /// The attempt runs once more.
    pub(super) fn attempt_again(&self, ticket: u64) {
        if let Some(held) = self.lock().get_mut(&ticket) {
            held.attempt_over = false;
        }
    }

    /// How many leases are kept.
    pub(super) fn count(&self) -> u64 {
        u64::try_from(self.lock().len()).unwrap_or(u64::MAX)
    }

    /// The leases that are older than `age`.
    fn older_than(&self, age: Duration) -> Vec<(u64, Lease)> {
        let held = self.lock();
        let due = held.iter().filter(|(_, held)| held.granted.elapsed() >= age && !held.lost.is_cancelled());
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
        let Some(held) = held.get(&ticket) else { return false };
        held.lost.cancel();
        !held.attempt_over
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
