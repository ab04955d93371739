//! Claims that are under way: one, or while there is a backlog two, so that the store reads the next
//! events while these are handed over.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Settings;
use super::pipeline::Pipeline;
use crate::backend::{ClaimRequest, Claimed, Error, Shared};

/// What one claim asks for at most: a step of the store must stay short.
const LIMIT_MAX: usize = 1024;

/// How many claims are under way while there is a backlog.
const DEPTH: usize = 2;

/// One pipeline's claims, in the order in which they were sent.
///
/// Each runs as a task of its own, to its end: what a claim takes that is given up half-way would be held
/// by no one. So whoever has asked has to take all answers.
pub(super) struct Claims {
    backend: Shared,
    pipeline: Arc<Pipeline>,
    settings: Arc<Settings>,
    asked: VecDeque<Asked>,
    /// The last answer was as long as was asked for: there is more.
    backlog: bool,
}

struct Asked {
    order: Order,
    answer: JoinHandle<Result<Claimed, Error>>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) limit: usize,
    pub(super) sweep: bool,
    pub(super) alone: bool,
    /// Before the request left.
    pub(super) sent: Instant,
}

impl Claims {
    pub(super) fn new(backend: Shared, pipeline: Arc<Pipeline>, settings: Arc<Settings>) -> Self {
        Self { backend, pipeline, settings, asked: VecDeque::with_capacity(DEPTH), backlog: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// There is a backlog: claims may overlap, and so be smaller without waiting for each other.
    pub(super) fn backlog(&self) -> bool {
        self.backlog
    }

    /// Whether another one may be sent. A sweep has the store for itself.
    pub(super) fn may_ask(&self, sweep: bool) -> bool {
        let alone = sweep || !self.backlog || self.asked.iter().any(|asked| asked.order.sweep);
        self.asked.len() < if alone { 1 } else { DEPTH }
    }

    /// For how many events there is no room any more, since they may be on their way.
    pub(super) fn reserved(&self) -> usize {
        self.asked.iter().map(|asked| asked.order.limit).sum()
    }

    /// Sends a claim.
    pub(super) fn ask(&mut self, limit: usize, sweep: bool, alone: bool) {
        let order = Order { limit: limit.min(LIMIT_MAX), sweep, alone, sent: Instant::now() };
        let backend = Arc::clone(&self.backend);
        let (pipeline, settings) = (Arc::clone(&self.pipeline), Arc::clone(&self.settings));
        let answer = tokio::spawn(async move {
            let request = ClaimRequest {
                group: &pipeline.group,
                consumer: &settings.consumer,
                partitions: &pipeline.partitions,
                limit: order.limit,
                lease: pipeline.lease,
                sweep: order.sweep,
                alone: order.alone,
            };
            backend.claim(&request).await
        });
        self.asked.push_back(Asked { order, answer });
    }

    /// The answer to the claim that was sent first; never, where none was. It may be dropped and asked
    /// for again.
    pub(super) async fn next(&mut self) -> (Order, Result<Claimed, Error>) {
        let Some(asked) = self.asked.front_mut() else { return std::future::pending().await };
        let answer = (&mut asked.answer).await;
        let order = asked.order;
        self.asked.pop_front();
        let answer =
            answer.unwrap_or_else(|error| Err(Error::Corrupt(format!("a claim ended abnormally: {error}"))));
        let taken = answer.as_ref().map_or(0, |claimed| claimed.leased.len() + claimed.dead_lettered.len());
        self.backlog = !order.alone && taken >= order.limit;
        (order, answer)
    }
}
