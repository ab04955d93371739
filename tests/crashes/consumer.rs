//! A consumer as the engine is one, but taken apart into its steps.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use wasmill::backend::{ClaimRequest, SettleRequest, Settled, Shared};
use wasmill::event::Leased;
use wasmill::outcome::{Cause, FailureKind, Settlement, Verdict};

use crate::bank::{Bank, LEASE};
use crate::{Cut, Fate};

/// Events of one claim.
const CLAIM_MAX: usize = 4;

pub(crate) struct Consumer {
    name: String,
    backend: Shared,
    /// Claimed, and not handled yet.
    held: VecDeque<Leased>,
    /// Handled, and not settled yet.
    handled: Vec<(Leased, Settlement)>,
}

impl Consumer {
    /// A process that starts: it has a connection of its own, and knows nothing.
    pub(crate) async fn new(bank: &Bank<'_>) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = format!("consumer-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        Ok(Self { name, backend: bank.connect().await?, held: VecDeque::new(), handled: Vec::new() })
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.handled.is_empty()
    }

    /// Claims, or handles one event, or settles what was handled. Says whether it lives on.
    pub(crate) async fn step(&mut self, bank: &Bank<'_>, cut: Cut) -> Result<bool> {
        if let Some(leased) = self.held.front() {
            let Some(verdict) = cut_off(verdict(bank, &self.backend, leased), cut).await else {
                return Ok(matches!(cut, Cut::Answer));
            };
            let settlement = Settlement { lease: leased.lease.clone(), verdict: verdict?, plugin: None };
            self.handled.extend(self.held.pop_front().map(|leased| (leased, settlement)));
            return Ok(true);
        }
        if !self.handled.is_empty() {
            return self.settle(bank, cut).await;
        }
        let request = ClaimRequest {
            group: &bank.group,
            consumer: &self.name,
            partitions: &bank.partitions,
            limit: CLAIM_MAX,
            lease: LEASE,
            sweep: true,
            alone: false,
        };
        let Some(claimed) = cut_off(self.backend.claim(&request), cut).await else {
            return Ok(matches!(cut, Cut::Answer));
        };
        let claimed = claimed?;
        ensure!(claimed.dead_lettered.is_empty(), "no attempts are used up: {:?}", claimed.dead_lettered);
        self.held.extend(claimed.leased);
        Ok(true)
    }

    async fn settle(&mut self, bank: &Bank<'_>, cut: Cut) -> Result<bool> {
        let settlements: Vec<_> = self.handled.iter().map(|(_, settlement)| settlement.clone()).collect();
        let request = SettleRequest { group: &bank.group, consumer: &self.name, settlements: &settlements };
        let Some(answers) = cut_off(self.backend.settle(&request), cut).await else {
            return Ok(matches!(cut, Cut::Answer));
        };
        for ((leased, _), answer) in std::mem::take(&mut self.handled).into_iter().zip(answers?) {
            match answer {
                Settled::Done | Settled::Stale => {}
                // Under the same lease once more, on what the store has now.
                Settled::Conflict => self.held.push_back(leased),
                Settled::ReceiptMismatch | Settled::Refused(_) => {
                    bail!("the settlement of {} was answered with {answer:?}", leased.event.id)
                }
            }
        }
        Ok(true)
    }

    /// Settles what it has, long after all of that was settled by others.
    pub(crate) async fn settle_late(&mut self, bank: &Bank<'_>) -> Result<()> {
        while !self.held.is_empty() {
            self.step(bank, Cut::None).await?;
        }
        self.step(bank, Cut::None).await?;
        ensure!(self.is_idle(), "{} still holds something", self.name);
        Ok(())
    }
}

/// What a handler would answer, with what it would stage.
async fn verdict(bank: &Bank<'_>, backend: &Shared, leased: &Leased) -> Result<Verdict> {
    let order = bank.order(&leased.event)?;
    // Read in any case: a handler that rejects may have read and staged before.
    let effects = bank.effects(backend, &leased.event, order).await?;
    Ok(match order.fate {
        Fate::Reject => {
            Verdict::DeadLetter { cause: Cause::Rejected, reason: "never".to_owned(), failure: None }
        }
        Fate::RetryFirst if leased.lease.attempt == 1 => Verdict::Retry {
            delay: Duration::ZERO,
            reason: "not now".to_owned(),
            failure: FailureKind::Retry,
        },
        Fate::Ack | Fate::RetryFirst => Verdict::Ack(effects),
    })
}

/// Does it as far as the cut lets it come; `None` where its end was not seen.
async fn cut_off<T>(step: impl Future<Output = T>, cut: Cut) -> Option<T> {
    match cut {
        Cut::None => Some(step.await),
        Cut::Before => None,
        Cut::After | Cut::Answer => {
            step.await;
            None
        }
        Cut::Within(polls) => {
            let mut step = pin!(step);
            let mut left = polls;
            std::future::poll_fn(|cx| match step.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending if left <= 1 => Poll::Ready(None),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            })
            .await
        }
    }
}
