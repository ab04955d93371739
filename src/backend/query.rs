//! Queries over all partitions of a stream, made of [`Backend::scan`].
//!
//! The partitions are merged as they are read: whatever has the lowest sequence that may still be
//! there is read next, so that a query ends as soon as it has enough, and holds at most one short
//! page of each partition.

use std::collections::VecDeque;

use super::{Backend, Error, Order, Result, ScanPage, ScanRange};
use crate::event::{Event, NUMBER_MAX, Name};
use crate::query::{Cursor, Filter, SortKey, SortValues};

/// Events that all partitions together read ahead, where there are not more partitions than that.
const AHEAD_MAX: usize = 1024;
/// Events of one page of one partition.
const PAGE_MAX: usize = 256;
const PAGE_MIN: usize = 4;

/// Largest [`Query::limit`] of a query with a [`Query::sort`], which keeps so many events at hand.
pub const SORTED_LIMIT_MAX: usize = 10_000;

/// A question to a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Which events.
    pub filter: Filter,
    /// Only this partition.
    pub partition: Option<u32>,
    /// Only sequences above this one.
    pub after: u64,
    /// Only sequences up to this one.
    pub until: u64,
    /// By sequence, then partition; the newest first with [`Order::Descending`].
    pub order: Order,
    /// Another order, in which the first `limit` events of the whole range are found; then there is
    /// no page behind the first one.
    pub sort: Vec<SortKey>,
    /// At most so many events; at least 1.
    pub limit: usize,
    /// Where an earlier page of the same query ended.
    pub cursor: Cursor,
}

impl Default for Query {
    /// The oldest hundred events.
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            partition: None,
            after: 0,
            until: NUMBER_MAX,
            order: Order::Ascending,
            sort: Vec::new(),
            limit: 100,
            cursor: Cursor::default(),
        }
    }
}

/// An answer to a [`Query`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The events, in the order asked for.
    pub events: Vec<Event>,
    /// Where the next page begins; `None` where this one is not full. In ascending order, pages that
    /// follow each other miss nothing that is appended meanwhile.
    pub next: Option<Cursor>,
}

/// Answers a query.
///
/// # Errors
/// [`Error::StreamNotFound`], [`Error::PartitionNotFound`]; [`Error::CursorNotFound`] for a cursor
/// that names a partition that is not there; [`Error::BatchTooLarge`] for a sorted query above
/// [`SORTED_LIMIT_MAX`].
pub async fn query(backend: &dyn Backend, stream: &Name, query: &Query) -> Result<Page> {
    let mut walk = Walk::new(backend, stream, query).await?;
    if !query.sort.is_empty() {
        return sorted(&mut walk, query).await;
    }
    let mut page = Page::default();
    while page.events.len() < query.limit {
        let Some(event) = walk.next().await? else { return Ok(page) };
        page.events.push(event);
    }
    page.next = Some(walk.cursor());
    Ok(page)
}

/// The first events in another order than the log's: looks at all, and keeps at most twice the limit.
async fn sorted(walk: &mut Walk<'_>, query: &Query) -> Result<Page> {
    if query.limit > SORTED_LIMIT_MAX {
        return Err(Error::BatchTooLarge { items: query.limit, max: SORTED_LIMIT_MAX });
    }
    let mut kept: Vec<(SortValues, Event)> = Vec::new();
    let shorten = |kept: &mut Vec<(SortValues, Event)>| {
        kept.sort_by(|(a, _), (b, _)| a.cmp(b));
        kept.truncate(query.limit);
    };
    while let Some(event) = walk.next().await? {
        kept.push((SortValues::of(&event, &query.sort), event));
        if kept.len() >= query.limit.saturating_mul(2) {
            shorten(&mut kept);
        }
    }
    shorten(&mut kept);
    Ok(Page { events: kept.into_iter().map(|(_, event)| event).collect(), next: None })
}

/// A way through the matching events of a stream's partitions, one by one.
struct Walk<'a> {
    backend: &'a dyn Backend,
    stream: &'a Name,
    query: &'a Query,
    sources: Vec<Source>,
}

