//! Takes events for a pipeline: permits first, then claims, and nothing faster than the handlers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::attempt::Held;
use super::brake::Brake;
use super::claims::{Claims, Order};
use super::health::{Backoff, Health};
use super::idle::{IdleWatch, Left, Seat, Step};
use super::leases::Leases;
use super::permits::{Look, Permits, Window};
use super::pipeline::{Pipeline, PipelineError};
use super::prepare::{PrepareError, Prepared, Wanted, prepare, prepare_outputs};
use super::summary::Counts;
use crate::backend::{Claimed, Error, ErrorClass, Shared, Start};
use crate::event::Leased;
use crate::telemetry;

/// The time between two looks for expired leases: a quarter of the pipeline's lease, within these.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(250);
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(5);

/// After the store was away, leases that ran out meanwhile are looked for only so much later: those
/// who held them, this engine among them, renew and settle first. Longer than any back-off.
const SWEEP_AFTER_OUTAGE: Duration = Duration::from_secs(2);

/// A store may say "there may be something" when there is not. After so many such answers in a row
/// the dispatcher pauses a little before it asks again.
const EARLY_WAKES_MAX: u32 = 3;
const EARLY_WAKE_PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Dispatcher {
    backend: Shared,
    pipeline: Arc<Pipeline>,
    health: Arc<Health>,
    queue: async_channel::Sender<Box<Held>>,
    leases: Arc<Leases>,
    permits: Arc<Permits>,
    counts: Arc<Counts>,
    brake: Arc<Brake>,
    seat: Seat,
    stop: CancellationToken,
    claims: Claims,
    window: Window,
    next_ticket: u64,
    sweep_at: Instant,
    backoff: Backoff,
    early_wakes: u32,
    /// The last operation failed.
    away: bool,
    idle: Option<IdleWatch>,
}

type Wiring = (async_channel::Sender<Box<Held>>, Arc<Leases>, Arc<Permits>, Arc<Counts>, Arc<Brake>);

impl Dispatcher {
    pub(super) fn new(
        backend: Shared,
        pipeline: Arc<Pipeline>,
        settings: Arc<Settings>,
        health: Arc<Health>,
        (queue, leases, permits, counts, brake): Wiring,
        seat: Seat,
        stop: CancellationToken,
    ) -> Self {
        let now = Instant::now();
        let window = Window::new(pipeline.concurrency, pipeline.in_flight_max, now);
        let idle = settings.until_idle.as_ref().map(|until| IdleWatch::new(until, &pipeline));
        let claims = Claims::new(Arc::clone(&backend), Arc::clone(&pipeline), settings);
        Self {
            backend,
            pipeline,
            health,
            queue,
            leases,
            permits,
            counts,
            brake,
            seat,
            stop,
            claims,
            window,
            next_ticket: 0,
            sweep_at: now,
            backoff: Backoff::default(),
            early_wakes: 0,
            away: false,
            idle,
        }
    }

    /// Claims until stopped. Answers with what was left to others, where it was to end when idle.
    pub(super) async fn run(mut self) -> Result<Option<Left>, PipelineError> {
        let ended = self.dispatch().await;
        // What is on its way is taken all the same: the workers hand it back.
        self.gather().await;
        ended?;
        Ok(self.idle.and_then(IdleWatch::left))
    }

