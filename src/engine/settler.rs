//! Writes verdicts, in batches, and is the only part that does.

use std::cmp::Reverse;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::attempt::{Finished, Held};
use super::contention::Contention;
use super::health::{Backoff, Health};
use super::idle::Stirrer;
use super::pipeline::{Failure, Pipeline};
use super::summary::Counts;
use crate::backend::{Error, ErrorClass, SETTLE_BATCH_MAX, SettleRequest, Settled, Shared};
use crate::outcome::{Outcome, Settlement, Verdict, decide};
use crate::telemetry;

pub(super) struct Settler {
    pub(super) backend: Shared,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) settings: Arc<Settings>,
    pub(super) health: Arc<Health>,
    pub(super) counts: Arc<Counts>,
    pub(super) failure: Failure,
    /// Stops the pipeline.
    pub(super) stop: CancellationToken,
    /// Back to the workers, for what has to run again.
    pub(super) again: async_channel::WeakSender<Box<Held>>,
    pub(super) contention: Arc<Contention>,
    /// Says that other pipelines may have something to do now.
    pub(super) stir: Stirrer,
}

/// How often a handler runs again under one lease because its state had changed under it. Beyond
/// that it is a failure like any other.
const RERUNS_MAX: u32 = 16;

impl Settler {
    /// Writes until all workers are gone. A lone verdict is written at once; those that come in
    /// while a write is under way make up the next batch.
    pub(super) async fn run(self, mut finished: mpsc::Receiver<Finished>) {
        let mut batch = Vec::with_capacity(SETTLE_BATCH_MAX);
        while finished.recv_many(&mut batch, SETTLE_BATCH_MAX).await > 0 {
            self.write(&mut batch).await;
        }
    }

    async fn write(&self, batch: &mut Vec<Finished>) {
        // Of those that are in each other's way the first one wins: that is whoever lost most often.
        // Otherwise in order, so that the frontier moves with each, and no one has to be noted above it.
        batch.sort_unstable_by_key(|finished| {
            let lease = &finished.held.leased.lease;
            (Reverse(finished.held.reruns), lease.partition, lease.sequence)
        });
        let (mut held, mut settlements) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for finished in batch.drain(..) {
            match finished.settlement {
                Some(settlement) => {
                    held.push(finished.held);
                    settlements.push(settlement);
                }
                None => self.give_up(&finished.held, false),
            }
        }
        let mut backoff = Backoff::default();
        // Whether an earlier try may have been written although no answer came.
        let mut doubtful = false;
        while !held.is_empty() {
            let request = SettleRequest {
                group: &self.pipeline.group,
                consumer: &self.settings.consumer,
                settlements: &settlements,
            };
            let sent = Instant::now();
            match self.backend.settle(&request).await {
                Ok(answers) => {
                    self.counts.settle_answered(sent.elapsed());
                    let (mut left, mut verdicts) = (Vec::new(), Vec::new());
                    let items = held.drain(..).zip(settlements.drain(..)).zip(answers);
                    for ((held, settlement), answer) in items {
                        if let Some((held, settlement)) = self.settled(held, settlement, answer, doubtful) {
                            left.push(held);
                            verdicts.push(settlement);
                        }
                    }
                    // What came of these is decided anew, and written in the next round.
                    (held, settlements) = (left, verdicts);
                    continue;
                }
                Err(error) => match error.class() {
                    ErrorClass::Retry | ErrorClass::Ambiguous => {
                        self.health.failed(&error);
                        doubtful |= error.class() == ErrorClass::Ambiguous;
                    }
                    // The history that these belong to is gone, and their leases with it.
                    ErrorClass::NotFound => return held.iter().for_each(|held| self.give_up(held, doubtful)),
                    ErrorClass::Request | ErrorClass::Fatal => return self.fail(&held, error),
                },
            }
            // However long that takes: a lease that ran out meanwhile still settles if no one has
            // taken it, and only the store knows.
            tokio::time::sleep(backoff.next()).await;
        }
    }

    /// Takes in an answer. Gives back what has to be written otherwise.
    fn settled(
        &self,
        held: Box<Held>,
        settlement: Settlement,
        answer: Settled,
        doubtful: bool,
    ) -> Option<(Box<Held>, Settlement)> {
        match answer {
            Settled::Done => {
                self.counts.settled(&settlement.verdict, settlement.lease.attempt);
                self.counts.busy();
                telemetry::settled(&held.span, &settlement.verdict);
                self.contention.settled();
                if matches!(&settlement.verdict, Verdict::Ack(effects) if !effects.appends.is_empty()) {
                    self.stir.stir();
                }
                None
            }
            Settled::Stale | Settled::ReceiptMismatch => {
                self.give_up(&held, doubtful);
                None
            }
            Settled::Conflict => {
                self.contention.conflict();
                self.run_again(held, settlement)
            }
            Settled::Refused(refusal) => {
                let verdict = self.failed(&held, format!("its effects were not committed: {refusal}"));
                Some((held, Settlement { verdict, ..settlement }))
            }
        }
    }

    /// Another commit changed what the handler had read: it runs again, on fresh state and under the
    /// same lease.
    fn run_again(&self, mut held: Box<Held>, settlement: Settlement) -> Option<(Box<Held>, Settlement)> {
        if held.reruns >= RERUNS_MAX {
            let verdict = self.failed(&held, format!("its state changed under it {RERUNS_MAX} times"));
            return Some((held, Settlement { verdict, ..settlement }));
        }
        held.reruns += 1;
        held.turn = None;
        telemetry::runs_again(&held.span, held.reruns);
        held.standing.attempt_again();
        if let Some(back) = held.back.take() {
            match back.send(held) {
                Ok(()) => return None,
                // Its worker is gone.
                Err(returned) => held = returned,
            }
        }
        let Some(queue) = self.again.upgrade() else {
            // The pipeline drains: whoever takes it next begins afresh.
            return Some((held, Settlement { verdict: Verdict::Release, ..settlement }));
        };
        match queue.try_send(held) {
            Ok(()) => None,
            // Never full: it has room for all that is held.
            Err(error) => Some((error.into_inner(), Settlement { verdict: Verdict::Release, ..settlement })),
        }
    }

    /// The verdict on an attempt that answered, but whose answer cannot be carried out.
    fn failed(&self, held: &Held, reason: String) -> Verdict {
        let outcome = Outcome::Retry { reason, delay: None };
        let Pipeline { retry, on_fault, .. } = &*self.pipeline;
        decide(Ok(outcome), held.leased.lease.attempt, retry, *on_fault, rand::random())
    }

    /// Nothing more can be written about this attempt.
    fn give_up(&self, held: &Held, doubtful: bool) {
        if doubtful {
            // It may have been written, with events that it appends.
            self.stir.stir();
        }
        self.counts.given_up(doubtful);
        telemetry::not_settled(&held.span, doubtful);
    }

    /// The store refuses for good: the pipeline stops, and what it held comes again elsewhere.
    fn fail(&self, held: &[Box<Held>], error: Error) {
        held.iter().for_each(|held| self.give_up(held, true));
        self.failure.set(&self.pipeline.name, error);
        self.stop.cancel();
    }
}
