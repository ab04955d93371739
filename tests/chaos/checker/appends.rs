//! The log holds what was appended: all of it, nothing else, once and in order.

use super::view::View;
use super::{Kind, Violation, accuse};
use crate::history::Answer;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for (id, event) in &view.events {
        let Some((_, _, answer)) = event.appended else {
            accuse(found, Kind::FromNowhere, format!("{id}: seen, and never appended"));
            continue;
        };
        if event.stored.len() > 1 {
            accuse(found, Kind::StoredTwice, format!("{id}: at {:?}", event.stored));
        }
        if !event.stored.is_empty() && answer == Answer::Refused {
            accuse(found, Kind::StoredThoughRefused, format!("{id}: at {:?}", event.stored));
        }
        if view.complete && event.stored.is_empty() {
            if answer == Answer::Stored {
                accuse(found, Kind::Lost, format!("{id}: acknowledged, and not in the log"));
            } else if !event.effects.is_empty() || !event.dead.is_empty() || !event.delivered.is_empty() {
                accuse(found, Kind::FromNowhere, format!("{id}: handled, and not in the log"));
            }
        }
    }
    if view.complete {
        batches(view, found);
        order(view, found);
    }
}

fn batches(view: &View<'_>, found: &mut Vec<Violation>) {
    for (batch, ids) in &view.batches {
        let places: Vec<_> = ids.iter().map(|id| view.events[id].stored.first().copied()).collect();
        let there = places.iter().flatten().count();
        if there > 0 && there < ids.len() {
            accuse(found, Kind::TornBatch, format!("batch {batch}: {there} of {} events", ids.len()));
        }
        let mut last = std::collections::BTreeMap::new();
        for (id, (partition, sequence)) in ids.iter().zip(places).filter_map(|(id, at)| Some((id, at?))) {
            if last.insert(partition, sequence).is_some_and(|before| before >= sequence) {
                accuse(found, Kind::OutOfOrder, format!("batch {batch}: {id} before its turn"));
            }
        }
    }
}

fn order(view: &View<'_>, found: &mut Vec<Violation>) {
    for (partition, log) in &view.logs {
        for (expected, (sequence, id)) in (1u64..).zip(log) {
            if *sequence != expected {
                let detail = format!("partition {partition}: {id} has {sequence}, not {expected}");
                accuse(found, Kind::OutOfOrder, detail);
                break;
            }
        }
    }
}
