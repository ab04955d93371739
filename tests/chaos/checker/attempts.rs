//! Attempts are counted right: one holder each, never beyond the cap, none after the end.

use std::collections::{BTreeMap, BTreeSet};

use super::view::{EventView, View};
use super::{Kind, Violation, accuse};
use crate::history::Written;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for (id, event) in &view.events {
        holders(id, event, view, found);
        last(id, event, view.attempts_max, found);
    }
}

fn holders(id: &str, event: &EventView<'_>, view: &View<'_>, found: &mut Vec<Violation>) {
    let mut holders: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for sighting in event.sightings() {
        holders.entry(sighting.attempt).or_default().insert(sighting.run);
    }
    for (attempt, runs) in holders {
        if attempt > view.attempts_max {
            accuse(found, Kind::BeyondCap, format!("{id}: attempt {attempt} by {runs:?}"));
        }
        // Handed back, an attempt does not count, and the next holder has the same number.
        let back =
            |run: &&&str| view.drained.contains(**run) || event.wrote(run, attempt, Written::HandedBack);
        if runs.len() > runs.iter().filter(back).count() + 1 {
            accuse(found, Kind::AttemptTwice, format!("{id}: attempt {attempt} by {runs:?}"));
        }
    }
}

fn last(id: &str, event: &EventView<'_>, attempts_max: u32, found: &mut Vec<Violation>) {
    let was_delivered = |attempt| event.delivered.iter().any(|sighting| sighting.attempt == attempt);
    let mut settled = Vec::new();
    for effect in &event.effects {
        if !was_delivered(effect.attempt) {
            let detail = format!("{id}: an effect of attempt {}, which no handler had", effect.attempt);
            accuse(found, Kind::WrongAttempt, detail);
        }
        settled.push(effect.attempt);
    }
    for dead in &event.dead {
        if dead.attempts > attempts_max {
            accuse(found, Kind::BeyondCap, format!("{id}: a dead letter of {} attempts", dead.attempts));
        }
        let right = if dead.rejected { was_delivered(dead.attempts) } else { dead.attempts == attempts_max };
        if !right {
            let detail = format!("{id}: dead after {} attempts (rejected: {})", dead.attempts, dead.rejected);
            accuse(found, Kind::WrongAttempt, detail);
        }
        settled.push(dead.attempts);
    }
    let Some(settled) = settled.into_iter().max() else { return };
    if let Some(late) = event.sightings().find(|sighting| sighting.attempt > settled) {
        accuse(found, Kind::AfterSettled, format!("{id}: settled at attempt {settled}, then {late:?}"));
    }
}
