//! The frontier never moves backward, and never past an event that is not settled.

use super::view::View;
use super::{Kind, Violation, accuse};
use crate::history::Micros;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for (partition, seen) in &view.frontiers {
        for pair in seen.windows(2) {
            if pair[1].1 < pair[0].1 {
                accuse(found, Kind::FrontierBack, format!("partition {partition}: {pair:?}"));
            }
        }
        if view.complete {
            behind_it_all_is_settled(view, *partition, seen, found);
        }
    }
    no_lease_behind_it(view, found);
}

/// Every event was settled by the time when the frontier was first seen at or above it.
fn behind_it_all_is_settled(
    view: &View<'_>,
    partition: u32,
    seen: &[(Micros, u64)],
    found: &mut Vec<Violation>,
) {
    let log = view.logs.get(&partition).map_or(&[][..], |log| log);
    let end = log.last().map_or(0, |(sequence, _)| *sequence);
    if let Some((at, beyond)) = seen.iter().find(|(_, frontier)| *frontier > end) {
        let detail = format!("partition {partition}: {beyond} at {at}, and the log ends at {end}");
        accuse(found, Kind::FrontierPastUnsettled, detail);
    }
    let mut seen = seen.iter().peekable();
    for (sequence, id) in log {
        while seen.next_if(|(_, frontier)| frontier < sequence).is_some() {}
        let Some((at, frontier)) = seen.peek() else { return };
        let settled_at = view.events[id].settled_at();
        if settled_at.is_none_or(|settled| settled > *at) {
            let detail = format!(
                "partition {partition}: {frontier} at {at}, and {id} (sequence {sequence}) was settled at {settled_at:?}"
            );
            accuse(found, Kind::FrontierPastUnsettled, detail);
        }
    }
}

fn no_lease_behind_it(view: &View<'_>, found: &mut Vec<Violation>) {
    for (id, event) in &view.events {
        let Some((partition, sequence)) = event.stored.first() else { continue };
        let Some(seen) = view.frontiers.get(partition) else { continue };
        for lease in &event.leased {
            if seen.iter().any(|(at, frontier)| at <= &lease.asked && frontier >= sequence) {
                let detail = format!("partition {partition}: {id} (sequence {sequence}) is held: {lease:?}");
                accuse(found, Kind::FrontierPastUnsettled, detail);
            }
        }
    }
}
