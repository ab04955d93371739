//! The engine: takes events under lease, has them handled, writes what became of them.
//!
//! Each pipeline is a straight line of parts, joined by bounded queues:
//! [`dispatcher`] (permits, then claims) → [`attempt`] (calls the handler, decides) →
//! [`settler`] (writes verdicts in batches) → the permit goes back. Beside it, [`leases`] keeps
//! what is held from running out, [`sweeper`] heals the store and trims it, and [`idle`] knows when
//! there is nothing left to do.
//!
//! Each pipeline's handlers run on [`threads`] of their own, so that no guest can delay a renewal or a
//! settlement, or the handlers of another pipeline. A [`brake`] pauses a pipeline whose plugin faults too
//! often.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::backend::Shared;

mod assemble;
mod attempt;
mod brake;
mod claims;
mod conditions;
mod contention;
mod dispatcher;
mod fleet;
mod gauges;
mod handler;
mod handler_state;
mod health;
mod idle;
mod leases;
mod lineage;
mod permits;
mod pipeline;
mod prepare;
mod progress;
mod readiness;
mod reload;
mod settler;
mod summary;
mod sweeper;
mod threads;
mod watch;

pub use assemble::{AssembleError, Plugins, assemble, outputs, retention, spec, wanted};
pub use conditions::{Condition, Conditions, Pause, Phase};
pub use fleet::{Changes, Remote, remote};
pub use handler::{Delivery, Handler, Slot};
pub use handler_state::StoreState;
pub use idle::{Left, UntilIdle};
pub use pipeline::{Pipeline, PipelineError};
pub use prepare::{
    Output, PartitionChoice, PrepareError, Prepared, Wanted, fit_attempts, fit_output, fit_partitions,
    prepare,
};
pub use readiness::{Check, Readiness};
pub use reload::{ReadConfig, Reloader};
pub use summary::{Summary, SummaryFaults};
pub use sweeper::Retention;
pub use watch::{Mark, Watch};

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
    /// Handlers that an event may come through, each deriving from the one before, until one that
    /// derives more makes a dead letter of it; at least 1.
    pub hops_max: u32,
}

/// How a pipeline ended.
#[derive(Debug)]
pub struct Ended {
    /// What it did.
    pub summary: Summary,
    /// Why it stopped before it was told to; `None` where it did not.
    pub error: Option<PipelineError>,
}

/// Runs pipelines until `stop` is cancelled, until there is nothing left to do (if so set), or
/// until all of them have failed; then drains. `changes` starts and stops single pipelines
/// meanwhile. Answers in the order in which the pipelines were started.
///
/// `conditions` says meanwhile how each of them is. The runtime that this function runs on must have
/// threads of its own.
pub async fn run(
    backend: Shared,
    pipelines: Vec<Pipeline>,
    settings: Settings,
    conditions: Arc<Conditions>,
    changes: Option<Changes>,
    stop: CancellationToken,
) -> Vec<Ended> {
    let stop = stop.child_token();
    conditions.enter(Phase::Running(stop.clone()));
    let mut fleet = fleet::Fleet::new(backend, settings, conditions, stop);
    for pipeline in pipelines {
        fleet.start(pipeline);
    }
    fleet.run(changes).await
}
