//! What scenarios do with a store: fill it, and work on it as an engine would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::meter::{histogram, merge, record};
use super::{Error, PAYLOAD_BYTES_MIN, Result, Shape, Site};
use crate::backend::{ClaimRequest, NewGroup, SETTLE_BATCH_MAX, SettleRequest, Settled, Shared, Start};
use crate::event::{GroupKey, JsonObject, Lease, Name, NewEvent, random_id};
use crate::outcome::{Cause, Effects, FailureKind, Settlement, Verdict};

/// Most events of one call.
pub const BATCH_MAX: usize = SETTLE_BATCH_MAX;

/// Lease of what is claimed and settled at once.
const LEASE: Duration = Duration::from_secs(30);

/// Between two claims of a worker that also look for leases that ran out, once it has seen all: as an
/// engine with this lease does.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Batches that a worker holds, out of which it settles in any order.
const WINDOW: usize = 4;

/// Deliveries of an event before it is a dead letter.
const MAX_ATTEMPTS: u32 = 5;

/// For how long retries are parked: they are not to come back.
const PARKED: Duration = Duration::from_secs(3600);

/// How long workers that find nothing wait for what others hold.
const PATIENCE: Duration = Duration::from_secs(10);

/// How claimed events end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// All are acked.
    Ack,
    /// Of a hundred, 95 are acked, 4 are parked and 1 becomes a dead letter.
    Mixed,
}

/// A new stream with one group.
pub(super) async fn make(site: &Site, shape: &Shape) -> Result<GroupKey> {
    let name = |text: &str| Name::new(text).map_err(crate::backend::Error::from);
    let stream = name(&format!("bench-{}", &random_id()[..8]))?;
    let group = GroupKey::new(stream, name("bench")?);
    site.backend.create_stream(&group.stream, shape.partitions).await?;
    let new = NewGroup { max_attempts: MAX_ATTEMPTS, start: Start::Beginning };
    site.backend.create_group(&group, new).await?;
    Ok(group)
}

/// An event with a payload of so many bytes.
pub(super) fn event(payload_bytes: usize) -> Result<NewEvent> {
    let text = "x".repeat(payload_bytes.saturating_sub(PAYLOAD_BYTES_MIN));
    let payload = JsonObject::parse(format!("{{\"text\":\"{text}\"}}"));
    let payload = payload.map_err(|error| Error::Wrong(format!("its payload cannot be made: {error}")))?;
    Ok(NewEvent { event_type: Some("bench".to_owned()), ..NewEvent::new(payload) })
}

/// Appends events, in turn to all partitions, and gives how long each call took.
pub(super) async fn append(site: &Site, stream: &Name, events: u64, shape: &Shape) -> Result<Histogram<u64>> {
    let template = event(shape.payload_bytes)?;
    let left = Arc::new(AtomicU64::new(events));
    let mut workers = JoinSet::new();
    for _ in 0..shape.concurrency.max(1) {
        let (backend, stop) = (Arc::clone(&site.backend), site.stop().clone());
        let (stream, template, left) = (stream.clone(), template.clone(), Arc::clone(&left));
        let (batch_max, partitions) = (shape.batch, shape.partitions.max(1));
        workers.spawn(async move {
            let mut latency = histogram()?;
            let mut batch = Vec::with_capacity(batch_max);
            loop {
                let taken = take(&left, batch_max as u64);
                if taken.start == taken.end {
                    return Ok(latency);
                }
                if stop.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                batch.clear();
                batch.extend(taken.map(|number| {
                    let partition = u32::try_from(number % u64::from(partitions)).ok();
                    NewEvent { partition, ..template.clone() }
                }));
                let sent = Instant::now();
                backend.append(&stream, &batch).await?;
                record(&mut latency, sent.elapsed());
            }
        });
    }
    gather(workers).await
}

/// Claims and settles so many events of a group, and gives how long a claim and a settlement of a batch
/// took together.
pub(super) async fn consume(
    site: &Site,
    group: &GroupKey,
    events: u64,
    shape: &Shape,
    ending: Ending,
) -> Result<Histogram<u64>> {
    let left = Arc::new(AtomicU64::new(events));
    let mut workers = JoinSet::new();
    for number in 0..shape.concurrency.max(1) {
        let worker = Worker {
            backend: Arc::clone(&site.backend),
            group: group.clone(),
            consumer: format!("bench-{number}"),
            partitions: (0..shape.partitions).collect(),
            batch: shape.batch,
            ending,
            left: Arc::clone(&left),
            random: StdRng::seed_from_u64(number as u64),
            sweep_at: Instant::now(),
            stop: site.stop().clone(),
        };
        workers.spawn(worker.run());
    }
    gather(workers).await
}

