//! The engine: takes events under lease, has them handled, writes what became of them.
//!
//! Each pipeline is a straight line of parts, joined by bounded queues:
//! [`dispatcher`] (permits, then claims) → [`attempt`] (calls the handler, decides) →
//! [`settler`] (writes verdicts in batches) → the permit goes back. Beside it, [`leases`] keeps
//! what is held from running out, [`sweeper`] heals the store and trims it, and [`idle`] knows when
//! there is nothing left to do.
//!
//! Handlers run on a runtime of their own, so that no guest can delay a renewal or a settlement.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::Shared;

mod attempt;
mod dispatcher;
mod handler;
mod health;
mod idle;
mod leases;
mod permits;
mod pipeline;
mod prepare;
mod settler;
mod summary;
mod sweeper;

pub use handler::{Delivery, Handler};
pub use idle::{Left, UntilIdle};
pub use pipeline::Pipeline;
pub use prepare::{PartitionChoice, PrepareError, Prepared, Wanted, fit_attempts, fit_partitions, prepare};
pub use summary::{Summary, SummaryFaults};
pub use sweeper::Retention;

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long running attempts may go on after a drain began. What still runs then is handed
    /// back without burning an attempt.
    pub drain_timeout: Duration,
    /// End once there is nothing left to do; without it, run until told to stop.
    pub until_idle: Option<UntilIdle>,
    /// The consumer name; unique per start.
    pub consumer: String,
}

/// How a pipeline ended.
#[derive(Debug)]
pub struct Ended {
    /// What it did.
    pub summary: Summary,
    /// Why it stopped before it was told to; `None` where it did not.
    pub error: Option<crate::backend::Error>,
}

/// Runs pipelines until `stop` is cancelled, until there is nothing left to do (if so set), or
/// until all of them have failed; then drains. Answers in the order of `pipelines`.
///
/// `handlers` is the runtime on which handlers run. The one that this function runs on must have
/// threads of its own.
pub async fn run(
    backend: Shared,
    pipelines: Vec<Pipeline>,
    settings: Settings,
    handlers: tokio::runtime::Handle,
    stop: CancellationToken,
) -> Vec<Ended> {
    let settings = Arc::new(settings);
    let health = Arc::new(health::Health::default());
    let board = Arc::new(idle::Board::new(pipelines.len()));
    let stop = stop.child_token();
    let mut running = JoinSet::new();
    for (index, pipeline) in pipelines.into_iter().enumerate() {
        let parts = pipeline::Parts {
            backend: Arc::clone(&backend),
            pipeline: Arc::new(pipeline),
            settings: Arc::clone(&settings),
            health: Arc::clone(&health),
            seat: board.seat(index),
            handlers: handlers.clone(),
            stop: stop.clone(),
        };
        running.spawn(async move { (index, pipeline::run(parts).await) });
    }
    let mut ended: Vec<Option<Ended>> = std::iter::repeat_with(|| None).take(running.len()).collect();
    loop {
        tokio::select! {
            joined = running.join_next() => match joined {
                Some(Ok((index, end))) => {
                    board.leave(index);
                    ended[index] = Some(end);
                }
                // A pipeline's task neither panics nor is aborted; if it did, the others go on.
                Some(Err(error)) => tracing::error!(%error, "a pipeline's task ended abnormally"),
                None => break,
            },
            () = board.all_idle(), if settings.until_idle.is_some() && !stop.is_cancelled() => stop.cancel(),
        }
    }
    ended.into_iter().flatten().collect()
}