    async fn dispatch(&mut self) -> Result<(), PipelineError> {
        let stop = self.stop.clone();
        loop {
            let step = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                step = self.step() => step,
            };
            match step {
                Next::Ask(_) if self.brake.engaged() => {
                    self.gather().await;
                    self.hold().await?;
                }
                Next::Ask(room) => {
                    let sweep = self.sweep_is_due();
                    self.claims.ask(room, sweep, false);
                }
                Next::Answer(order, answer) => match self.answered(order, answer).await {
                    Ok(taken) => self.took(taken).await?,
                    Err(error) => {
                        self.gather().await;
                        self.recover(error).await?;
                    }
                },
            }
        }
    }

    /// What is to be done next. First of all another claim, so that the store works on it while the
    /// answer to the one before is handed over; but only where it is worth its while: the handlers are
    /// about to run dry, or a good part of the window is free (so that a fast handler's claims stay
    /// large).
    async fn step(&mut self) -> Next {
        let sweep = self.sweep_is_due();
        let may_ask = self.claims.may_ask(sweep);
        let Self { claims, permits, window, counts, queue, pipeline, .. } = self;
        // Claims that overlap may be half as large: neither waits for the other one's events.
        let (reserved, first, share) =
            (claims.reserved(), claims.is_empty(), if claims.backlog() { 4 } else { 2 });
        let mut room = 0;
        let enough = permits.until(|held| {
            let size = window.size(counts.started.load(Ordering::Relaxed), Instant::now());
            room = size.saturating_sub(held + reserved);
            if room > 0 && (room * share >= size || first && queue.len() < pipeline.concurrency) {
                Look::Enough
            } else if first {
                Look::at_any(held)
            } else {
                Look::AtMost(size.saturating_sub(reserved + size.div_ceil(share)))
            }
        });
        tokio::select! {
            biased;
            () = enough, if may_ask => {}
            (order, answer) = claims.next() => return Next::Answer(order, answer),
        }
        Next::Ask(room)
    }

    /// Takes what is on its way, and hands it over.
    async fn gather(&mut self) {
        while !self.claims.is_empty() {
            let (order, answer) = self.claims.next().await;
            if let Err(error) = self.answered(order, answer).await {
                // Its cause is still there for the next claim, if there is one.
                tracing::debug!(pipeline = %self.pipeline.name, %error, "a claim failed");
            }
        }
    }

    /// Waits until the pipeline may go on, or is to stop. A run that is to end when idle has no one
    /// who could resume it.
    async fn hold(&self) -> Result<(), PipelineError> {
        if self.idle.is_some() {
            return Err(PipelineError::Faults);
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.brake.released(&self.pipeline.plugin) => {}
        }
        Ok(())
    }

    /// Whether the next claim is to look for expired leases.
    fn sweep_is_due(&mut self) -> bool {
        let now = Instant::now();
        if std::mem::take(&mut self.away) {
            self.sweep_at = self.sweep_at.max(now + SWEEP_AFTER_OUTAGE);
        }
        now >= self.sweep_at
    }

    /// Chooses when to look for expired leases again. A full answer may have left some behind: if there
    /// were any in it, the next claim looks; else soon, since events that are new fill a claim too.
    fn swept(&mut self, order: Order, claimed: &Claimed) {
        let Claimed { leased, dead_lettered, .. } = claimed;
        let full = leased.len() + dead_lettered.len() >= order.limit;
        let found = !dead_lettered.is_empty() || leased.iter().any(|leased| leased.lease.attempt > 1);
        if !(full && found) {
            let soon = if full { SWEEP_EVERY_MIN } else { self.pipeline.lease / 4 };
            self.sweep_at = order.sent + soon.clamp(SWEEP_EVERY_MIN, SWEEP_EVERY_MAX);
        }
    }

    /// Hands what a claim took to the workers.
    async fn answered(&mut self, order: Order, answer: Result<Claimed, Error>) -> Result<Taken, Error> {
        let claimed = answer?;
        self.counts.claim_answered(order.sent.elapsed());
        self.health.works();
        self.backoff.reset();
        let taken = claimed.leased.len() + claimed.dead_lettered.len();
        if order.sweep && !order.alone {
            self.swept(order, &claimed);
        }
        for death in &claimed.dead_lettered {
            telemetry::dead_lettered_at_claim(&self.pipeline.name, death);
            self.counts.dead_lettered_at_claim();
        }
        if taken > 0 {
            self.counts.busy();
            self.seat.busy();
            self.early_wakes = 0;
            if let Some(idle) = &mut self.idle {
                idle.busy();
            }
        }
        self.hand_over(claimed.leased, order.sent).await?;
        Ok(Taken { any: taken > 0, suspects: claimed.suspects })
    }

    /// Gives events to the workers. The queue is as long as the window can get, so this does not
    /// wait; it fails only when no worker is left, and then nothing may be claimed any more.
    async fn hand_over(&mut self, leased: Vec<Leased>, granted: Instant) -> Result<(), Error> {
        let (first, count) = (self.next_ticket, leased.len() as u64);
        self.next_ticket += count;
        self.counts.claimed(&leased);
        let kept = self.leases.keep(first, leased.iter().map(|leased| &leased.lease), granted);
        for ((ticket, leased), standing) in (first..).zip(leased).zip(kept) {
            let held = Box::new(Held {
                leased,
                ticket,
                reruns: 0,
                standing,
                span: tracing::Span::none(),
                leases: Arc::clone(&self.leases),
                back: None,
                turn: None,
                _permit: self.permits.take(),
            });
            let sent = self.queue.send(held).await;
            sent.map_err(|_| Error::Corrupt("the pipeline's workers have ended abnormally".to_owned()))?;
        }
        Ok(())
    }

    async fn took(&mut self, taken: Taken) -> Result<(), Error> {
        // A suspect may be gone before its turn: then there is as little to do as without one.
        let alone = taken.suspects && self.alone().await?;
        if taken.any || alone || !self.claims.is_empty() { Ok(()) } else { self.rest().await }
    }

    /// Runs one event that may have killed its consumer, with nothing else in this pipeline's
    /// hands, so that it cannot spend its neighbours' attempts again. Says whether there was
    /// anything to do.
    async fn alone(&mut self) -> Result<bool, Error> {
        self.gather().await;
        if !self.nothing_held().await {
            return Ok(true);
        }
        self.claims.ask(1, false, true);
        let (order, answer) = self.claims.next().await;
        match self.answered(order, answer).await {
            Ok(taken) if taken.any => {
                self.nothing_held().await;
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) => self.recover(error).await.map(|()| true),
        }
    }

    /// Waits until all that this pipeline holds is settled; false where it is to stop before.
    async fn nothing_held(&self) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = self.permits.none_held() => true,
        }
    }

    /// Nothing is ready: waits until something may be.
    async fn rest(&mut self) -> Result<(), Error> {
        let until_sweep = self.sweep_at.saturating_duration_since(Instant::now());
        let mut timeout = until_sweep.max(Duration::from_millis(1));
        let busy = self.permits.held() > 0;
        // Before the look, so that what is appended after it ends the wait.
        let stirred = self.seat.stirred();
        if let Some(idle) = &mut self.idle
            && !busy
        {
            match idle.look(&self.backend, &self.pipeline, &self.counts).await {
                Ok(Step::Done) => self.seat.idle(&stirred),
                Ok(Step::LookAgain) => {
                    self.sweep_at = Instant::now();
                    return Ok(());
                }
                Ok(Step::Wait(wait)) => {
                    timeout = timeout.min(wait);
                    self.sweep_at = self.sweep_at.min(Instant::now() + wait);
                }
                Err(error) => return self.recover(error).await,
            }
        }
        let asleep = Instant::now();
        let waited = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            // A run that is to end when idle ends with the last settlement, which wakes no wait.
            () = self.permits.none_held(), if busy && self.idle.is_some() => return Ok(()),
            () = stirred.wait(), if self.idle.is_some() => return Ok(()),
            waited = self.backend.wait(&self.pipeline.group, &self.pipeline.partitions, timeout) => waited,
        };
        if let Err(error) = waited {
            return self.recover(error).await;
        }
        if asleep.elapsed() >= EARLY_WAKE_PAUSE.min(timeout) {
            self.early_wakes = 0;
            return Ok(());
        }
        self.early_wakes += 1;
        if self.early_wakes > EARLY_WAKES_MAX {
            self.pause(EARLY_WAKE_PAUSE).await;
        }
        Ok(())
    }

    /// After a failed operation: waits, creates again what the store lost, or gives up.
    async fn recover(&mut self, error: Error) -> Result<(), Error> {
        match error.class() {
            ErrorClass::Retry | ErrorClass::Ambiguous => self.health.failed(&error),
            ErrorClass::NotFound => return self.create_again(error).await,
            ErrorClass::Request | ErrorClass::Fatal => return Err(error),
        }
        self.away = true;
        let wait = self.backoff.next();
        self.pause(wait).await;
        Ok(())
    }

    /// The store lost the group with all that it knew of it (it was flushed, or another program
    /// deleted it): the log is new, and is read from its beginning, whatever a new group's start is.
    async fn create_again(&mut self, lost: Error) -> Result<(), Error> {
        tracing::warn!(pipeline = %self.pipeline.name, error = %lost, "the store lost the group; it is created again");
        let error = match self.prepare_again().await {
            Ok(prepared) => return self.fits(&prepared),
            Err(PrepareError::Store(error)) => error,
            Err(error) => return Err(Error::Refused(error.to_string())),
        };
        match error.class() {
            ErrorClass::Retry | ErrorClass::Ambiguous => self.health.failed(&error),
            // Gone again between two steps: the next claim says so, and is asked after a pause.
            ErrorClass::NotFound => {}
            ErrorClass::Request | ErrorClass::Fatal => return Err(error),
        }
        let wait = self.backoff.next();
        self.pause(wait).await;
        Ok(())
    }

    /// The streams that the plugin appends to come first: without them an event that is claimed would
    /// spend its attempts.
    async fn prepare_again(&self) -> Result<Prepared, PrepareError> {
        prepare_outputs(self.backend.as_ref(), &self.pipeline.plugin.outputs()).await?;
        let wanted = Wanted { start: Start::Beginning, ..self.pipeline.wanted.clone() };
        prepare(self.backend.as_ref(), &wanted).await
    }

    /// Whether what is there now is what this pipeline was started for.
    fn fits(&self, prepared: &Prepared) -> Result<(), Error> {
        let (stream, group) = (&self.pipeline.group.stream, &self.pipeline.group.group);
        if prepared.partitions != self.pipeline.partitions {
            return Err(Error::Refused(format!(
                "the stream `{stream}` has other partitions than before; start again"
            )));
        }
        if prepared.max_attempts != self.pipeline.retry.max_attempts {
            return Err(Error::Refused(format!(
                "the group `{group}` has another max_attempts than before; start again"
            )));
        }
        Ok(())
    }

    async fn pause(&self, wait: Duration) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// What a dispatcher does next.
enum Next {
    /// Claim so many events.
    Ask(usize),
    /// Take in an answer.
    Answer(Order, Result<Claimed, Error>),
}

/// What a claim brought.
struct Taken {
    /// Anything at all, a dead letter included.
    any: bool,
    /// See [`crate::backend::Claimed::suspects`].
    suspects: bool,
}
