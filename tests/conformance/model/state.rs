//! The model: what a stream and its groups are, without store, clock or concurrency.
//!
//! Where the trait leaves a choice (which ready entries a claim takes, how far a sweep looks) the
//! model says what may be taken; the driver checks that nothing else is.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use wasmill::backend::{ClaimDeath, Settled};
use wasmill::event::{Event, Lease, Leased};
use wasmill::outcome::{Cause, FailureKind};

use super::{Fate, PARTITIONS, Span};

/// Partition and sequence.
pub(crate) type Place = (u32, u64);

/// Whether a moment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Come {
    No,
    /// Where the store's clock cannot be stopped, a short span may be over or not.
    Maybe,
    Yes,
}

/// An event's state in a group.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    New,
    Leased { id: String, attempt: u32, after_expiry: bool, ends: Span },
    Parked { attempts: u32, after_expiry: bool, due: Span, failure: Option<FailureKind> },
    Settled,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) place: Place,
    pub(crate) cause: Cause,
    pub(crate) failure: Option<FailureKind>,
    pub(crate) attempts: u32,
}

/// What a claim may do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Nothing,
    /// Deliver it at this attempt, by an ordinary claim.
    Attempt(u32),
    /// Deliver it at this attempt, alone.
    Suspect(u32),
    /// Settle it as a dead letter.
    Death,
}

/// One group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) max_attempts: u32,
    /// How the log's events stand. What was trimmed stays here, settled.
    pub(crate) entries: BTreeMap<Place, Entry>,
    /// How those stand, leased or parked, that are delivered again after they were settled.
    pub(crate) redriven: BTreeMap<Place, Entry>,
    /// The dead letters, the oldest first.
    pub(crate) letters: Vec<Letter>,
    /// Every lease that was ever given, in order.
    pub(crate) leases: Vec<Lease>,
    /// Whether time stands still until it is moved.
    exact: bool,
}

impl Group {
    pub(crate) fn new(max_attempts: u32, exact: bool) -> Self {
        Self {
            max_attempts,
            entries: BTreeMap::new(),
            redriven: BTreeMap::new(),
            letters: Vec::new(),
            leases: Vec::new(),
            exact,
        }
    }

    fn come(&self, span: Span) -> Come {
        match span {
            Span::Zero => Come::Yes,
            Span::Short if !self.exact => Come::Maybe,
            Span::Short | Span::Long => Come::No,
        }
    }

    /// Time passes: short spans end, long ones only with much of it.
    pub(crate) fn pass(&mut self, long: bool) {
        for entry in self.entries.values_mut().chain(self.redriven.values_mut()) {
            if let Entry::Leased { ends: span, .. } | Entry::Parked { due: span, .. } = entry
                && (long || *span == Span::Short)
            {
                *span = Span::Zero;
            }
        }
    }

    /// What a claim may do with an entry, and whether it has come for certain.
    fn offer(&self, entry: &Entry, sweep: bool) -> (Offer, Come) {
        let (attempts, after_expiry, come) = match entry {
            Entry::New => (0, false, Come::Yes),
            Entry::Parked { attempts, after_expiry, due, .. } => (*attempts, *after_expiry, self.come(*due)),
            // Who asks for a suspect finds it without a sweep.
            Entry::Leased { attempt, ends, .. } => (*attempt, true, self.come(*ends)),
            Entry::Settled => return (Offer::Nothing, Come::No),
        };
        if come == Come::No {
            return (Offer::Nothing, come);
        }
        let leased = matches!(entry, Entry::Leased { .. });
        if after_expiry && self.max_attempts > 1 && attempts + 1 == self.max_attempts {
            return (Offer::Suspect(attempts + 1), come);
        }
        let offer = match () {
            () if leased && !sweep => Offer::Nothing,
            () if attempts >= self.max_attempts => Offer::Death,
            () => Offer::Attempt(attempts + 1),
        };
        (offer, come)
    }

    /// Everything that can be on offer.
    fn states(&self) -> impl Iterator<Item = (&Place, &Entry)> {
        self.entries.iter().chain(&self.redriven)
    }

    /// How an event stands: as it was redriven, or as it was appended.
    pub(crate) fn state(&self, place: &Place) -> Option<&Entry> {
        self.redriven.get(place).or_else(|| self.entries.get(place))
    }

    /// The same, to be changed.
    fn state_mut(&mut self, place: &Place) -> Option<&mut Entry> {
        self.redriven.get_mut(place).or_else(|| self.entries.get_mut(place))
    }

    /// An event is settled.
    fn end(&mut self, place: Place) {
        if self.redriven.remove(&place).is_none() {
            self.entries.insert(place, Entry::Settled);
        }
    }

    /// Whether an ordinary claim without sweep must give something from these partitions.
    pub(crate) fn must_give(&self, partitions: &[u32]) -> bool {
        self.states().any(|((partition, _), entry)| {
            let offered = self.offer(entry, false);
            partitions.contains(partition) && matches!(offered, (Offer::Attempt(_) | Offer::Death, Come::Yes))
        })
    }

    /// Whether there may be suspects in these partitions.
    pub(crate) fn may_suspect(&self, partitions: &[u32]) -> bool {
        self.states().any(|((partition, _), entry)| {
            partitions.contains(partition) && matches!(self.offer(entry, true).0, Offer::Suspect(_))
        })
    }

