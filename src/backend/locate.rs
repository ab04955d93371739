//! From what an operator knows (a time, a filter, ids) to positions in the log, by
//! [`Backend::scan`].

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Backend, Positions, Result, ScanRange};
use crate::event::{Event, Name};
use crate::query::Filter;

/// Events of one step.
const PAGE: usize = 256;

/// Where events with some ids stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Partition and sequence, in this order. Ids need not be unique: all that have one count.
    pub found: Vec<(u32, u64)>,
    /// Ids that no event has.
    pub missing: BTreeSet<String>,
}

/// For each of the partitions the sequence before the first event, in the order of the log, whose
/// time is `at` or later: what a group that begins at this time has behind it. Where there is no
/// such event, the last sequence that was looked at: only what is appended from now on is later.
///
/// # Errors
/// [`super::Error::StreamNotFound`], [`super::Error::PartitionNotFound`].
pub async fn positions_at(
    backend: &dyn Backend,
    stream: &Name,
    partitions: &[u32],
    at: Timestamp,
) -> Result<Positions> {
    let filter = Filter { from: Some(at), ..Filter::default() };
    let mut positions = Positions::new();
    for &partition in partitions {
        let position = match first_match(backend, stream, partition, &filter).await? {
            Ok(first) => first - 1,
            Err(looked_at) => looked_at,
        };
        positions.insert(partition, position);
    }
    Ok(positions)
}

/// The sequence of the earliest event of each of the partitions that meets the filter. A partition
/// without one is not named.
///
/// # Errors
/// [`super::Error::StreamNotFound`], [`super::Error::PartitionNotFound`].
pub async fn earliest(
    backend: &dyn Backend,
    stream: &Name,
    partitions: &[u32],
    filter: &Filter,
) -> Result<Positions> {
    let mut positions = Positions::new();
    for &partition in partitions {
        if let Ok(first) = first_match(backend, stream, partition, filter).await? {
            positions.insert(partition, first);
        }
    }
    Ok(positions)
}

/// The first event of a partition that meets the filter, or the last sequence looked at.
async fn first_match(
    backend: &dyn Backend,
    stream: &Name,
    partition: u32,
    filter: &Filter,
) -> Result<Result<u64, u64>> {
    let (found, last) = walk(backend, stream, partition, |event| filter.matches(event)).await?;
    Ok(found.ok_or(last))
}

/// The places of all events that have one of these ids.
///
/// # Errors
/// [`super::Error::StreamNotFound`], [`super::Error::PartitionNotFound`].
pub async fn places_of(
    backend: &dyn Backend,
    stream: &Name,
    partitions: &[u32],
    ids: &BTreeSet<String>,
) -> Result<Places> {
    let mut places = Places { found: Vec::new(), missing: ids.clone() };
    for &partition in partitions {
        let look = |event: &Event| {
            if ids.contains(&event.id) {
                places.missing.remove(&event.id);
                places.found.push((partition, event.sequence));
            }
            false
        };
        walk(backend, stream, partition, look).await?;
    }
    Ok(places)
}

/// Goes through a partition from its first event to one at which `ends` says yes. Answers with that
/// one's sequence, and with the last sequence that was looked at.
async fn walk(
    backend: &dyn Backend,
    stream: &Name,
    partition: u32,
    mut ends: impl FnMut(&Event) -> bool,
) -> Result<(Option<u64>, u64)> {
    let (mut range, mut last) = (ScanRange::after(0, PAGE), 0);
    loop {
        let page = backend.scan(stream, partition, range).await?;
        if let Some(event) = page.events.iter().find(|event| ends(event)) {
            return Ok((Some(event.sequence), event.sequence));
        }
        // What is no event may carry any number: it is not believed.
        last = page.events.last().map_or(last, |event| last.max(event.sequence));
        let Some(next) = page.next else { return Ok((None, last)) };
        last = last.max(next);
        range = range.behind(next);
    }
}
