//! Walks what moves groups, redrives and trims.

use anyhow::{Context as _, Result, bail, ensure};
use proptest::sample::Index;
use wasmill::backend::{
    DeadEvent, Error, NewGroup, Positions, Redriven, Rewind, RewindKind, Start, Trim, rewind,
};

use super::drive::{Drive, Take};
use super::state::{Letter, Place};
use super::{Fate, PARTITIONS, Span};

/// How often a rewind is gone on with at most.
const STEPS_MAX: usize = 100;

/// How to move a group.
pub(crate) struct Move<'a> {
    pub(crate) group: usize,
    pub(crate) kind: RewindKind,
    pub(crate) to: &'a [(u32, Index)],
    /// Leases that are settled while it is under way.
    pub(crate) meanwhile: &'a [(bool, Index, Fate)],
    /// Finished by claims, not by going on with it.
    pub(crate) by_claims: bool,
}

impl Drive<'_> {
    /// A sequence of a partition, or one that is none.
    fn sequence(&self, partition: u32, index: Index) -> u64 {
        index.index(self.model.high_watermark(partition) as usize + 3) as u64
    }

    pub(super) async fn rewind(&mut self, handle: usize, r#move: &Move<'_>) -> Result<()> {
        let Move { group, kind, .. } = *r#move;
        let to = r#move.to.iter().map(|(partition, index)| (*partition, self.sequence(*partition, *index)));
        let rewind = Rewind { kind, to: to.collect() };
        let chosen = self.choose(group, r#move.meanwhile);
        let key = self.groups[group].clone();
        self.handles[handle].begin_rewind(&key, &rewind).await?;
        let (mut dropped_min, mut dropped_max) = (0, 0);
        for (partition, to) in &rewind.to {
            let trimmed = self.model.trimmed[*partition as usize];
            let model = &mut self.model.groups[group];
            let (dropped, with_redriven) = model.rewind(kind, (*partition, *to), trimmed);
            dropped_min += dropped;
            dropped_max += with_redriven;
        }
        self.settle(1 - handle, group, chosen).await.context("while a rewind is under way")?;
        let again = self.handles[1 - handle].begin_rewind(&key, &rewind).await;
        // Of no partition it is at its end from the beginning.
        let refused = matches!(again, Err(Error::RewindUnderWay(_))) || rewind.to.is_empty();
        ensure!(refused, "only one rewind is under way: {again:?}");
        if r#move.by_claims {
            return self.finish_by_claims(1 - handle, group).await;
        }
        let mut dropped = 0;
        for _ in 0..STEPS_MAX {
            let step = self.handles[handle].continue_rewind(&key).await?;
            dropped += step.dropped;
            if step.finished {
                let expected = dropped_min..=dropped_max;
                ensure!(expected.contains(&dropped), "{expected:?} pending entries go, found {dropped}");
                return Ok(());
            }
        }
        bail!("a rewind comes to its end")
    }

    /// The group is deleted, and made anew behind some sequences.
    pub(super) async fn recreate(&mut self, handle: usize, group: usize, to: &[(u32, Index)]) -> Result<()> {
        let key = self.groups[group].clone();
        let backend = self.handles[handle].clone();
        let delete = Rewind { kind: RewindKind::Delete, to: Positions::new() };
        rewind(backend.as_ref(), &key, &delete).await?;
        let known = self.handles[1 - handle].groups(&self.stream).await?;
        ensure!(!known.contains(&key.group), "a deleted group is listed no longer: found {known:?}");
        let after = to.iter().map(|(partition, index)| (*partition, self.sequence(*partition, *index)));
        let after: Positions = after.collect();
        let max_attempts = self.model.groups[group].max_attempts;
        let new = NewGroup { max_attempts, start: Start::After(after.clone()) };
        self.handles[1 - handle].create_group(&key, new).await?;
        let model = &self.model;
        let starts: Vec<u64> = (0..PARTITIONS)
            .map(|p| {
                let start = after.get(&p).copied().unwrap_or(0);
                start.min(model.high_watermark(p)).max(model.trimmed[p as usize])
            })
            .collect();
        self.model.groups[group].recreate(&starts);
        Ok(())
    }

    async fn finish_by_claims(&mut self, handle: usize, group: usize) -> Result<()> {
        let all: Vec<u32> = (0..PARTITIONS).collect();
        let take = Take {
            group,
            consumer: 0,
            partitions: &all,
            limit: 3,
            lease: Span::Long,
            sweep: false,
            alone: false,
        };
        for _ in 0..STEPS_MAX {
            if self.handles[handle].group_info(&self.groups[group]).await?.rewind.is_none() {
                return Ok(());
            }
            self.claim_meanwhile(handle, &take).await?;
        }
        bail!("claims bring a rewind to its end")
    }

    /// The store's dead letters, as the model has them, with their rows.
    pub(super) async fn letters(&self, handle: usize, group: usize) -> Result<Vec<(String, Letter)>> {
        let mut letters = Vec::new();
        for letter in self.handles[handle].dead_letters(&self.groups[group], None, 10_000).await? {
            let DeadEvent::Event(event) = &letter.event else {
                bail!("our own event is readable: {letter:?}")
            };
            let place = (event.partition, event.sequence);
            ensure!(self.model.events.get(&place) == Some(event), "the whole event: {letter:?}");
            let cause = letter.cause.context("a dead letter of ours has a cause")?;
            let attempts = letter.attempts.context("a dead letter of ours has its attempts")?;
            letters.push((letter.row, Letter { place, cause, failure: letter.failure, attempts }));
        }
        Ok(letters)
    }

    /// Some rows, most of them of dead letters that are there; twice the same may be among them.
    async fn rows(
        &self,
        handle: usize,
        group: usize,
        picks: &[Index],
    ) -> Result<Vec<(String, Option<Letter>)>> {
        let letters = self.letters(handle, group).await?;
        let mut rows: Vec<(String, Option<Letter>)> = Vec::new();
        for index in picks {
            match letters.get(index.index(letters.len() + 1)) {
                // The second time it is there no more.
                Some((row, _)) if rows.iter().any(|(known, _)| known == row) => {
                    rows.push((row.clone(), None))
                }
                Some((row, letter)) => rows.push((row.clone(), Some(letter.clone()))),
                None => rows.push((format!("no row {}", rows.len()), None)),
            }
        }
        Ok(rows)
    }

    pub(super) async fn purge(&mut self, handle: usize, group: usize, picks: &[Index]) -> Result<()> {
        let rows = self.rows(handle, group, picks).await?;
        let expected = rows.iter().filter(|(_, letter)| letter.is_some()).count() as u64;
        let (rows, letters): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let found = self.handles[handle].purge(&self.groups[group], &rows).await?;
        letters.iter().flatten().for_each(|letter| self.model.groups[group].purge(letter));
        ensure!(found == expected, "{expected} of {rows:?} are there: found {found}");
        Ok(())
    }

    pub(super) async fn redrive(&mut self, handle: usize, group: usize, picks: &[Index]) -> Result<()> {
        let picked = self.rows(handle, group, picks).await?;
        let rows: Vec<String> = picked.iter().map(|(row, _)| row.clone()).collect();
        let found = self.handles[handle].redrive(&self.groups[group], &rows).await?;
        let mut expected = Vec::new();
        let mut refused: Vec<(&str, Redriven)> = Vec::new();
        for (row, letter) in &picked {
            let answer = match letter {
                Some(letter) => self.model.groups[group].redrive(letter),
                // The second time a row is named it has gone, unless it was left alone.
                None => refused.iter().find(|(known, _)| known == row).map_or(Redriven::Gone, |(_, a)| *a),
            };
            if answer == Redriven::Underway {
                refused.push((row, answer));
            }
            expected.push(answer);
        }
        ensure!(found == expected, "redriving {picked:?}: expected {expected:?}, found {found:?}");
        Ok(())
    }

    pub(super) async fn redeliver(
        &mut self,
        handle: usize,
        group: usize,
        picks: &[(u32, Index)],
    ) -> Result<()> {
        let places: Vec<Place> =
            picks.iter().map(|(partition, index)| (*partition, self.sequence(*partition, *index))).collect();
        let found = self.handles[handle].redeliver(&self.groups[group], &places).await?;
        ensure!(found.len() == places.len(), "one answer an event: found {found:?}");
        for (place, found) in places.into_iter().zip(found) {
            let group = &mut self.model.groups[group];
            let trimmed = place.1 <= self.model.trimmed[place.0 as usize];
            let expected = match group.redriven.contains_key(&place) {
                // The group has it, though the log does not.
                true if trimmed && found == Redriven::Gone => Redriven::Gone,
                false if trimmed => Redriven::Gone,
                _ => group.again(place),
            };
            ensure!(found == expected, "redelivering {place:?}: expected {expected:?}, found {found:?}");
        }
        Ok(())
    }

    pub(super) async fn trim(
        &mut self,
        handle: usize,
        partition: u32,
        max_length: Option<u64>,
        until: Option<Index>,
    ) -> Result<()> {
        let until = until.map(|index| self.sequence(partition, index));
        let trim = Trim { partition, max_length, max_age: None, until, force: false };
        let mut removed = 0;
        let last = loop {
            let step = self.handles[handle].trim(&self.stream, trim).await?;
            removed += step.removed;
            if !step.more {
                break step;
            }
            ensure!(step.removed > 0, "a step that leaves more does something: {step:?}");
        };
        let by_length = max_length.map(|max| self.model.high_watermark(partition).saturating_sub(max));
        let (expected, held) = self.model.trim(partition, by_length.max(until).unwrap_or(0));
        ensure!(removed == expected, "{trim:?} removes {expected}: found {removed}");
        let found = last.held.as_ref().map(|held| held.sequence);
        ensure!(found == held.as_ref().map(|held| held.0), "{trim:?} is held by {held:?}: found {last:?}");
        if let (Some(found), Some((_, groups))) = (last.held, held) {
            let named = groups.iter().any(|group| self.groups[*group].group == found.group);
            ensure!(named, "of {groups:?} one is named: found {found:?}");
        }
        self.compare_log(partition).await
    }

    /// The log holds what was not trimmed.
    async fn compare_log(&self, partition: u32) -> Result<()> {
        let stored = self.handles[0].read(&self.stream, partition, 0, 10_000).await?;
        let from = (partition, self.model.trimmed[partition as usize] + 1);
        let kept = self.model.events.range(from..=(partition, u64::MAX)).map(|(_, event)| event);
        ensure!(stored.iter().eq(kept), "what is left of partition {partition} is found: {stored:?}");
        let info = self.handles[1].stream_info(&self.stream).await?;
        let info = info.partitions.get(partition as usize).context("it has the partition")?;
        let expected = (self.model.high_watermark(partition), stored.len() as u64);
        ensure!((info.high_watermark, info.length) == expected, "{expected:?}: found {info:?}");
        let first = stored.first().map(|event| event.sequence);
        ensure!(info.first == first, "the first is {first:?}: found {info:?}");
        Ok(())
    }
}
