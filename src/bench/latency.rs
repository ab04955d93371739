//! How long it takes from an append until the handler is called, while events come at a steady rate.
//!
//! Each event has a moment at which its append is to start, and its latency counts from there: when the
//! store or this process falls behind, what waits for its append waits in the figure too.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::engine::{checked, pipeline, settings};
use super::guest::Guest;
use super::meter::{Meter, histogram, record};
use super::{Error, Result, Round, Shape, Site, drive};
use crate::backend::Shared;
use crate::engine::{self, Delivery, Handler};
use crate::event::{Event, Name, NewEvent};
use crate::outcome::{Fault, Outcome};
use crate::plugin::Plugin;

/// Events of each partition that go first and do not count.
const WARM_UP: u64 = 20;

/// The system wakes a thread late by some tens of microseconds: for so long before its moment it does
/// not sleep.
const AWAKE: Duration = Duration::from_micros(150);

/// How long the engine may take from one event to the next.
const PATIENCE: Duration = Duration::from_secs(30);

/// One round, with so many events a second; at least one in ten minutes. Its latency is that from the
/// moment at which an event's append is to start until its handler is called. Runs on a runtime with
/// threads of its own.
///
/// # Errors
/// The store's; [`Error::Wrong`] where not every event was acked at its first attempt.
pub async fn round(site: &Site, shape: &Shape, guest: &Guest, rate: f64) -> Result<Round> {
    let group = drive::make(site, shape).await?;
    let interval = interval(rate);
    let (called, mut calls) = watch::channel(0);
    let clock = Arc::new(Clock {
        plugin: Arc::clone(&guest.plugin),
        interval,
        partitions: u64::from(shape.partitions),
        start: OnceLock::new(),
        latency: Mutex::new(histogram()?),
        called,
    });
    let stop = site.stop().child_token();
    let handler = Arc::clone(&clock) as Arc<dyn Handler>;
    let engine = engine::run(
        Arc::clone(&site.backend),
        vec![pipeline(shape, &group, handler)],
        settings(None),
        Arc::default(),
        None,
        stop.clone(),
    );
    let engine = tokio::spawn(engine);
    let measured = measure(site, shape, &group.stream, &clock, &mut calls).await;
    stop.cancel();
    let ended =
        engine.await.map_err(|error| Error::Wrong(format!("the engine ended abnormally: {error}")))?;
    let spent = measured?;
    let (acked, all) = (checked(ended)?, shape.events + WARM_UP * u64::from(shape.partitions));
    if acked != all {
        return Err(Error::Wrong(format!("{acked} of {all} events were acked")));
    }
    Ok(Round { events: shape.events, spent, latency: clock.latency() })
}

/// How long a question to the store and its answer take, so many times, asked at the moments and by the
/// kind of thread that [`round`] appends at and by: in an idle system most of either is waking up. In
/// nanoseconds.
///
/// # Errors
/// The store's; see [`super::Error`].
pub async fn round_trips(site: &Site, number: u64, rate: f64) -> Result<Histogram<u64>> {
    let (backend, interval, stop) = (Arc::clone(&site.backend), interval(rate), site.stop().clone());
    let runtime = tokio::runtime::Handle::current();
    let asked = tokio::task::spawn_blocking(move || {
        let (mut took, start) = (histogram()?, Instant::now() + interval);
        for number in 0..number {
            wait_for(moment(start, interval, number), &stop)?;
            let sent = Instant::now();
            runtime.block_on(backend.ping())?;
            record(&mut took, sent.elapsed());
        }
        Ok(took)
    });
    asked.await.map_err(|error| Error::Wrong(format!("a thread ended abnormally: {error}")))?
}

