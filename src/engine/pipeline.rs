//! One pipeline's life: starts its parts, lets them run, drains them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::attempt::Worker;
use super::brake::Brake;
use super::conditions::Conditions;
use super::contention::Contention;
use super::dispatcher::Dispatcher;
use super::gauges;
use super::handler::{Handler, Slot};
use super::handler_state::StoreState;
use super::health::Health;
use super::idle::Seat;
use super::leases::{self, Leases};
use super::permits::Permits;
use super::prepare::Wanted;
use super::settler::Settler;
use super::summary::Counts;
use super::sweeper::{self, Retention};
use super::threads::Threads;
use super::{Ended, Settings};
use crate::backend::{Error, Shared};
use crate::event::GroupKey;
use crate::metrics::GroupMeters;
use crate::outcome::OnFault;
use crate::plugin::StateSource;
use crate::retry::RetryPolicy;

/// How long the last settlements of a drain may take before the engine ends without them: their
/// leases then run out, and the events come again.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A pipeline that is ready to run: its stream and group exist, its plugin is loaded.
pub struct Pipeline {
    /// Its name, unique in the engine.
    pub name: Arc<str>,
    /// The group that it takes events of.
    pub group: GroupKey,
    /// The partitions that it takes events from.
    pub partitions: Vec<u32>,
    /// How many attempts run at once; at least 1.
    pub concurrency: usize,
    /// Upper bound of what it holds under lease; at least `concurrency`.
    pub in_flight_max: usize,
    /// How long a lease lasts unless renewed.
    pub lease: Duration,
    /// How failures are repeated; its `max_attempts` is the group's.
    pub retry: RetryPolicy,
    /// What happens when an attempt ends without an answer.
    pub on_fault: OnFault,
    /// What handles the events.
    pub plugin: Arc<Slot>,
    /// How long the stream's events are kept.
    pub retention: Retention,
    /// What to create again if the store loses it.
    pub wanted: Wanted,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("name", &self.name)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl Pipeline {
    /// The build that new attempts use, and its number in the plugin's slot.
    pub(super) fn handler(&self) -> (Arc<dyn Handler>, u64) {
        self.plugin.numbered()
    }
}

/// What a pipeline runs with.
pub(super) struct Parts {
    pub(super) backend: Shared,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) settings: Arc<Settings>,
    pub(super) health: Arc<Health>,
    pub(super) seat: Seat,
    pub(super) brake: Arc<Brake>,
    pub(super) counts: Arc<Counts>,
    pub(super) permits: Arc<Permits>,
    pub(super) conditions: Arc<Conditions>,
    /// Cancelled when the engine is to stop.
    pub(super) stop: CancellationToken,
}

/// Why a pipeline stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The store failed for good, or refuses.
    #[error(transparent)]
    Store(#[from] Error),
    /// Its plugin faulted too often, in a run that is to end and has no one who could resume it.
    #[error("too many attempts ended in a fault (`on_fault`); what it held was handed back")]
    Faults,
    /// The operating system gives it no threads.
    #[error("there are no threads for its handlers: {0}")]
    Threads(std::io::Error),
}

/// The first reason for which a pipeline has to stop by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure(Arc<Mutex<Option<PipelineError>>>);

impl Failure {
    /// The first one is the cause, and is said; later ones follow from it.
    pub(super) fn set(&self, pipeline: &str, error: impl Into<PipelineError>) {
        let error = error.into();
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            tracing::error!(pipeline, %error, "the pipeline stops; others go on");
            *first = Some(error);
        }
    }

    fn take(&self) -> Option<PipelineError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs a pipeline until it is stopped, has failed or is idle, then drains it.
