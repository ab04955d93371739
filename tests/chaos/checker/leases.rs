//! No one gets an event while another one's lease of it lives.

use super::view::{Leased, View};
use super::{Kind, Violation, accuse};
use crate::history::Written;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for (id, event) in &view.events {
        for Leased { seen: lease, until, .. } in &event.leased {
            // A verdict other than the last one ends a lease before its time, and so does a drain. An
            // engine may have died before it could say so.
            let may_end_early = event.fails_at(lease.attempt)
                || event.wrote(lease.run, lease.attempt, Written::Retried)
                || event.wrote(lease.run, lease.attempt, Written::HandedBack)
                || view.drained.contains(lease.run);
            if may_end_early {
                continue;
            }
            let other = event
                .sightings()
                .find(|other| other.attempt > lease.attempt && other.at < *until && other.run != lease.run);
            if let Some(other) = other {
                let detail = format!("{id}: {lease:?} holds until {until}, and {other:?}");
                accuse(found, Kind::TwoLeases, detail);
            }
        }
    }
}
