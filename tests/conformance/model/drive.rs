//! Walks a backend and the model side by side.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use proptest::sample::Index;
use wasmill::backend::conformance::Store;
use wasmill::backend::{
    ClaimRequest, Error, GroupPartition, NewGroup, PendingState, SettleRequest, Settled, Shared, Start,
};
use wasmill::event::{GroupKey, JsonObject, Lease, Name, NewEvent};
use wasmill::outcome::{Cause, Effects, FailureKind, Settlement, Verdict};

use super::control::Move;
use super::state::{Entry, Group, Model};
use super::{Fate, PARTITIONS, Span, Step, Walk};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(3600);

/// How often a walk lets time pass where that means to sleep.
const SLEEPS_MAX: usize = 4;

/// How long the end of a walk may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A walk on its way.
pub(super) struct Drive<'a> {
    store: &'a dyn Store,
    pub(super) handles: [Shared; 2],
    pub(super) stream: Name,
    pub(super) groups: Vec<GroupKey>,
    pub(super) model: Model,
    sleeps: usize,
}

/// One way to claim.
pub(super) struct Take<'a> {
    pub(super) group: usize,
    pub(super) consumer: u8,
    pub(super) partitions: &'a [u32],
    pub(super) limit: usize,
    pub(super) lease: Span,
    pub(super) sweep: bool,
    pub(super) alone: bool,
}

/// Walks, then drains, and compares all the way.
pub(crate) async fn drive(store: &dyn Store, walk: &Walk) -> Result<()> {
    let mut drive = Drive::new(store, walk).await?;
    for (n, (handle, step)) in walk.steps.iter().enumerate() {
        drive.step(*handle, step).await.with_context(|| format!("step {}, {step:?}", n + 1))?;
        drive.compare().await.with_context(|| format!("after step {}, {step:?}", n + 1))?;
    }
    for group in 0..drive.groups.len() {
        drive.drain(group).await.context("draining at the end")?;
        drive.compare().await.context("after draining")?;
        drive.compare_dead_letters(group).await.context("at the end")?;
    }
    Ok(())
}

impl<'a> Drive<'a> {
    async fn new(store: &'a dyn Store, walk: &Walk) -> Result<Self> {
        let handles = [store.backend(), store.other().await?];
        let stream = Name::new("events")?;
        handles[0].create_stream(&stream, PARTITIONS).await?;
        let mut groups = Vec::new();
        for (n, max_attempts) in walk.max_attempts.into_iter().enumerate() {
            let group = GroupKey::new(stream.clone(), Name::new(&format!("group-{n}"))?);
            handles[1].create_group(&group, NewGroup { max_attempts, start: Start::Beginning }).await?;
            groups.push(group);
        }
        let exact = store.moves_time();
        let models = walk.max_attempts.iter().map(|max_attempts| Group::new(*max_attempts, exact)).collect();
        let model = Model { events: BTreeMap::new(), trimmed: [0; PARTITIONS as usize], groups: models };
        Ok(Self { store, handles, stream, groups, model, sleeps: 0 })
    }

    async fn step(&mut self, handle: usize, step: &Step) -> Result<()> {
        match step {
            Step::Append { partitions, broken } => self.append(handle, partitions, *broken).await,
            Step::Claim { group, consumer, partitions, limit, lease, sweep } => {
                let (group, consumer, limit, lease, sweep) = (*group, *consumer, *limit, *lease, *sweep);
                let take = Take { group, consumer, partitions, limit, lease, sweep, alone: false };
                self.claim(handle, &take).await.map(drop)
            }
            Step::Alone { group, consumer, partitions, lease } => {
                let (group, consumer, lease) = (*group, *consumer, *lease);
                let take = Take { group, consumer, partitions, limit: 1, lease, sweep: false, alone: true };
                self.claim(handle, &take).await.map(drop)
            }
            Step::Settle { group, picks } => {
                let chosen = self.choose(*group, picks);
                self.settle(handle, *group, chosen).await
            }
            Step::Renew { group, picks, lease } => {
                let chosen =
                    picks.iter().filter_map(|(live, index)| self.pick(*group, *live, *index)).collect();
                self.renew(handle, *group, chosen, *lease).await
            }
            Step::Pass { long } => self.pass(*long).await,
            Step::Rewind { group, kind, to, meanwhile, by_claims } => {
                let (group, kind, by_claims) = (*group, *kind, *by_claims);
                self.rewind(handle, &Move { group, kind, to, meanwhile, by_claims }).await
            }
            Step::Recreate { group, to } => self.recreate(handle, *group, to).await,
            Step::Purge { group, picks } => self.purge(handle, *group, picks).await,
            Step::Redrive { group, picks } => self.redrive(handle, *group, picks).await,
            Step::Redeliver { group, picks } => self.redeliver(handle, *group, picks).await,
            Step::Trim { partition, max_length, until } => {
                self.trim(handle, *partition, *max_length, *until).await
            }
        }
    }

