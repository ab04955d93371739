//! What the promises share: a stream with its group, short ways to act on it, and comparisons
//! that fail with a sentence.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::Store;
use crate::backend::{
    ClaimDeath, ClaimRequest, Claimed, GroupInfo, GroupPartition, NewGroup, SettleRequest, Settled, Shared,
    Start,
};
use crate::event::{GroupKey, JsonObject, Lease, Leased, Name, NewEvent};
use crate::outcome::{Cause, Effects, FailureKind, Settlement, Verdict};

/// A lease or delay that does not end in the course of a check.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// A lease or delay that ends soon; nothing may depend on its still running.
pub(super) const SHORT: Duration = Duration::from_millis(150);

/// How long a check waits for what must happen, in real time.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long it rests between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A cap that no check reaches by accident.
pub(super) const MANY: u32 = 1000;

/// Fails unless both are equal.
pub(super) fn ensure_eq<F: Debug + PartialEq<E>, E: Debug>(
    promise: &str,
    found: F,
    expected: E,
) -> Result<()> {
    ensure!(found == expected, "{promise}: expected {expected:?}, found {found:?}");
    Ok(())
}

/// Fails unless there is nothing.
pub(super) fn ensure_none<F: Debug>(promise: &str, found: &[F]) -> Result<()> {
    ensure!(found.is_empty(), "{promise}: expected nothing, found {found:?}");
    Ok(())
}

/// Fails unless the result is an error that matches.
macro_rules! ensure_err {
    ($promise:expr, $result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => anyhow::bail!("{}: expected Err({}), found {other:?}", $promise, stringify!($pattern)),
        }
    };
}

/// Repeats `look` until it finds something.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{what}: did not happen within {PATIENCE:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// A name that is known to be good.
pub(super) fn name(text: &str) -> Result<Name> {
    Name::new(text).context(text.to_owned())
}

/// The payload that the checks tell events apart by.
pub(super) fn numbered(n: usize) -> Result<NewEvent> {
    Ok(NewEvent::new(JsonObject::parse(format!("{{\"n\":{n}}}"))?))
}

/// A numbered event for one partition.
pub(super) fn numbered_in(partition: u32, n: usize) -> Result<NewEvent> {
    Ok(NewEvent { partition: Some(partition), ..numbered(n)? })
}

/// Partition and sequence of each, in the order given.
pub(super) fn places(leased: &[Leased]) -> Vec<(u32, u64)> {
    leased.iter().map(|l| (l.event.partition, l.event.sequence)).collect()
}

/// The sequences of each, in the order given.
pub(super) fn sequences(leased: &[Leased]) -> Vec<u64> {
    leased.iter().map(|l| l.event.sequence).collect()
}

/// An ack.
pub(super) fn ack() -> Verdict {
    Verdict::Ack(Effects::default())
}

/// A retry that the handler asked for.
pub(super) fn retry(delay: Duration) -> Verdict {
    Verdict::Retry { delay, reason: "not now".to_owned(), failure: FailureKind::Retry }
}

/// A dead letter that the handler asked for.
pub(super) fn reject() -> Verdict {
    Verdict::DeadLetter { cause: Cause::Rejected, reason: "never".to_owned(), failure: None }
}

/// The verdict under this lease.
pub(super) fn settlement(lease: &Lease, verdict: Verdict) -> Settlement {
    Settlement { lease: lease.clone(), verdict, plugin: None }
}

/// One way to claim: an ordinary claim of ten with a long lease, unless said otherwise.
#[derive(Clone, Copy)]
pub(super) struct Take<'a> {
    consumer: &'a str,
    partitions: Option<&'a [u32]>,
    limit: usize,
    lease: Duration,
    sweep: bool,
    alone: bool,
}

impl<'a> Take<'a> {
    pub(super) fn by(consumer: &'a str) -> Self {
        Self { consumer, partitions: None, limit: 10, lease: LONG, sweep: false, alone: false }
    }

    pub(super) fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    pub(super) fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    pub(super) fn partitions(self, partitions: &'a [u32]) -> Self {
        Self { partitions: Some(partitions), ..self }
    }