/// Takes up to `most` of the numbers that are left.
fn take(left: &AtomicU64, most: u64) -> std::ops::Range<u64> {
    let take = |left: u64| Some(left.saturating_sub(most));
    let before = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).unwrap_or(0);
    before.saturating_sub(most)..before
}

/// Waits for all workers, and puts their histograms together.
async fn gather(mut workers: JoinSet<Result<Histogram<u64>>>) -> Result<Histogram<u64>> {
    let mut all = histogram()?;
    while let Some(joined) = workers.join_next().await {
        let latency = joined.map_err(|error| Error::Wrong(format!("a worker ended abnormally: {error}")))?;
        merge(&mut all, &latency?)?;
    }
    Ok(all)
}

/// One that claims and settles.
struct Worker {
    backend: Shared,
    group: GroupKey,
    consumer: String,
    partitions: Vec<u32>,
    batch: usize,
    ending: Ending,
    /// Events that no one has claimed.
    left: Arc<AtomicU64>,
    random: StdRng,
    sweep_at: Instant,
    stop: CancellationToken,
}

impl Worker {
    async fn run(mut self) -> Result<Histogram<u64>> {
        let mut latency = histogram()?;
        let mut held = Vec::new();
        let mut claim_took = Duration::ZERO;
        loop {
            // Between calls, so that none is given up half-way.
            if self.stop.is_cancelled() {
                return Err(Error::Interrupted);
            }
            while held.len() < WINDOW * self.batch {
                let wanted = take(&self.left, self.batch as u64);
                let wanted = usize::try_from(wanted.end - wanted.start).unwrap_or(self.batch);
                if wanted == 0 {
                    break;
                }
                let sent = Instant::now();
                held.extend(self.claim(wanted).await?);
                claim_took = sent.elapsed();
            }
            if held.is_empty() {
                return Ok(latency);
            }
            held.shuffle(&mut self.random);
            let part = held.split_off(held.len().saturating_sub(self.batch));
            let sent = Instant::now();
            self.settle(part).await?;
            record(&mut latency, claim_took + sent.elapsed());
        }
    }

    /// Claims so many events at most, and puts those back that it did not get.
    async fn claim(&mut self, wanted: usize) -> Result<Vec<Lease>> {
        let since = Instant::now();
        loop {
            let sent = Instant::now();
            let sweep = sent >= self.sweep_at;
            let request = ClaimRequest {
                group: &self.group,
                consumer: &self.consumer,
                partitions: &self.partitions,
                limit: wanted,
                lease: LEASE,
                sweep,
                alone: false,
            };
            let leased = self.backend.claim(&request).await?.leased;
            // As an engine does: at once again only where a full answer may have left some behind.
            let full = leased.len() >= wanted;
            if sweep && !(full && leased.iter().any(|leased| leased.lease.attempt > 1)) {
                self.sweep_at = sent + SWEEP_EVERY;
            }
            if !leased.is_empty() {
                self.left.fetch_add((wanted - leased.len()) as u64, Ordering::AcqRel);
                return Ok(leased.into_iter().map(|leased| leased.lease).collect());
            }
            if since.elapsed() > PATIENCE {
                return Err(Error::Wrong("claims find nothing, though events are left".to_owned()));
            }
        }
    }

    async fn settle(&self, leases: Vec<Lease>) -> Result<()> {
        let settlements: Vec<Settlement> =
            leases.into_iter().map(|lease| settlement(lease, self.ending)).collect();
        let request =
            SettleRequest { group: &self.group, consumer: &self.consumer, settlements: &settlements };
        let answers = self.backend.settle(&request).await?;
        match answers.iter().find(|answer| **answer != Settled::Done) {
            Some(answer) => Err(Error::Wrong(format!("a settlement was answered with {answer:?}"))),
            None => Ok(()),
        }
    }
}

fn settlement(lease: Lease, ending: Ending) -> Settlement {
    let reason = || "the upstream service did not answer".to_owned();
    let verdict = match lease.sequence % 100 {
        _ if ending == Ending::Ack => Verdict::Ack(Effects::default()),
        0 => Verdict::DeadLetter { cause: Cause::Rejected, reason: reason(), failure: None },
        1..=4 => Verdict::Retry { delay: PARKED, reason: reason(), failure: FailureKind::Retry },
        _ => Verdict::Ack(Effects::default()),
    };
    Settlement { lease, verdict, plugin: None }
}