    /// Leases and what becomes of them.
    pub(super) fn choose(&self, group: usize, picks: &[(bool, Index, Fate)]) -> Vec<(Lease, Fate)> {
        let chosen = picks.iter().filter_map(|(live, index, fate)| {
            self.pick(group, *live, *index).map(|lease| (lease, self.feasible(*fate)))
        });
        chosen.collect()
    }

    fn pick(&self, group: usize, live: bool, index: Index) -> Option<Lease> {
        let group = &self.model.groups[group];
        let leases = if live { group.held_leases() } else { group.leases.clone() };
        (!leases.is_empty()).then(|| index.get(&leases).clone())
    }

    /// Where the clock cannot be moved, no one can wait for a long retry.
    fn feasible(&self, fate: Fate) -> Fate {
        match fate {
            Fate::Retry(Span::Long) if !self.store.moves_time() => Fate::Retry(Span::Short),
            fate => fate,
        }
    }

    async fn append(&mut self, handle: usize, partitions: &[u32], broken: bool) -> Result<()> {
        let mut batch = Vec::new();
        let first = self.model.events.len();
        for (n, partition) in partitions.iter().enumerate() {
            let payload = JsonObject::parse(format!("{{ \"n\": {} }}", first + n))?;
            batch.push(NewEvent { partition: Some(*partition), ..NewEvent::new(payload) });
        }
        if broken {
            batch.push(NewEvent { partition: Some(PARTITIONS), ..NewEvent::new(JsonObject::empty()) });
            let refused = self.handles[handle].append(&self.stream, &batch).await;
            ensure!(
                matches!(refused, Err(Error::PartitionNotFound { .. })),
                "no such partition: {refused:?}"
            );
            return Ok(());
        }
        let appended = self.handles[handle].append(&self.stream, &batch).await?;
        ensure!(appended.len() == batch.len(), "one answer an event");
        for (given, appended) in batch.iter().zip(appended) {
            let sequence = self.model.high_watermark(appended.partition) + 1;
            ensure!(
                (given.partition, sequence) == (Some(appended.partition), appended.sequence),
                "{given:?} gets sequence {sequence}: found {appended:?}"
            );
            let stored =
                self.handles[handle].read(&self.stream, appended.partition, sequence - 1, 10).await?;
            let event = stored.into_iter().next().context("what was appended is read")?;
            ensure!(
                event.id == appended.id && event.payload == given.payload,
                "{given:?} is stored as {event:?}"
            );
            self.model.appended(event);
        }
        Ok(())
    }

    /// Claims and lets the model judge what came; gives its leases.
    async fn claim(&mut self, handle: usize, take: &Take<'_>) -> Result<Vec<Lease>> {
        let must_give = self.model.groups[take.group].must_give(take.partitions);
        let (leases, deaths) = self.claim_meanwhile(handle, take).await?;
        ensure!(take.alone || !must_give || !leases.is_empty() || deaths > 0, "a claim gives what is ready");
        Ok(leases)
    }

