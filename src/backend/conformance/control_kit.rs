//! Short ways to move a group over its log, to deliver dead letters again and to trim.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::kit::{LONG, Scene, ack, ensure_eq, name, reject, retry, settlement};
use crate::backend::{DeadLetter, Explanation, Redriven, Rewind, RewindKind, Settled, Trim, Trimmed};
use crate::event::{Event, GroupKey, Lease, Leased};
use crate::outcome::Verdict;

/// No trim and no rewind of the checks takes more steps.
const STEPS_MAX: usize = 10_000;

impl Scene {
    /// Begins to move the group behind these sequences.
    pub(super) async fn begin(&self, kind: RewindKind, to: &[(u32, u64)]) -> crate::backend::Result<()> {
        let rewind = Rewind { kind, to: to.iter().copied().collect() };
        self.backend.begin_rewind(&self.group, &rewind).await
    }

    /// Goes on with the rewind that is under way, to its end. How many entries each step dropped.
    pub(super) async fn finish(&self) -> Result<Vec<u64>> {
        let mut steps = Vec::new();
        loop {
            let step = self.backend.continue_rewind(&self.group).await?;
            steps.push(step.dropped);
            if step.finished {
                return Ok(steps);
            }
            ensure!(steps.len() < STEPS_MAX, "a rewind comes to its end: not within {STEPS_MAX} steps");
        }
    }

    /// Moves the group behind these sequences. How many pending entries were dropped.
    pub(super) async fn rewind(&self, kind: RewindKind, to: &[(u32, u64)]) -> Result<u64> {
        let rewind = Rewind { kind, to: to.iter().copied().collect() };
        Ok(crate::backend::rewind(self.backend.as_ref(), &self.group, &rewind).await?)
    }

    /// The group's dead letters.
    pub(super) async fn letters(&self) -> Result<Vec<DeadLetter>> {
        Ok(self.backend.dead_letters(&self.group, None, 10_000).await?)
    }

    /// The rows of the group's dead letters.
    pub(super) async fn rows(&self) -> Result<Vec<String>> {
        Ok(self.letters().await?.into_iter().map(|letter| letter.row).collect())
    }

    /// Redrives all dead letters there are, each of which must be taken.
    pub(super) async fn redrive_all(&self) -> Result<()> {
        for rows in self.rows().await?.chunks(100) {
            let redriven = self.backend.redrive(&self.group, rows).await?;
            ensure_eq("dead letters are redriven", redriven, vec![Redriven::Done; rows.len()])?;
        }
        Ok(())
    }

    /// Makes dead letters of all, each of which must be taken.
    pub(super) async fn reject_all(&self, leased: &[Leased]) -> Result<()> {
        for batch in leased.chunks(100) {
            let batch: Vec<_> = batch.iter().map(|l| settlement(&l.lease, reject())).collect();
            let settled = self.settle("settler", &batch).await?;
            ensure_eq("live leases reject", settled, vec![Settled::Done; batch.len()])?;
        }
        Ok(())
    }

    /// A lease that is no longer its holder's can do nothing.
    pub(super) async fn ensure_stale(&self, lease: &Lease) -> Result<()> {
        for verdict in [ack(), retry(Duration::ZERO), reject(), Verdict::Release] {
            let what = format!("{verdict:?} under a lease that is lost");
            ensure_eq(&what, self.verdict(lease, verdict).await?, Settled::Stale)?;
        }
        ensure_eq("renewal of a lease that is lost", self.renew(lease, LONG).await?, Settled::Stale)
    }

    /// What a partition's log holds.
    pub(super) async fn log(&self, partition: u32) -> Result<Vec<Event>> {
        Ok(self.backend.read(&self.group.stream, partition, 0, 10_000).await?)
    }

    /// The sequences that a partition's log holds.
    pub(super) async fn logged(&self, partition: u32) -> Result<Vec<u64>> {
        Ok(self.log(partition).await?.into_iter().map(|event| event.sequence).collect())
    }

    /// Trims as far as it goes. How much went, and what keeps the rest.
    pub(super) async fn trim(&self, trim: Trim) -> Result<Trimmed> {
        let mut removed = 0;
        for _ in 0..STEPS_MAX {
            let step = self.backend.trim(&self.group.stream, trim).await?;
            removed += step.removed;
            if !step.more {
                return Ok(Trimmed { removed, ..step });
            }
        }
        anyhow::bail!("a trim comes to its end: not within {STEPS_MAX} steps")
    }

    /// Removes everything of a partition up to a sequence, settled or not.
    pub(super) async fn cut(&self, partition: u32, until: u64) -> Result<()> {
        let trim = Trim { partition, until: Some(until), force: true, ..Trim::default() };
        let trimmed = self.trim(trim).await?;
        ensure_eq("nothing holds a forced trim", trimmed.held, None)?;
        let left = self.logged(partition).await?;
        ensure!(left.iter().all(|s| *s > until), "everything up to {until} went: found {left:?}");
        Ok(())
    }

    /// What holds the frontier in a partition.
    pub(super) async fn explain(&self, partition: u32) -> Result<Explanation> {
        Ok(self.backend.explain(&self.group, partition).await?)
    }

    /// Claims the one event that must be ready, and nothing else may be.
    pub(super) async fn claim_only(&self, consumer: &str) -> Result<Leased> {
        let mut held = self.claim_all(consumer, 1).await?;
        held.extend(self.claim(consumer, 10).await?);
        ensure_eq("one event is ready", held.len(), 1)?;
        held.pop().context("one event is ready")
    }

    /// A group of a stream that is missing, and a missing group of the stream.
    pub(super) fn absent(&self) -> Result<(GroupKey, GroupKey)> {
        let nowhere = GroupKey::new(name("nowhere")?, name("workers")?);
        Ok((nowhere, GroupKey::new(self.group.stream.clone(), name("nobody")?)))
    }
}

/// All at their first attempt.
pub(super) fn ensure_afresh(leased: &[Leased]) -> Result<()> {
    let attempts: Vec<u32> = leased.iter().map(|l| l.lease.attempt).collect();
    ensure_eq("attempts are counted afresh", attempts, vec![1; leased.len()])
}

/// The events, in the order of their places.
pub(super) fn events(leased: &[Leased]) -> Vec<Event> {
    let mut events: Vec<Event> = leased.iter().map(|l| l.event.clone()).collect();
    events.sort_by_key(|event| (event.partition, event.sequence));
    events
}

/// Those with this sequence or a lower one, and the others.
pub(super) fn split(leased: Vec<Leased>, sequence: u64) -> (Vec<Leased>, Vec<Leased>) {
    leased.into_iter().partition(|l| l.event.sequence <= sequence)
}
