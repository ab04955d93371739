//! One event's attempt: calls the handler under the lease, and has its fate decided.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::brake::Brake;
use super::contention::{Contention, Turn};
use super::handler::{Delivery, Handler};
use super::leases::{Leases, Standing};
use super::lineage::{self, Origin};
use super::permits::Permit;
use super::pipeline::Pipeline;
use super::summary::Counts;
use crate::event::Leased;
use crate::outcome::{Settlement, Verdict, decide};
use crate::plugin::StateSource;
use crate::telemetry;

/// An event that this engine holds.
///
/// Dropped, however that comes about, it is renewed no longer, and its permit goes back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) leased: Leased,
    /// Under which the lease is kept.
    pub(super) ticket: u64,
    /// How often its handler ran again because its state had changed under it.
    pub(super) reruns: u32,
    /// Whether the lease is lost.
    pub(super) standing: Arc<Standing>,
    /// What every line of the log about this attempt carries; nothing before its turn has come.
    pub(super) span: tracing::Span,
    pub(super) leases: Arc<Leases>,
    /// Back to the worker, where it waits for what becomes of its verdict: dropped once that is known.
    pub(super) back: Option<oneshot::Sender<Box<Self>>>,
    /// Its leave to run, where handlers are in each other's way: goes back with its verdict's fate.
    pub(super) turn: Option<Turn>,
    /// Goes back when the event is settled or given up.
    pub(super) _permit: Permit,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leases.forget(self.ticket);
    }
}

/// An event whose attempt is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) held: Box<Held>,
    /// What is to be written; `None` where the lease is lost, and so nothing may be.
    pub(super) settlement: Option<Settlement>,
}

impl Finished {
    /// Gives the event back if it has to run again, and nothing once its verdict is written or given
    /// up; `None` where the verdict does not depend on state.
    fn comes_back(&mut self) -> Option<oneshot::Receiver<Box<Held>>> {
        match &self.settlement.as_ref()?.verdict {
            Verdict::Ack(effects) if !effects.is_empty() && !effects.reads.is_empty() => {
                let (back, comes) = oneshot::channel();
                self.held.back = Some(back);
                Some(comes)
            }
            _ => None,
        }
    }
}

/// One of a pipeline's workers: as many run at once as its `concurrency` says.
pub(super) struct Worker {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) hops_max: u32,
    /// Where handlers read their state.
    pub(super) state: Arc<dyn StateSource>,
    pub(super) queue: async_channel::Receiver<Box<Held>>,
    pub(super) finished: mpsc::Sender<Finished>,
    pub(super) counts: Arc<Counts>,
    pub(super) brake: Arc<Brake>,
    pub(super) contention: Arc<Contention>,
    /// Cancelled when a drain begins: nothing new is started.
    pub(super) drain: CancellationToken,
    /// Cancelled when a drain ran out of time: what runs is given up.
    pub(super) cut: CancellationToken,
}

impl Worker {
    /// Handles events until the queue is closed and empty.
    pub(super) async fn run(self) {
        while let Ok(held) = self.queue.recv().await {
            let mut next = Some(held);
            while let Some(mut held) = next {
                held.turn = self.turn(&held).await;
                let mut finished = self.attempt(held).await;
                let back = self.contention.is_high().then(|| finished.comes_back()).flatten();
                if self.finished.send(finished).await.is_err() {
                    return;
                }
                next = match back {
                    None => None,
                    Some(back) => tokio::select! {
                        held = back => held.ok(),
                        () = self.cut.cancelled() => None,
                    },
                };
            }
        }
    }

    /// Waits for the event's turn, unless there is nothing left to run it for.
    async fn turn(&self, held: &Held) -> Option<Turn> {
        tokio::select! {
            turn = self.contention.turn(held.reruns) => turn,
            () = held.standing.lost() => None,
            () = self.cut.cancelled() => None,
        }
    }

    async fn attempt(&self, mut held: Box<Held>) -> Finished {
        let (handler, number) = self.pipeline.handler();
        let digest = handler.digest();
        held.span = telemetry::attempt_span(&self.pipeline.name, &held.leased, &digest);
        let verdict = if self.drain.is_cancelled() || self.brake.engaged() {
            Some(Verdict::Release)
        } else {
            self.counts.starts(&held.leased.event, held.leased.lease.attempt);
            self.verdict(&held, (handler.as_ref(), number), &digest).instrument(held.span.clone()).await
        };
        held.standing.attempt_over();
        let lease = held.leased.lease.clone();
        let settlement = verdict.map(|verdict| Settlement { lease, verdict, plugin: Some(digest) });
        Finished { held, settlement }
    }

    /// The handler's verdict; `None` where the lease was lost meanwhile.
    async fn verdict(
        &self,
        held: &Held,
        (handler, number): (&dyn Handler, u64),
        digest: &Arc<str>,
    ) -> Option<Verdict> {
        let Leased { event, lease } = &held.leased;
        let policy = &self.pipeline.retry;
        let delivery = Delivery {
            pipeline: &self.pipeline.name,
            group: self.pipeline.group.group.as_str(),
            attempt: lease.attempt,
            max_attempts: policy.max_attempts,
            state: Some(Arc::clone(&self.state)),
        };
        let called = self.counts.clock();
        tokio::select! {
            biased;
            () = held.standing.lost() => None,
            () = self.cut.cancelled() => Some(Verdict::Release),
            result = started(handler.handle(event, &delivery)) => {
                self.counts.handled(called);
                self.brake.attempted(result.as_ref().err(), handler, number);
                if let Err(fault) = &result {
                    self.counts.fault(fault.kind);
                }
                let origin = Origin {
                    group: &self.pipeline.group,
                    plugin: handler.name(),
                    digest,
                    hops_max: self.hops_max,
                };
                let result = result.map(|outcome| lineage::complete(outcome, event, &origin));
                Some(decide(result, lease.attempt, policy, self.pipeline.on_fault, rand::random()))
            }
        }
    }
}

/// Says that an attempt begins, in its span.
async fn started<T>(call: impl Future<Output = T>) -> T {
    tracing::debug!("started");
    call.await
}