    /// The same, where a rewind may be under way and nothing come; its leases, and how many died.
    pub(super) async fn claim_meanwhile(
        &mut self,
        handle: usize,
        take: &Take<'_>,
    ) -> Result<(Vec<Lease>, usize)> {
        let request = ClaimRequest {
            group: &self.groups[take.group],
            consumer: &format!("consumer-{}", take.consumer),
            partitions: take.partitions,
            limit: take.limit,
            lease: if take.lease == Span::Short { SHORT } else { LONG },
            sweep: take.sweep,
            alone: take.alone,
        };
        let claimed = self.handles[handle].claim(&request).await?;
        let group = &mut self.model.groups[take.group];
        ensure!(claimed.leased.len() <= take.limit, "a claim keeps its limit");
        ensure!(
            !claimed.suspects || group.may_suspect(take.partitions),
            "suspects are reported if there are any"
        );
        ensure!(!take.alone || claimed.dead_lettered.is_empty(), "a claim for suspects settles nothing");
        let mut last = BTreeMap::new();
        for leased in &claimed.leased {
            let place = (leased.event.partition, leased.event.sequence);
            ensure!(take.partitions.contains(&place.0), "only from the partitions named: {place:?}");
            ensure!(last.insert(place.0, place.1) < Some(place.1), "in sequence order: {place:?}");
            ensure!(self.model.events.get(&place) == Some(&leased.event), "as it was stored: {leased:?}");
            group.delivered(leased, take.lease, take.sweep, take.alone)?;
        }
        for death in &claimed.dead_lettered {
            ensure!(take.partitions.contains(&death.partition), "only from the partitions named: {death:?}");
            group.died(death, take.sweep)?;
        }
        let deaths = claimed.dead_lettered.len();
        Ok((claimed.leased.into_iter().map(|leased| leased.lease).collect(), deaths))
    }

    pub(super) async fn settle(
        &mut self,
        handle: usize,
        group: usize,
        chosen: Vec<(Lease, Fate)>,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        let chosen: Vec<_> = chosen.into_iter().filter(|(lease, _)| seen.insert(lease.clone())).collect();
        let settlements: Vec<_> = chosen
            .iter()
            .map(|(lease, fate)| Settlement { lease: lease.clone(), verdict: verdict(*fate), plugin: None })
            .collect();
        let request =
            SettleRequest { group: &self.groups[group], consumer: "settler", settlements: &settlements };
        let found = self.handles[handle].settle(&request).await?;
        let model = &mut self.model.groups[group];
        let expected: Vec<Settled> = chosen.iter().map(|(lease, fate)| model.settle(lease, *fate)).collect();
        ensure!(found == expected, "expected {expected:?}, found {found:?} for {settlements:?}");
        Ok(())
    }

    async fn renew(&mut self, handle: usize, group: usize, chosen: Vec<Lease>, lease: Span) -> Result<()> {
        let mut seen = HashSet::new();
        let chosen: Vec<_> = chosen.into_iter().filter(|lease| seen.insert(lease.clone())).collect();
        let time = if lease == Span::Short { SHORT } else { LONG };
        let found = self.handles[handle].renew(&self.groups[group], &chosen, time).await?;
        let model = &mut self.model.groups[group];
        let expected: Vec<Settled> = chosen.iter().map(|held| model.renew(held, lease)).collect();
        ensure!(found == expected, "expected {expected:?}, found {found:?} for {chosen:?}");
        Ok(())
    }

    async fn pass(&mut self, long: bool) -> Result<()> {
        let long = long && self.store.moves_time();
        if !self.store.moves_time() {
            if self.sleeps == SLEEPS_MAX {
                return Ok(());
            }
            self.sleeps += 1;
        }
        self.store.pass(if long { LONG * 2 } else { SHORT * 2 }).await;
        self.model.groups.iter_mut().for_each(|group| group.pass(long));
        Ok(())
    }

    /// Settles everything that is left: what is held by hand or, where time can be moved, by
    /// letting it run out.
    async fn drain(&mut self, group: usize) -> Result<()> {
        let all: Vec<u32> = (0..PARTITIONS).collect();
        let deadline = Instant::now() + PATIENCE;
        self.sleeps = 0;
        self.pass(true).await?;
        if !self.store.moves_time() {
            let held = self.model.groups[group].held_leases();
            self.settle(0, group, held.into_iter().map(|lease| (lease, Fate::Ack)).collect()).await?;
        }
        while !self.model.groups[group].is_drained() {
            ensure!(Instant::now() < deadline, "not drained in time: {:?}", self.model.groups[group]);
            let ordinary = Take {
                group,
                consumer: 0,
                partitions: &all,
                limit: 50,
                lease: Span::Long,
                sweep: true,
                alone: false,
            };
            let mut held = self.claim(0, &ordinary).await?;
            held.extend(self.claim(1, &Take { limit: 1, sweep: false, alone: true, ..ordinary }).await?);
            if held.is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            self.settle(1, group, held.into_iter().map(|lease| (lease, Fate::Ack)).collect()).await?;
        }
        Ok(())
    }