pub(super) async fn run(parts: Parts) -> Ended {
    let Parts { backend, pipeline, settings, health, seat, brake, counts, permits, conditions, stop } = parts;
    let threads = match Threads::start(pipeline.concurrency) {
        Ok(threads) => threads,
        Err(error) => {
            let failure = Failure::default();
            failure.set(&pipeline.name, PipelineError::Threads(error));
            conditions.stopped(&pipeline.name);
            return Ended { summary: counts.summary(&pipeline.name, None), error: failure.take() };
        }
    };
    let leases = Arc::new(Leases::default());
    let failure = Failure::default();
    let (drain, cut) = (CancellationToken::new(), CancellationToken::new());
    // A settler that has to give up stops its own pipeline, not the others.
    let stop = stop.child_token();
    let (queue, queued) = async_channel::bounded(pipeline.in_flight_max.max(1));
    let (finished, to_settle) = mpsc::channel(pipeline.in_flight_max.max(1));

    let state = Arc::new(StoreState(Arc::clone(&backend)));
    let contention = Arc::new(Contention::default());
    let mut workers = JoinSet::new();
    for _ in 0..pipeline.concurrency.max(1) {
        let worker = Worker {
            pipeline: Arc::clone(&pipeline),
            hops_max: settings.hops_max,
            state: Arc::clone(&state) as Arc<dyn StateSource>,
            queue: queued.clone(),
            finished: finished.clone(),
            counts: Arc::clone(&counts),
            brake: Arc::clone(&brake),
            contention: Arc::clone(&contention),
            drain: drain.clone(),
            cut: cut.clone(),
        };
        workers.spawn_on(worker.run(), threads.handle());
    }
    drop((queued, finished));
    let settler = Settler {
        backend: Arc::clone(&backend),
        pipeline: Arc::clone(&pipeline),
        settings: Arc::clone(&settings),
        health: Arc::clone(&health),
        counts: Arc::clone(&counts),
        failure: failure.clone(),
        stop: stop.clone(),
        // Weak, so that workers end when the dispatcher has ended.
        again: queue.downgrade(),
        contention,
        stir: seat.stirrer(),
    };
    let settler = AbortOnDropHandle::new(tokio::spawn(settler.run(to_settle)));
    let renewer =
        leases::renew(Arc::clone(&backend), Arc::clone(&pipeline), Arc::clone(&leases), Arc::clone(&health));
    let renewer = AbortOnDropHandle::new(tokio::spawn(renewer));
    let sweeper =
        sweeper::sweep(Arc::clone(&backend), Arc::clone(&pipeline), Arc::clone(&health), Arc::clone(&counts));
    let sweeper = AbortOnDropHandle::new(tokio::spawn(sweeper));
    let gauges = conditions.is_scraped.then(|| {
        let meters = GroupMeters::new(Arc::clone(conditions.metrics()), &pipeline.name, &pipeline.group);
        let gauges = gauges::read(Arc::clone(&backend), Arc::clone(&pipeline), meters);
        AbortOnDropHandle::new(tokio::spawn(gauges))
    });

    let dispatcher = Dispatcher::new(
        Arc::clone(&backend),
        Arc::clone(&pipeline),
        Arc::clone(&settings),
        health,
        (queue, Arc::clone(&leases), permits, Arc::clone(&counts), brake),
        seat,
        stop,
    );
    let left = match dispatcher.run().await {
        Ok(left) => left,
        Err(error) => {
            failure.set(&pipeline.name, error);
            None
        }
    };

    drop((sweeper, gauges));
    // The dispatcher is gone, and with it the queue's sender: workers end once it is empty.
    drain.cancel();
    if tokio::time::timeout(settings.drain_timeout, finish(&mut workers)).await.is_err() {
        tracing::warn!(pipeline = %pipeline.name, "the drain ran out of time; what still runs is handed back");
        cut.cancel();
        finish(&mut workers).await;
    }
    match tokio::time::timeout(FLUSH_TIMEOUT, settler).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            failure.set(&pipeline.name, Error::Corrupt(format!("the settler ended abnormally: {error}")))
        }
        Err(_) => {
            tracing::warn!(pipeline = %pipeline.name, "the last settlements could not be written; their events come again");
        }
    }
    // What is still kept has no verdict in the store that we know of.
    counts.left_unknown(leases.count());
    drop(renewer);
    if let Err(error) = backend.retire(&pipeline.group, &settings.consumer).await {
        tracing::debug!(pipeline = %pipeline.name, %error, "the consumer's name stays behind");
    }
    let error = failure.take();
    match error {
        Some(_) => conditions.stopped(&pipeline.name),
        None => conditions.remove(&pipeline.name),
    }
    Ended { summary: counts.summary(&pipeline.name, left), error }
}

async fn finish(workers: &mut JoinSet<()>) {
    while let Some(joined) = workers.join_next().await {
        if let Err(error) = joined {
            tracing::error!(%error, "a worker ended abnormally");
        }
    }
}