/// Warms the engine up, appends the events at their moments, and waits until all handlers were called.
async fn measure(
    site: &Site,
    shape: &Shape,
    stream: &Name,
    clock: &Clock,
    calls: &mut watch::Receiver<u64>,
) -> Result<super::Spent> {
    let warm_up = WARM_UP * u64::from(shape.partitions);
    drive::append(site, stream, warm_up, &Shape { concurrency: 1, ..*shape }).await?;
    until(calls, warm_up, site.stop()).await?;
    let meter = Meter::start(site).await?;
    let producer = Producer {
        backend: Arc::clone(&site.backend),
        stream: stream.clone(),
        template: drive::event(shape.payload_bytes)?,
        shape: *shape,
        interval: clock.interval,
        start: *clock.start.get_or_init(|| Instant::now() + clock.interval),
        stop: site.stop().clone(),
    };
    // A thread of its own: a timer of the runtime is late by up to a millisecond.
    let runtime = tokio::runtime::Handle::current();
    let produced = tokio::task::spawn_blocking(move || producer.run(&runtime)).await;
    produced.map_err(|error| Error::Wrong(format!("the producer ended abnormally: {error}")))??;
    until(calls, warm_up + shape.events, site.stop()).await?;
    meter.stop(site).await
}

/// Waits for so many calls of the handler.
async fn until(calls: &mut watch::Receiver<u64>, number: u64, stop: &CancellationToken) -> Result<()> {
    while *calls.borrow_and_update() < number {
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(Error::Interrupted),
            next = tokio::time::timeout(PATIENCE, calls.changed()) => next,
        };
        if !matches!(next, Ok(Ok(()))) {
            return Err(Error::Wrong("the engine does not come to all events".to_owned()));
        }
    }
    Ok(())
}

/// Appends each event at its moment; those whose moments are past, together.
struct Producer {
    backend: Shared,
    stream: Name,
    template: NewEvent,
    shape: Shape,
    interval: Duration,
    start: Instant,
    stop: CancellationToken,
}

impl Producer {
    fn run(self, runtime: &tokio::runtime::Handle) -> Result<()> {
        let (mut next, partitions) = (0, u64::from(self.shape.partitions));
        while next < self.shape.events {
            wait_for(moment(self.start, self.interval, next), &self.stop)?;
            let most = self.shape.events.min(next + self.shape.batch as u64);
            let now = Instant::now();
            let mut batch = Vec::new();
            while next < most && moment(self.start, self.interval, next) <= now {
                let partition = u32::try_from(next % partitions).ok();
                batch.push(NewEvent { partition, ..self.template.clone() });
                next += 1;
            }
            runtime.block_on(self.backend.append(&self.stream, &batch))?;
        }
        Ok(())
    }
}

/// Waits until a moment, and returns no earlier and hardly later.
fn wait_for(moment: Instant, stop: &CancellationToken) -> Result<()> {
    // In slices, so that a slow rate does not hold up the end.
    while let Some(left) = moment.checked_duration_since(Instant::now() + AWAKE) {
        if stop.is_cancelled() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    while Instant::now() < moment {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Between two events at this rate a second.
fn interval(rate: f64) -> Duration {
    Duration::from_secs_f64(rate.max(1.0 / 600.0).recip())
}

/// When the append of an event is to start.
fn moment(start: Instant, interval: Duration, number: u64) -> Instant {
    let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).saturating_mul(number);
    start.checked_add(Duration::from_nanos(ns)).unwrap_or(start)
}

/// Notes when it is called, and calls the guest.
struct Clock {
    plugin: Arc<Plugin>,
    interval: Duration,
    partitions: u64,
    /// The moment of the first event.
    start: OnceLock<Instant>,
    latency: Mutex<Histogram<u64>>,
    called: watch::Sender<u64>,
}

impl Clock {
    fn latency(&self) -> Histogram<u64> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The moment of an event; `None` of one that does not count.
    fn moment(&self, event: &Event) -> Option<Instant> {
        let counted = event.sequence.checked_sub(WARM_UP + 1)?;
        let number = counted * self.partitions + u64::from(event.partition);
        Some(moment(*self.start.get()?, self.interval, number))
    }
}

#[async_trait]
impl Handler for Clock {
    fn name(&self) -> &str {
        self.plugin.name()
    }

    fn digest(&self) -> Arc<str> {
        Arc::clone(self.plugin.digest())
    }

    async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault> {
        let called = Instant::now();
        if let Some(moment) = self.moment(event) {
            let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
            record(&mut latency, called.saturating_duration_since(moment));
        }
        self.called.send_modify(|calls| *calls += 1);
        self.plugin.handle(event, delivery).await
    }
}
