//! Watches both sides of a mixed group, and says what went wrong.
//!
//! A Rheo process overwrites fences without asking, so that an event may be delivered more than once.
//! What must hold all the same: no event is lost, none is settled twice by us, what we parked is not
//! taken before its time, and the frontier ends where it belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use wasmill::backend::{
    Appended, Backend, ClaimRequest, Claimed, DeadLetter, Explanation, GroupInfo, NewGroup, PendingEntry,
    Redriven, Repair, Result, Rewind, RewindStep, ScanPage, ScanRange, SettleRequest, Settled, Shared,
    StreamInfo, StreamSummary, Trim, Trimmed,
};
use wasmill::event::{GroupKey, Lease, Name, NewEvent};
use wasmill::outcome::Verdict;
use wasmill::state::{Bucket, StateKeys, StateValue};

use crate::peer;

/// An event's place: partition and sequence.
pub(crate) type Place = (u32, u64);

/// What is known of one group.
#[derive(Debug, Default)]
struct Record {
    /// What we wrote for good.
    ours: BTreeMap<Place, Vec<&'static str>>,
    /// What we asked for, of which no answer came (yet).
    open: BTreeSet<Place>,
    /// What the peers had in hand.
    fetched: BTreeSet<Place>,
    /// What the peers settled.
    theirs: BTreeSet<Place>,
    /// What we parked.
    parked: BTreeMap<Place, Parked>,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Parked {
    receipt: Arc<str>,
    /// When it was known to be written, in ms.
    written: u64,
    /// The earliest time at which it may be due, in ms.
    due: u64,
}

/// Shared by everyone who works in the group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checker(Arc<Mutex<Record>>);

pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap()
}

impl Checker {
    fn with<T>(&self, act: impl FnOnce(&mut Record) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// A peer has fetched this; it had not read anything before `began_ms`.
    pub(crate) fn peer_took(&self, lease: &peer::Lease, began_ms: u64) {
        let (place, now) = ((lease.event.partition, lease.event.sequence), now_ms());
        self.with(|record| {
            record.fetched.insert(place);
            if let Some(parked) = record.parked.remove(&place)
                && began_ms > parked.written
                && now < parked.due
            {
                record
                    .violations
                    .push(format!("{place:?} was taken {} ms before its time", parked.due - now));
            }
            // Rheo's entries in two partitions can have one id, and then one fence: it has overwritten
            // what we wrote there for the other one, which is as good as let go.
            let overwritten = lease.receipt.as_deref().unwrap_or_default();
            record.parked.retain(|_, parked| *parked.receipt != *overwritten);
        });
    }

    pub(crate) fn peer_settled(&self, lease: &peer::Lease) {
        self.with(|record| record.theirs.insert((lease.event.partition, lease.event.sequence)));
    }

    /// How many events someone has settled.
    pub(crate) fn settled(&self) -> usize {
        self.with(|record| record.theirs.union(&record.ours.keys().copied().collect()).count())
    }

    pub(crate) fn ours(&self) -> usize {
        self.with(|record| record.ours.len())
    }

    /// Whether a peer had this event in hand.
    pub(crate) fn was_fetched(&self, place: Place) -> bool {
        self.with(|record| record.fetched.contains(&place))
    }

    pub(crate) fn theirs(&self) -> usize {
        self.with(|record| record.theirs.len())
    }

    /// How often we have settled this event for good.
    pub(crate) fn by_us(&self, place: Place) -> usize {
        self.with(|record| record.ours.get(&place).map_or(0, Vec::len))
    }

    /// What went wrong so far, and what went wrong in the end: `events` are all that were appended,
    /// `info` is the group's last state.
    pub(crate) fn violations(&self, events: &BTreeSet<Place>, info: &GroupInfo) -> Vec<String> {
        self.with(|record| {
            let mut found = record.violations.clone();
            for place in events {
                let known = record.ours.contains_key(place)
                    || record.theirs.contains(place)
                    || record.open.contains(place);
                if !known {
                    found.push(format!("{place:?} was lost"));
                }
            }
            for (place, verdicts) in &record.ours {
                if verdicts.len() > 1 {
                    found.push(format!("{place:?} was settled more than once by us: {verdicts:?}"));
                }
            }
            for p in &info.partitions {
                if p.frontier != p.high_watermark || p.in_flight + p.parked > 0 {
                    found.push(format!("{p:?} is not at its end"));
                }
            }
            found
        })
    }
}

/// A backend that tells the checker what it wrote.
pub(crate) struct Witness {
    pub(crate) backend: Shared,
    pub(crate) checker: Checker,
}

#[async_trait]
impl Backend for Witness {
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claimed> {
        let claimed = self.backend.claim(request).await?;
        self.checker.with(|record| {
            for leased in &claimed.leased {
                record.parked.remove(&(leased.event.partition, leased.event.sequence));
            }
            for death in &claimed.dead_lettered {
                let place = (death.partition, death.sequence.unwrap_or(0));
                record.ours.entry(place).or_default().push("dead letter at a claim");
            }
        });
        Ok(claimed)
    }