    pub(super) fn sweep(self) -> Self {
        Self { sweep: true, ..self }
    }

    pub(super) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }
}

/// A stream `events` with a group `workers`, seen through one handle.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) backend: Shared,
    pub(super) group: GroupKey,
    pub(super) partitions: Vec<u32>,
}

impl Scene {
    /// Creates both.
    pub(super) async fn new(store: &dyn Store, partitions: u32, max_attempts: u32) -> Result<Self> {
        let backend = store.backend();
        let group = GroupKey::new(name("events")?, name("workers")?);
        backend.create_stream(&group.stream, partitions).await?;
        backend.create_group(&group, NewGroup { max_attempts, start: Start::Beginning }).await?;
        Ok(Self { backend, group, partitions: (0..partitions).collect() })
    }

    /// Creates both and appends `events` events to each partition, numbered from 1.
    pub(super) async fn with_events(
        store: &dyn Store,
        partitions: u32,
        max_attempts: u32,
        events: usize,
    ) -> Result<Self> {
        let scene = Self::new(store, partitions, max_attempts).await?;
        for partition in 0..partitions {
            scene.append(partition, events).await?;
        }
        Ok(scene)
    }

    /// Another group of the same stream.
    pub(super) async fn with_group(&self, group: &str, max_attempts: u32, start: Start) -> Result<Self> {
        let group = GroupKey::new(self.group.stream.clone(), name(group)?);
        self.backend.create_group(&group, NewGroup { max_attempts, start }).await?;
        Ok(Self { group, ..self.clone() })
    }

    /// The same seen through another handle.
    pub(super) fn through(&self, backend: Shared) -> Self {
        Self { backend, ..self.clone() }
    }

    /// Appends numbered events to a partition.
    pub(super) async fn append(&self, partition: u32, events: usize) -> Result<()> {
        let batch = (1..=events).map(|n| numbered_in(partition, n)).collect::<Result<Vec<_>>>()?;
        for batch in batch.chunks(500) {
            self.backend.append(&self.group.stream, batch).await?;
        }
        Ok(())
    }

    /// Claims as `take` says.
    pub(super) async fn take(&self, take: Take<'_>) -> Result<Claimed> {
        let request = ClaimRequest {
            group: &self.group,
            consumer: take.consumer,
            partitions: take.partitions.unwrap_or(&self.partitions),
            limit: take.limit,
            lease: take.lease,
            sweep: take.sweep,
            alone: take.alone,
        };
        Ok(self.backend.claim(&request).await?)
    }

    /// An ordinary claim with a long lease.
    pub(super) async fn claim(&self, consumer: &str, limit: usize) -> Result<Vec<Leased>> {
        Ok(self.take(Take::by(consumer).limit(limit)).await?.leased)
    }

    /// Claims one event that must be there.
    pub(super) async fn claim_one(&self, consumer: &str, lease: Duration) -> Result<Leased> {
        let claimed = self.take(Take::by(consumer).limit(1).lease(lease)).await?;
        claimed.leased.into_iter().next().context("a ready event is claimed")
    }

    /// Claims `events` events in as many claims as it takes.
    pub(super) async fn claim_all(&self, consumer: &str, events: usize) -> Result<Vec<Leased>> {
        let mut all = Vec::new();
        until("every event that was appended is claimed", async || {
            all.extend(self.claim(consumer, 100.min(events - all.len())).await?);
            Ok((all.len() >= events).then_some(()))
        })
        .await?;
        Ok(all)
    }

    /// Sweeps until a lease that ran out is taken over, with a long lease.
    pub(super) async fn reclaim(&self, consumer: &str) -> Result<Leased> {
        until("an expired lease is taken over", async || {
            let claimed = self.take(Take::by(consumer).limit(1).sweep()).await?;
            Ok(claimed.leased.into_iter().next())
        })
        .await
    }

    /// Sweeps until a claim settles an entry as a dead letter; nothing may be leased before.
    pub(super) async fn until_dead(&self, consumer: &str) -> Result<ClaimDeath> {
        until("an entry beyond the cap is made a dead letter", async || {
            let claimed = self.take(Take::by(consumer).sweep()).await?;
            ensure_none("an entry beyond the cap is not delivered", &claimed.leased)?;
            Ok(claimed.dead_lettered.into_iter().next())
        })
        .await
    }

