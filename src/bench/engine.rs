//! The engine drains a backlog: events are claimed, a guest is called with each, and they are settled.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hdrhistogram::Histogram;

use super::guest::Guest;
use super::meter::{Meter, histogram, record};
use super::{Error, Result, Round, Shape, Site, drive};
use crate::backend::Start;
use crate::engine::{
    self, Delivery, Ended, Handler, PartitionChoice, Pipeline, Retention, Settings, Slot, UntilIdle, Wanted,
};
use crate::event::{Event, GroupKey, random_id};
use crate::outcome::{Fault, OnFault, Outcome};
use crate::plugin::Plugin;
use crate::retry::RetryPolicy;

/// The name of the one pipeline.
pub(super) const PIPELINE: &str = "bench";

/// Events that a pipeline holds, at least: what a pipeline file that does not say gets.
const IN_FLIGHT_MAX: usize = 256;

const LEASE: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const HOPS_MAX: u32 = 32;

/// One round: from the engine's start until it has found that nothing is left. Its latency is that of a
/// call of the guest, the host's part included. Runs on a runtime with threads of its own.
///
/// # Errors
/// The store's; [`Error::Wrong`] where not every event was acked at its first attempt.
pub async fn round(site: &Site, shape: &Shape, guest: &Guest) -> Result<Round> {
    let group = drive::make(site, shape).await?;
    let filling = Shape { concurrency: 1, ..*shape };
    drive::append(site, &group.stream, shape.events, &filling).await?;
    let probe = Arc::new(Probe::new(guest)?);
    let meter = Meter::start(site).await?;
    drain(site, shape, &group, Arc::clone(&probe) as Arc<dyn Handler>).await?;
    let spent = meter.stop(site).await?;
    Ok(Round { events: shape.events, spent, latency: probe.calls() })
}

/// Runs the engine until nothing is left, and checks that it acked all events, each once.
pub(super) async fn drain(
    site: &Site,
    shape: &Shape,
    group: &GroupKey,
    handler: Arc<dyn Handler>,
) -> Result<()> {
    let until_idle = Some(UntilIdle { wait: Some(Duration::ZERO) });
    let pipeline = pipeline(shape, group, handler);
    let ended = engine::run(
        Arc::clone(&site.backend),
        vec![pipeline],
        settings(until_idle),
        Arc::default(),
        None,
        site.stop().clone(),
    );
    let ended = ended.await;
    site.going()?;
    let acked = checked(ended)?;
    if acked == shape.events {
        Ok(())
    } else {
        Err(Error::Wrong(format!("{acked} of {} events were acked", shape.events)))
    }
}

/// How many events one pipeline has acked, where it did nothing else.
pub(super) fn checked(ended: Vec<Ended>) -> Result<u64> {
    let mut acked = 0;
    for Ended { summary, error } in ended {
        if let Some(error) = error {
            return Err(Error::Wrong(format!("the engine stopped: {error}")));
        }
        let faults = summary.faults.trap + summary.faults.timeout + summary.faults.memory;
        if summary.retried + summary.dead_lettered + summary.stale + summary.unknown + faults > 0 {
            return Err(Error::Wrong(format!("events were not just acked: {summary:?}")));
        }
        acked += summary.acked;
    }
    Ok(acked)
}

pub(super) fn settings(until_idle: Option<UntilIdle>) -> Settings {
    let consumer = format!("bench-{}", &random_id()[..8]);
    Settings { drain_timeout: DRAIN_TIMEOUT, until_idle, consumer, hops_max: HOPS_MAX }
}

pub(super) fn pipeline(shape: &Shape, group: &GroupKey, handler: Arc<dyn Handler>) -> Pipeline {
    Pipeline {
        name: PIPELINE.into(),
        group: group.clone(),
        partitions: (0..shape.partitions).collect(),
        concurrency: shape.concurrency,
        in_flight_max: IN_FLIGHT_MAX.max(shape.concurrency),
        lease: LEASE,
        retry: RetryPolicy::default(),
        on_fault: OnFault::Retry,
        plugin: Slot::new(handler),
        retention: Retention::default(),
        wanted: Wanted {
            group: group.clone(),
            stream_partitions: Some(shape.partitions),
            partitions: PartitionChoice::All,
            max_attempts: None,
            start: Start::Beginning,
        },
    }
}

/// Calls the guest, and keeps how long that took.
pub(super) struct Probe {
    plugin: Arc<Plugin>,
    calls: Mutex<Histogram<u64>>,
}

impl Probe {
    pub(super) fn new(guest: &Guest) -> Result<Self> {
        Ok(Self { plugin: Arc::clone(&guest.plugin), calls: Mutex::new(histogram()?) })
    }

    pub(super) fn calls(&self) -> Histogram<u64> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl Handler for Probe {
    fn name(&self) -> &str {
        self.plugin.name()
    }

    fn digest(&self) -> Arc<str> {
        Arc::clone(self.plugin.digest())
    }

    async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault> {
        let called = Instant::now();
        let answer = self.plugin.handle(event, delivery).await;
        let took = called.elapsed();
        record(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner), took);
        answer
    }
}
