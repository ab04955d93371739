//! The model: what a stream and its groups are, without store, clock or concurrency.
//!
//! Where the trait leaves a choice (which ready entries a claim takes, how far a sweep looks) the
//! model says what may be taken; the driver checks that nothing else is.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use wasmill::backend::{ClaimDeath, Settled};
use wasmill::event::{Event, Lease, Leased};
use wasmill::outcome::{Cause, FailureKind};

use super::{Fate, Span};

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
    Acked,
    Dead { cause: Cause, failure: Option<FailureKind>, attempts: u32 },
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
    pub(crate) entries: BTreeMap<Place, Entry>,
    /// Every lease that was ever given, in order.
    pub(crate) leases: Vec<Lease>,
    /// Whether time stands still until it is moved.
    exact: bool,
}

impl Group {
    pub(crate) fn new(max_attempts: u32, exact: bool) -> Self {
        Self { max_attempts, entries: BTreeMap::new(), leases: Vec::new(), exact }
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
        for entry in self.entries.values_mut() {
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
            Entry::Acked | Entry::Dead { .. } => return (Offer::Nothing, Come::No),
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

    /// Whether an ordinary claim without sweep must give something from these partitions.
    pub(crate) fn must_give(&self, partitions: &[u32]) -> bool {
        self.entries.iter().any(|((partition, _), entry)| {
            let offered = self.offer(entry, false);
            partitions.contains(partition) && matches!(offered, (Offer::Attempt(_) | Offer::Death, Come::Yes))
        })
    }

    /// Whether there may be suspects in these partitions.
    pub(crate) fn may_suspect(&self, partitions: &[u32]) -> bool {
        self.entries.iter().any(|((partition, _), entry)| {
            partitions.contains(partition) && matches!(self.offer(entry, true).0, Offer::Suspect(_))
        })
    }

    /// An entry was delivered; it must have been on offer.
    pub(crate) fn delivered(&mut self, leased: &Leased, lease: Span, sweep: bool, alone: bool) -> Result<()> {
        let Lease { partition, sequence, .. } = leased.lease;
        let entry = self.entries.get(&(partition, sequence));
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
        let entry = Entry::Leased { id, attempt: expected, after_expiry, ends: lease };
        self.entries.insert((partition, sequence), entry);
        self.leases.push(leased.lease.clone());
        Ok(())
    }

    /// A claim settled an entry as a dead letter; its attempts must have been used up.
    pub(crate) fn died(&mut self, death: &ClaimDeath, sweep: bool) -> Result<()> {
        let place = (death.partition, death.sequence.context("our own events have a sequence")?);
        let entry = self.entries.get(&place).with_context(|| format!("{place:?} was never appended"))?;
        let offer = self.offer(entry, sweep).0;
        ensure!(offer == Offer::Death, "{place:?} as {entry:?} offers {offer:?}, not its death");
        ensure!(death.cause == Cause::AttemptsExhausted, "attempts are used up: found {death:?}");
        let (attempts, failure) = match entry {
            Entry::Parked { attempts, failure, .. } => (*attempts, *failure),
            Entry::Leased { attempt, .. } => (*attempt, Some(FailureKind::Expired)),
            other => bail!("{other:?} cannot die"),
        };
        self.entries.insert(place, Entry::Dead { cause: Cause::AttemptsExhausted, failure, attempts });
        Ok(())
    }

    /// The state of whose lease this is, while it is.
    fn held(&mut self, lease: &Lease) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&(lease.partition, lease.sequence))?;
        matches!(entry, Entry::Leased { id, .. } if **id == *lease.id).then_some(entry)
    }

    /// The leases that can still settle, ended or not.
    pub(crate) fn held_leases(&self) -> Vec<Lease> {
        let held = |lease: &&Lease| {
            let entry = self.entries.get(&(lease.partition, lease.sequence));
            matches!(entry, Some(Entry::Leased { id, .. }) if **id == *lease.id)
        };
        self.leases.iter().filter(held).cloned().collect()
    }

    /// What settling must answer, and what it leaves.
    pub(crate) fn settle(&mut self, lease: &Lease, fate: Fate) -> Settled {
        let Some(entry) = self.held(lease) else { return Settled::Stale };
        let Entry::Leased { attempt, after_expiry, .. } = *entry else { return Settled::Stale };
        *entry = match fate {
            Fate::Ack => Entry::Acked,
            Fate::Reject => Entry::Dead { cause: Cause::Rejected, failure: None, attempts: attempt },
            Fate::Retry(due) => Entry::Parked {
                attempts: attempt,
                after_expiry: false,
                due,
                failure: Some(FailureKind::Retry),
            },
            Fate::Release => {
                Entry::Parked { attempts: attempt - 1, after_expiry, due: Span::Zero, failure: None }
            }
        };
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

    /// The entries of one partition, in order.
    pub(crate) fn partition(&self, partition: u32) -> impl Iterator<Item = (u64, &Entry)> {
        let range = (partition, 0)..=(partition, u64::MAX);
        self.entries.range(range).map(|((_, sequence), entry)| (*sequence, entry))
    }

    /// The highest sequence with everything at or below it settled.
    pub(crate) fn frontier(&self, partition: u32) -> u64 {
        let settled = |entry: &Entry| matches!(entry, Entry::Acked | Entry::Dead { .. });
        self.partition(partition).take_while(|(_, entry)| settled(entry)).count() as u64
    }

    /// Whether everything is settled.
    pub(crate) fn is_drained(&self) -> bool {
        self.entries.values().all(|entry| matches!(entry, Entry::Acked | Entry::Dead { .. }))
    }

    /// How many dead letters there are.
    pub(crate) fn dead(&self) -> usize {
        self.entries.values().filter(|entry| matches!(entry, Entry::Dead { .. })).count()
    }
}

/// A stream with its groups.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) events: BTreeMap<Place, Event>,
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
