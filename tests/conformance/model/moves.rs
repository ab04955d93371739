//! The model's groups are moved over their log, get dead letters again, and lose what was trimmed.

use wasmill::backend::{Redriven, RewindKind};

use super::Span;
use super::state::{Entry, Group, Letter, Model, Place};

/// Waits to be delivered again, its attempts afresh.
const AFRESH: Entry = Entry::Parked { attempts: 0, after_expiry: false, due: Span::Zero, failure: None };

impl Group {
    /// The group is moved behind a sequence, in a log that was trimmed up to another one. How many
    /// entries that were pending are not any more, without and with the redriven ones.
    pub(crate) fn rewind(&mut self, kind: RewindKind, (partition, to): Place, trimmed: u64) -> (u64, u64) {
        let (mut dropped, mut redriven) = (0, 0);
        for ((_, sequence), entry) in self.entries.range_mut((partition, 0)..=(partition, u64::MAX)) {
            if kind == RewindKind::Replay && *sequence <= to {
                continue;
            }
            dropped += u64::from(matches!(entry, Entry::Leased { .. } | Entry::Parked { .. }));
            *entry = if *sequence <= to.max(trimmed) { Entry::Settled } else { Entry::New };
        }
        self.redriven.retain(|(of, sequence), entry| {
            let touched = *of == partition && (kind == RewindKind::Reset || *sequence > to);
            if touched {
                redriven += 1;
                *entry = AFRESH;
            }
            // Above the position it comes with the others, where the log has it.
            !touched || *sequence <= to.max(trimmed)
        });
        (dropped, dropped + redriven)
    }

    /// The group is made anew, behind these sequences of its partitions.
    pub(crate) fn recreate(&mut self, starts: &[u64]) {
        for ((partition, sequence), entry) in &mut self.entries {
            *entry = if *sequence <= starts[*partition as usize] { Entry::Settled } else { Entry::New };
        }
        self.redriven.clear();
        self.letters.clear();
    }

    /// A dead letter goes. It must be there.
    pub(crate) fn purge(&mut self, letter: &Letter) {
        let at = self.letters.iter().position(|l| l == letter);
        self.letters.remove(at.expect("the driver takes letters that are there"));
    }

    /// What redriving a dead letter that is there must answer, and what it leaves.
    pub(crate) fn redrive(&mut self, letter: &Letter) -> Redriven {
        let answer = self.again(letter.place);
        if answer == Redriven::Done {
            self.purge(letter);
        }
        answer
    }

    /// What delivering an event again must answer, and what it leaves.
    pub(crate) fn again(&mut self, place: Place) -> Redriven {
        match self.state(&place) {
            None => Redriven::Gone,
            Some(Entry::Settled) => {
                self.redriven.insert(place, AFRESH);
                Redriven::Done
            }
            Some(_) => Redriven::Underway,
        }
    }

    /// The lowest sequence of a partition, behind what was trimmed, that the group still needs.
    fn needs(&self, partition: u32, trimmed: u64) -> Option<u64> {
        let from = (partition, trimmed + 1)..=(partition, u64::MAX);
        let redriven = self.redriven.range(from).next().map(|((_, sequence), _)| *sequence);
        let unsettled = self.frontier(partition) + 1;
        let unsettled = self.entries.contains_key(&(partition, unsettled)).then_some(unsettled);
        redriven.into_iter().chain(unsettled).min()
    }
}

impl Model {
    /// A partition is to be trimmed up to a sequence. How many entries go, and which event holds
    /// the rest: its sequence, and the groups that need it.
    pub(crate) fn trim(&mut self, partition: u32, until: u64) -> (u64, Option<(u64, Vec<usize>)>) {
        let trimmed = self.trimmed[partition as usize];
        let until = until.min(self.high_watermark(partition)).max(trimmed);
        let needs: Vec<_> = self.groups.iter().map(|group| group.needs(partition, trimmed)).collect();
        let lowest = needs.iter().flatten().min().copied().filter(|lowest| *lowest <= until);
        let end = lowest.map_or(until, |lowest| lowest - 1);
        self.trimmed[partition as usize] = end;
        let of = |lowest| (0..needs.len()).filter(|group| needs[*group] == Some(lowest)).collect();
        (end - trimmed, lowest.map(|lowest| (lowest, of(lowest))))
    }
}
