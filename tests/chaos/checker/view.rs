//! A history, sorted by event.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Answer, Fate, History, Micros, Plan, What, Written};

pub(super) struct View<'a> {
    pub(super) attempts_max: u32,
    pub(super) complete: bool,
    pub(super) events: BTreeMap<&'a str, EventView<'a>>,
    /// The ids of each batch, in the order given.
    pub(super) batches: BTreeMap<u64, Vec<&'a str>>,
    /// What was seen of each partition's frontier, in time order.
    pub(super) frontiers: BTreeMap<u32, Vec<(Micros, u64)>>,
    /// The log of each partition, in sequence order.
    pub(super) logs: BTreeMap<u32, Vec<(u64, &'a str)>>,
    pub(super) drained: BTreeSet<&'a str>,
    pub(super) states: BTreeMap<&'a str, u64>,
}

/// All that is known of one event.
#[derive(Default)]
pub(super) struct EventView<'a> {
    pub(super) appended: Option<(u64, Plan, Answer)>,
    pub(super) stored: Vec<(u32, u64)>,
    pub(super) delivered: Vec<Sighting<'a>>,
    pub(super) leased: Vec<Leased<'a>>,
    pub(super) written: Vec<(&'a str, u32, Written)>,
    pub(super) effects: Vec<Effect<'a>>,
    pub(super) dead: Vec<Dead>,
    pub(super) left: bool,
}

/// Someone was seen to have an attempt, at the latest then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting<'a> {
    pub(super) at: Micros,
    pub(super) run: &'a str,
    pub(super) attempt: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leased<'a> {
    pub(super) seen: Sighting<'a>,
    pub(super) asked: Micros,
    pub(super) until: Micros,
}

pub(super) struct Effect<'a> {
    pub(super) at: Micros,
    pub(super) attempt: u32,
    pub(super) account: &'a str,
    pub(super) sum: u64,
}

pub(super) struct Dead {
    pub(super) at: Micros,
    pub(super) attempts: u32,
    pub(super) rejected: bool,
}

impl<'a> EventView<'a> {
    /// All who were seen to have one of its attempts.
    pub(super) fn sightings(&self) -> impl Iterator<Item = Sighting<'a>> + '_ {
        self.delivered.iter().copied().chain(self.leased.iter().map(|leased| leased.seen))
    }

    /// When it was settled, by the store's time; never for one that was not.
    pub(super) fn settled_at(&self) -> Option<Micros> {
        self.effects.iter().map(|effect| effect.at).chain(self.dead.iter().map(|dead| dead.at)).min()
    }

    pub(super) fn wrote(&self, run: &str, attempt: u32, verdict: Written) -> bool {
        self.written.contains(&(run, attempt, verdict))
    }

    pub(super) fn fails_at(&self, attempt: u32) -> bool {
        self.appended.is_some_and(|(_, plan, _)| plan.fails_at(attempt))
    }

    pub(super) fn fate(&self) -> Option<Fate> {
        self.appended.map(|(_, plan, _)| plan.fate)
    }
}

impl<'a> View<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut view = Self {
            attempts_max: history.attempts_max,
            complete: history.complete,
            events: BTreeMap::new(),
            batches: BTreeMap::new(),
            frontiers: BTreeMap::new(),
            logs: BTreeMap::new(),
            drained: BTreeSet::new(),
            states: BTreeMap::new(),
        };
        for record in &history.records {
            view.add(record.at, &record.what);
        }
        view.frontiers.values_mut().for_each(|seen| seen.sort_by_key(|(at, _)| *at));
        view.logs.values_mut().for_each(|log| log.sort_by_key(|(sequence, _)| *sequence));
        view
    }

    fn event(&mut self, id: &'a str) -> &mut EventView<'a> {
        self.events.entry(id).or_default()
    }

    fn add(&mut self, at: Micros, what: &'a What) {
        match what {
            What::Appended { batch, id, plan, answer } => {
                self.event(id).appended = Some((*batch, *plan, *answer));
                self.batches.entry(*batch).or_default().push(id);
            }
            What::Delivered { run, id, attempt } => {
                self.event(id).delivered.push(Sighting { at, run, attempt: *attempt });
            }
            What::Written { run, id, attempt, verdict } => {
                self.event(id).written.push((run, *attempt, *verdict));
            }
            What::Drained { run } => {
                self.drained.insert(run);
            }
            What::Leased { run, id, attempt, asked, until } => {
                let seen = Sighting { at, run, attempt: *attempt };
                self.event(id).leased.push(Leased { seen, asked: *asked, until: *until });
            }
            What::Frontier { partition, sequence } => {
                self.frontiers.entry(*partition).or_default().push((at, *sequence));
            }
            What::Stored { id, partition, sequence } => {
                self.event(id).stored.push((*partition, *sequence));
                self.logs.entry(*partition).or_default().push((*sequence, id));
            }
            What::Effect { id, attempt, account, sum } => {
                self.event(id).effects.push(Effect { at, attempt: *attempt, account, sum: *sum });
            }
            What::State { account, sum } => {
                self.states.insert(account, *sum);
            }
            What::Dead { id, attempts, rejected } => {
                self.event(id).dead.push(Dead { at, attempts: *attempts, rejected: *rejected });
            }
            What::Unsettled { id } => self.event(id).left = true,
        }
    }
}