    /// Compares what can be seen of the groups.
    async fn compare(&self) -> Result<()> {
        for (key, model) in self.groups.iter().zip(&self.model.groups) {
            let info = self.handles[0].group_info(key).await?;
            ensure!(info.max_attempts == model.max_attempts, "{key} keeps its cap: found {info:?}");
            let dead = model.letters.len();
            ensure!(
                info.dead_letters == dead as u64,
                "{key} has {dead} dead letters: found {}",
                info.dead_letters
            );
            ensure!(info.rewind.is_none(), "no rewind is under way: found {info:?}");
            for state in info.partitions {
                let expected = (model.frontier(state.partition), self.model.high_watermark(state.partition));
                let found = (state.frontier, state.high_watermark);
                ensure!(
                    expected == found,
                    "{key}, partition {}: expected frontier and high watermark {expected:?}, found {found:?}",
                    state.partition
                );
                ensure!(state.missing == 0, "{key}: nothing is missing, found {state:?}");
                self.compare_pending(key, model, state).await?;
            }
        }
        Ok(())
    }

    async fn compare_pending(&self, key: &GroupKey, model: &Group, state: GroupPartition) -> Result<()> {
        let partition = state.partition;
        let mut expected = Vec::new();
        let (mut leased, mut waiting, mut due) = (0, 0, 0);
        let range = (partition, 0)..=(partition, u64::MAX);
        for ((_, sequence), entry) in
            model.entries.range(range.clone()).chain(model.redriven.range(range.clone()))
        {
            match entry {
                Entry::Leased { attempt, .. } => {
                    leased += 1;
                    expected.push((Some(*sequence), *attempt, true));
                }
                Entry::Parked { attempts, due: when, .. } => {
                    *if *when == Span::Zero { &mut due } else { &mut waiting } += 1;
                    expected.push((Some(*sequence), *attempts, false));
                }
                Entry::New | Entry::Settled => {}
            }
        }
        ensure!(state.in_flight == leased, "{key}/{partition}: {leased} in flight, found {state:?}");
        // Whether an entry that is due counts as parked is the store's choice.
        ensure!(
            (waiting..=waiting + due).contains(&state.parked),
            "{key}/{partition}: {waiting} parked and {due} due, found {state:?}"
        );
        let redriven = model.redriven.range(range).count() as u64;
        ensure!(state.redriven == redriven, "{key}/{partition}: {redriven} redriven, found {state:?}");
        let pending = self.handles[1].pending(key, partition, None, 1000).await?;
        let is_leased = |state: &PendingState| matches!(state, PendingState::Leased { .. });
        let mut found: Vec<_> =
            pending.iter().map(|e| (e.sequence, e.attempt, is_leased(&e.state))).collect();
        // The order is that of receipts, which is that of sequences only for what the log still has.
        found.sort_unstable();
        expected.sort_unstable();
        ensure!(
            found == expected,
            "{key}/{partition}: expected pending (sequence, attempt, leased) {expected:?}, found {found:?}"
        );
        Ok(())
    }

    /// Each death left one dead letter, unless that was purged or redriven.
    async fn compare_dead_letters(&self, group: usize) -> Result<()> {
        let mut expected = self.model.groups[group].letters.clone();
        for (row, letter) in self.letters(0, group).await? {
            let at = expected.iter().position(|known| *known == letter);
            let at = at.with_context(|| format!("row {row} is one of {expected:?}: found {letter:?}"))?;
            expected.remove(at);
        }
        ensure!(expected.is_empty(), "each death has its letter: {expected:?} have none");
        Ok(())
    }
}

fn verdict(fate: Fate) -> Verdict {
    let delay = |span| match span {
        Span::Zero => Duration::ZERO,
        Span::Short => SHORT,
        Span::Long => LONG,
    };
    match fate {
        Fate::Ack => Verdict::Ack(Effects::default()),
        Fate::Retry(span) => {
            Verdict::Retry { delay: delay(span), reason: "not now".to_owned(), failure: FailureKind::Retry }
        }
        Fate::Reject => {
            Verdict::DeadLetter { cause: Cause::Rejected, reason: "never".to_owned(), failure: None }
        }
        Fate::Release => Verdict::Release,
    }
}