    /// Sweeps until suspects are reported; nothing may be leased before.
    pub(super) async fn until_suspects(&self, consumer: &str) -> Result<()> {
        until("suspects are reported", async || {
            let claimed = self.take(Take::by(consumer).sweep()).await?;
            ensure_none("an ordinary claim passes suspects over", &claimed.leased)?;
            ensure_none("a suspect is no dead letter yet", &claimed.dead_lettered)?;
            Ok(claimed.suspects.then_some(()))
        })
        .await
    }

    /// Takes the suspect that must be there.
    pub(super) async fn take_suspect(&self, consumer: &str, lease: Duration) -> Result<Leased> {
        let claimed = self.take(Take::by(consumer).lease(lease).alone()).await?;
        ensure!(claimed.leased.len() < 2, "a suspect is taken alone: found {:?}", places(&claimed.leased));
        claimed.leased.into_iter().next().context("a suspect that was reported is taken alone")
    }

    /// Sweeps a few times; none of it may give anything.
    pub(super) async fn ensure_nothing(&self, promise: &str) -> Result<()> {
        for _ in 0..5 {
            let claimed = self.take(Take::by("nobody").limit(100).sweep()).await?;
            ensure_none(promise, &places(&claimed.leased))?;
            ensure_none(promise, &claimed.dead_lettered)?;
        }
        Ok(())
    }

    /// Writes verdicts.
    pub(super) async fn settle(&self, consumer: &str, settlements: &[Settlement]) -> Result<Vec<Settled>> {
        let request = SettleRequest { group: &self.group, consumer, settlements };
        let settled = self.backend.settle(&request).await?;
        ensure_eq("each settlement has its answer", settled.len(), settlements.len())?;
        Ok(settled)
    }

    /// Writes one verdict.
    pub(super) async fn verdict(&self, lease: &Lease, verdict: Verdict) -> Result<Settled> {
        let settled = self.settle("settler", &[settlement(lease, verdict)]).await?;
        settled.into_iter().next().context("a settlement has its answer")
    }

    /// Writes one verdict that must be taken.
    pub(super) async fn done(&self, lease: &Lease, verdict: Verdict) -> Result<()> {
        let what = format!("{verdict:?} under a live lease");
        ensure_eq(&what, self.verdict(lease, verdict).await?, Settled::Done)
    }

    /// Acks all, each of which must be taken.
    pub(super) async fn ack_all(&self, leased: &[Leased]) -> Result<()> {
        for batch in leased.chunks(100) {
            let batch: Vec<_> = batch.iter().map(|l| settlement(&l.lease, ack())).collect();
            let settled = self.settle("settler", &batch).await?;
            ensure_eq("live leases ack", settled, vec![Settled::Done; batch.len()])?;
        }
        Ok(())
    }

    /// Renews one lease.
    pub(super) async fn renew(&self, lease: &Lease, time: Duration) -> Result<Settled> {
        let settled = self.backend.renew(&self.group, std::slice::from_ref(lease), time).await?;
        match settled[..] {
            [settled] => Ok(settled),
            _ => bail!("one renewal has one answer: found {settled:?}"),
        }
    }

    /// The group's state.
    pub(super) async fn info(&self) -> Result<GroupInfo> {
        Ok(self.backend.group_info(&self.group).await?)
    }

    /// The group's state in one partition.
    pub(super) async fn partition(&self, partition: u32) -> Result<GroupPartition> {
        let info = self.info().await?;
        let found = info.partitions.into_iter().find(|p| p.partition == partition);
        found.context("group info names every partition")
    }

    /// Everything is settled: the frontier stands at the high watermark, and nothing is held.
    pub(super) async fn ensure_drained(&self) -> Result<()> {
        for state in self.info().await?.partitions {
            ensure_eq("at the end the frontier is the high watermark", state.frontier, state.high_watermark)?;
            let left = (state.in_flight, state.parked, state.redriven);
            ensure_eq("at the end nothing is in flight, parked or redriven", left, (0, 0, 0))?;
        }
        Ok(())
    }
}