    /// An entry was delivered; it must have been on offer.
    pub(crate) fn delivered(&mut self, leased: &Leased, lease: Span, sweep: bool, alone: bool) -> Result<()> {
        let Lease { partition, sequence, .. } = leased.lease;
        let entry = self.state(&(partition, sequence));
        let entry = entry.with_context(|| format!("{partition}/{sequence} was never appended"))?;
        let expected = match (self.offer(entry, sweep).0, alone) {
            (Offer::Attempt(attempt), false) | (Offer::Suspect(attempt), true) => attempt,
            (offer, _) => bail!(
                "{partition}/{sequence} was delivered (sweep {sweep}, alone {alone}), though it offers {offer:?} as {entry:?}"
            ),
        };
        ensure!(
            leased.lease.attempt == expected,
            "{partition}/{sequence} as {entry:?} comes at attempt {expected}: found {}",
            leased.lease.attempt
        );
        let after_expiry = match entry {
            Entry::Leased { .. } => true,
            Entry::Parked { after_expiry, .. } => *after_expiry,
            _ => false,
        };
        let mut before = self.leases.iter().filter(|l| (l.partition, l.sequence) == (partition, sequence));
        ensure!(before.all(|l| l.id != leased.lease.id), "no two deliveries share a lease id: {leased:?}");
        let id = leased.lease.id.to_string();
        if let Some(entry) = self.state_mut(&(partition, sequence)) {
            *entry = Entry::Leased { id, attempt: expected, after_expiry, ends: lease };
        }
        self.leases.push(leased.lease.clone());
        Ok(())
    }

    /// A claim settled an entry as a dead letter; its attempts must have been used up.
    pub(crate) fn died(&mut self, death: &ClaimDeath, sweep: bool) -> Result<()> {
        let place = (death.partition, death.sequence.context("our own events have a sequence")?);
        let entry = self.state(&place).with_context(|| format!("{place:?} was never appended"))?;
        let offer = self.offer(entry, sweep).0;
        ensure!(offer == Offer::Death, "{place:?} as {entry:?} offers {offer:?}, not its death");
        ensure!(death.cause == Cause::AttemptsExhausted, "attempts are used up: found {death:?}");
        let (attempts, failure) = match entry {
            Entry::Parked { attempts, failure, .. } => (*attempts, *failure),
            Entry::Leased { attempt, .. } => (*attempt, Some(FailureKind::Expired)),
            other => bail!("{other:?} cannot die"),
        };
        self.end(place);
        self.letters.push(Letter { place, cause: Cause::AttemptsExhausted, failure, attempts });
        Ok(())
    }

    /// The state of whose lease this is, while it is.
    fn held(&mut self, lease: &Lease) -> Option<&mut Entry> {
        let entry = self.state_mut(&(lease.partition, lease.sequence))?;
        matches!(entry, Entry::Leased { id, .. } if **id == *lease.id).then_some(entry)
    }

    /// The leases that can still settle, ended or not.
    pub(crate) fn held_leases(&self) -> Vec<Lease> {
        let held = |lease: &&Lease| {
            let entry = self.state(&(lease.partition, lease.sequence));
            matches!(entry, Some(Entry::Leased { id, .. }) if **id == *lease.id)
        };
        self.leases.iter().filter(held).cloned().collect()
    }

    /// What settling must answer, and what it leaves.
    pub(crate) fn settle(&mut self, lease: &Lease, fate: Fate) -> Settled {
        let Some(entry) = self.held(lease) else { return Settled::Stale };
        let Entry::Leased { attempt, after_expiry, .. } = *entry else { return Settled::Stale };
        let (attempts, due, failure) = match fate {
            Fate::Retry(due) => (attempt, due, Some(FailureKind::Retry)),
            Fate::Release => (attempt - 1, Span::Zero, None),
            Fate::Ack | Fate::Reject => {
                let place = (lease.partition, lease.sequence);
                self.end(place);
                if fate == Fate::Reject {
                    let cause = Cause::Rejected;
                    self.letters.push(Letter { place, cause, failure: None, attempts: attempt });
                }
                return Settled::Done;
            }
        };
        let after_expiry = after_expiry && fate == Fate::Release;
        *entry = Entry::Parked { attempts, after_expiry, due, failure };
        Settled::Done
    }

    /// What renewing must answer, and what it leaves.
    pub(crate) fn renew(&mut self, lease: &Lease, span: Span) -> Settled {
        match self.held(lease) {
            Some(Entry::Leased { ends, .. }) => {
                *ends = span;
                Settled::Done
            }
            _ => Settled::Stale,
        }
    }

    /// The highest sequence with everything at or below it settled.
    pub(crate) fn frontier(&self, partition: u32) -> u64 {
        let entries = self.entries.range((partition, 0)..=(partition, u64::MAX));
        entries.take_while(|(_, entry)| matches!(entry, Entry::Settled)).count() as u64
    }

    /// Whether everything is settled.
    pub(crate) fn is_drained(&self) -> bool {
        self.redriven.is_empty() && self.entries.values().all(|entry| matches!(entry, Entry::Settled))
    }
}

/// A stream with its groups.
#[derive(Debug)]
pub(crate) struct Model {
    /// Every event that was ever appended.
    pub(crate) events: BTreeMap<Place, Event>,
    /// Up to which sequence each partition was trimmed.
    pub(crate) trimmed: [u64; PARTITIONS as usize],
    pub(crate) groups: Vec<Group>,
}

impl Model {
    /// The last sequence of a partition.
    pub(crate) fn high_watermark(&self, partition: u32) -> u64 {
        self.events.range((partition, 0)..=(partition, u64::MAX)).count() as u64
    }

    /// An event was appended.
    pub(crate) fn appended(&mut self, event: Event) {
        let place = (event.partition, event.sequence);
        for group in &mut self.groups {
            group.entries.insert(place, Entry::New);
        }
        self.events.insert(place, event);
    }
}
