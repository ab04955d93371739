//! Reading the log back: [`ScanRange`], what [`super::Backend::scan`] takes, and what it gives.

use crate::event::{Event, NUMBER_MAX};

/// The direction in which events are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The oldest first.
    #[default]
    Ascending,
    /// The newest first.
    Descending,
}

/// A range of one partition's sequences, and how much of it to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRange {
    /// Only sequences above this one.
    pub after: u64,
    /// Only sequences up to this one.
    pub until: u64,
    /// From which end.
    pub order: Order,
    /// At most so many events; at least 1. A page may be shorter for no reason: only
    /// [`ScanPage::next`] tells the end.
    pub limit: usize,
}

impl ScanRange {
    /// All events behind this sequence, the oldest first.
    #[must_use]
    pub fn after(after: u64, limit: usize) -> Self {
        Self { after, until: NUMBER_MAX, order: Order::Ascending, limit }
    }

    /// The part of this range behind a page that said [`ScanPage::next`].
    #[must_use]
    pub fn behind(self, next: u64) -> Self {
        match self.order {
            Order::Ascending => Self { after: self.after.max(next), ..self },
            Order::Descending => Self { until: self.until.min(next.saturating_sub(1)), ..self },
        }
    }
}

/// A page of one partition's log.
#[derive(Clone, Debug, Default)]
pub struct ScanPage {
    /// Events in the order of their sequences, in the direction asked for.
    pub events: Vec<Event>,
    /// Entries of the same range that are no events, and were passed over.
    pub unreadable: Vec<Unreadable>,
    /// The last sequence that was looked at, where there may be more behind it
    /// ([`ScanRange::behind`]); `None` at the end of the range.
    pub next: Option<u64>,
}

/// An entry that is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its sequence, where it has one.
    pub sequence: Option<u64>,
    /// The store's own id of the entry.
    pub receipt: String,
    /// What is wrong with it.
    pub detail: String,
}
