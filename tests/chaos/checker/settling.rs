//! Every event is settled once, as its handler said, with its effects once or without any.

use std::collections::BTreeMap;

use super::view::{EventView, View};
use super::{Kind, Violation, accuse};
use crate::history::{Fate, Written};

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for (id, event) in &view.events {
        once(id, event, found);
        fate(id, event, found);
        if view.complete {
            settled(id, event, found);
        }
    }
    if view.complete {
        sums(view, found);
    }
}

fn once(id: &str, event: &EventView<'_>, found: &mut Vec<Violation>) {
    if event.effects.len() > 1 {
        let attempts: Vec<_> = event.effects.iter().map(|effect| effect.attempt).collect();
        accuse(found, Kind::EffectTwice, format!("{id}: effects of the attempts {attempts:?}"));
    }
    let (acked, dead) = (usize::from(!event.effects.is_empty()), event.dead.len());
    if acked + dead > 1 {
        accuse(found, Kind::SettledTwice, format!("{id}: acked {acked} times, dead {dead} times"));
    }
    let last = |(_, _, verdict): &&_| matches!(verdict, Written::Acked | Written::DeadLettered);
    let written: Vec<_> = event.written.iter().filter(last).collect();
    if written.len() > 1 {
        accuse(found, Kind::SettledTwice, format!("{id}: engines wrote {written:?}"));
    }
}

fn settled(id: &str, event: &EventView<'_>, found: &mut Vec<Violation>) {
    let is_settled = !event.effects.is_empty() || !event.dead.is_empty();
    if event.left || !event.stored.is_empty() && !is_settled {
        accuse(found, Kind::Unsettled, format!("{id}: stored at {:?}", event.stored));
    }
    for (run, attempt, verdict) in &event.written {
        let there = match verdict {
            Written::Acked => event.effects.iter().any(|effect| effect.attempt == *attempt),
            Written::DeadLettered => event.dead.iter().any(|dead| dead.attempts == *attempt),
            Written::Retried | Written::HandedBack => true,
        };
        if !there {
            accuse(found, Kind::WriteLost, format!("{id}: {run} wrote {verdict:?} at attempt {attempt}"));
        }
    }
}

fn fate(id: &str, event: &EventView<'_>, found: &mut Vec<Violation>) {
    let Some(fate) = event.fate() else { return };
    for effect in &event.effects {
        if fate != Fate::Ack || event.fails_at(effect.attempt) {
            let detail = format!("{id}: acked at attempt {}, though planned {fate:?}", effect.attempt);
            accuse(found, Kind::WrongFate, detail);
        }
    }
    for dead in &event.dead {
        if dead.rejected && (fate != Fate::Reject || event.fails_at(dead.attempts)) {
            let detail = format!("{id}: rejected at attempt {}, though planned {fate:?}", dead.attempts);
            accuse(found, Kind::WrongFate, detail);
        }
    }
}

/// Each account was counted up by one for each effect, and by nothing else.
fn sums(view: &View<'_>, found: &mut Vec<Violation>) {
    let mut accounts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for effect in view.events.values().flat_map(|event| &event.effects) {
        accounts.entry(effect.account).or_default().push(effect.sum);
    }
    for (account, mut sums) in accounts {
        sums.sort_unstable();
        let count = sums.len() as u64;
        if !sums.iter().copied().eq(1..=count) {
            accuse(found, Kind::WrongState, format!("{account}: {count} effects came to {sums:?}"));
        }
        if view.states.get(account) != Some(&count) {
            let state = view.states.get(account);
            accuse(
                found,
                Kind::WrongState,
                format!("{account}: {state:?} in the state after {count} effects"),
            );
        }
    }
}