/// One partition.
struct Source {
    partition: u32,
    /// What is still to be read; `None` at the end.
    rest: Option<ScanRange>,
    /// Matching events that were read and not given out.
    buffer: VecDeque<Event>,
    /// The last sequence that was read.
    looked_at: Option<u64>,
}

impl<'a> Walk<'a> {
    async fn new(backend: &'a dyn Backend, stream: &'a Name, query: &'a Query) -> Result<Self> {
        let info = backend.stream_info(stream).await?;
        let count = u32::try_from(info.partitions.len()).unwrap_or(u32::MAX);
        if let Some(partition) = query.partition.filter(|partition| *partition >= count) {
            return Err(Error::PartitionNotFound { stream: stream.clone(), partition, partitions: count });
        }
        if query.cursor.0.keys().any(|partition| *partition >= count) {
            return Err(Error::CursorNotFound(query.cursor.to_string()));
        }
        let partitions: Vec<u32> = match query.partition {
            Some(partition) => vec![partition],
            None => (0..count).collect(),
        };
        let page = (AHEAD_MAX / partitions.len().max(1)).clamp(PAGE_MIN, PAGE_MAX);
        let whole = ScanRange { after: query.after, until: query.until, order: query.order, limit: page };
        let sources = partitions.into_iter().map(|partition| Source::new(partition, whole, &query.cursor));
        Ok(Self { backend, stream, query, sources: sources.collect() })
    }

    /// The next event in order that meets the filter.
    async fn next(&mut self) -> Result<Option<Event>> {
        let order = self.query.order;
        loop {
            let bounds = self.sources.iter_mut().filter_map(|source| Some((source.bound(order)?, source)));
            let next = bounds.min_by_key(|(bound, source)| match order {
                Order::Ascending => (*bound, source.partition),
                Order::Descending => (u64::MAX - bound, source.partition),
            });
            let Some((_, source)) = next else { return Ok(None) };
            if let Some(event) = source.buffer.pop_front() {
                return Ok(Some(event));
            }
            if let Some(range) = source.rest {
                let page = self.backend.scan(self.stream, source.partition, range).await?;
                source.take(range, page, &self.query.filter);
            }
        }
    }

    /// Where all partitions stand once the events given out so far are behind.
    fn cursor(&self) -> Cursor {
        let mut cursor = self.query.cursor.clone();
        let positions = self
            .sources
            .iter()
            .filter_map(|source| Some((source.partition, source.position(self.query.order)?)));
        cursor.0.extend(positions);
        cursor
    }
}

impl Source {
    fn new(partition: u32, whole: ScanRange, cursor: &Cursor) -> Self {
        let position = cursor.0.get(&partition).copied();
        let rest = position.map_or(whole, |position| whole.behind(position));
        Self { partition, rest: not_empty(rest), buffer: VecDeque::new(), looked_at: position }
    }

    /// The sequence before which (in the order of the walk) nothing more comes of this partition.
    fn bound(&self, order: Order) -> Option<u64> {
        let head = self.buffer.front().map(|event| event.sequence);
        head.or_else(|| {
            let rest = self.rest?;
            Some(match order {
                Order::Ascending => rest.after.saturating_add(1),
                Order::Descending => rest.until,
            })
        })
    }

    fn take(&mut self, range: ScanRange, page: ScanPage, filter: &Filter) {
        let last = page.events.last().map(|event| event.sequence);
        self.looked_at = page.next.or(last).or(self.looked_at);
        self.rest = page.next.and_then(|next| not_empty(range.behind(next)));
        self.buffer.extend(page.events.into_iter().filter(|event| filter.matches(event)));
    }

    /// The last sequence of this partition that is behind; `None` where none is.
    fn position(&self, order: Order) -> Option<u64> {
        match (self.buffer.front(), order) {
            (Some(head), Order::Ascending) => Some(head.sequence - 1).filter(|position| *position > 0),
            (Some(head), Order::Descending) => Some(head.sequence + 1),
            (None, _) => self.looked_at,
        }
    }
}

/// A range in which something may be.
fn not_empty(range: ScanRange) -> Option<ScanRange> {
    (range.after < range.until).then_some(range)
}

#[cfg(test)]
mod tests;