    async fn settle(&self, request: &SettleRequest<'_>) -> Result<Vec<Settled>> {
        let place = |lease: &Lease| (lease.partition, lease.sequence);
        let final_ones = request
            .settlements
            .iter()
            .filter(|item| matches!(item.verdict, Verdict::Ack(_) | Verdict::DeadLetter { .. }));
        self.checker.with(|record| record.open.extend(final_ones.map(|item| place(&item.lease))));
        let before = now_ms();
        let settled = self.backend.settle(request).await?;
        let after = now_ms();
        self.checker.with(|record| {
            for (item, settled) in request.settlements.iter().zip(&settled) {
                let place = place(&item.lease);
                record.open.remove(&place);
                if *settled != Settled::Done {
                    continue;
                }
                match &item.verdict {
                    Verdict::Ack(_) => record.ours.entry(place).or_default().push("ack"),
                    Verdict::DeadLetter { .. } => record.ours.entry(place).or_default().push("dead letter"),
                    Verdict::Retry { delay, .. } => {
                        let due = before + u64::try_from(delay.as_millis()).unwrap();
                        let receipt = Arc::clone(&item.lease.receipt);
                        record.parked.insert(place, Parked { receipt, written: after, due });
                    }
                    Verdict::Release => {}
                }
            }
        });
        Ok(settled)
    }

    async fn ping(&self) -> Result<()> {
        self.backend.ping().await
    }

    async fn create_stream(&self, stream: &Name, partitions: u32) -> Result<()> {
        self.backend.create_stream(stream, partitions).await
    }

    async fn streams(&self) -> Result<Vec<StreamSummary>> {
        self.backend.streams().await
    }

    async fn stream_info(&self, stream: &Name) -> Result<StreamInfo> {
        self.backend.stream_info(stream).await
    }

    async fn create_group(&self, group: &GroupKey, new: NewGroup) -> Result<()> {
        self.backend.create_group(group, new).await
    }

    async fn groups(&self, stream: &Name) -> Result<Vec<Name>> {
        self.backend.groups(stream).await
    }

    async fn group_info(&self, group: &GroupKey) -> Result<GroupInfo> {
        self.backend.group_info(group).await
    }

    async fn append(&self, stream: &Name, events: &[NewEvent]) -> Result<Vec<Appended>> {
        self.backend.append(stream, events).await
    }

    async fn scan(&self, stream: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
        self.backend.scan(stream, partition, range).await
    }

    async fn trim(&self, stream: &Name, trim: Trim) -> Result<Trimmed> {
        self.backend.trim(stream, trim).await
    }

    async fn renew(&self, group: &GroupKey, leases: &[Lease], lease: Duration) -> Result<Vec<Settled>> {
        self.backend.renew(group, leases, lease).await
    }

    async fn pending(
        &self,
        group: &GroupKey,
        partition: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<PendingEntry>> {
        self.backend.pending(group, partition, after, limit).await
    }

    async fn dead_letters(
        &self,
        group: &GroupKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        self.backend.dead_letters(group, after, limit).await
    }

    async fn purge(&self, group: &GroupKey, rows: &[String]) -> Result<u64> {
        self.backend.purge(group, rows).await
    }

    async fn redrive(&self, group: &GroupKey, rows: &[String]) -> Result<Vec<Redriven>> {
        self.backend.redrive(group, rows).await
    }

    async fn redeliver(&self, group: &GroupKey, events: &[(u32, u64)]) -> Result<Vec<Redriven>> {
        self.backend.redeliver(group, events).await
    }

    async fn begin_rewind(&self, group: &GroupKey, rewind: &Rewind) -> Result<()> {
        self.backend.begin_rewind(group, rewind).await
    }

    async fn continue_rewind(&self, group: &GroupKey) -> Result<RewindStep> {
        self.backend.continue_rewind(group).await
    }

    async fn explain(&self, group: &GroupKey, partition: u32) -> Result<Explanation> {
        self.backend.explain(group, partition).await
    }

    async fn heal(&self, group: &GroupKey, partition: u32) -> Result<Vec<Repair>> {
        self.backend.heal(group, partition).await
    }

    async fn state(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>> {
        self.backend.state(bucket, keys).await
    }

    async fn state_keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys> {
        self.backend.state_keys(bucket, cursor).await
    }

    async fn wait(&self, group: &GroupKey, partitions: &[u32], timeout: Duration) -> Result<()> {
        self.backend.wait(group, partitions, timeout).await
    }

    async fn retire(&self, group: &GroupKey, consumer: &str) -> Result<()> {
        self.backend.retire(group, consumer).await
    }
}
