//! Removing old events: [`Trim`], what [`super::Backend::trim`] takes, and what it did.

use std::time::Duration;

use crate::event::Name;

/// Which of a partition's events may go. An event goes where one of the bounds says so, the oldest
/// first; without any bound nothing goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trim {
    /// The partition.
    pub partition: u32,
    /// At most so many entries stay.
    pub max_length: Option<u64>,
    /// Entries that were appended (by the store's clock) longer ago go.
    pub max_age: Option<Duration>,
    /// Entries up to this sequence go.
    pub until: Option<u64>,
    /// Also what a group has not settled. It counts as missing for that group.
    pub force: bool,
}

/// What one step of a trim did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Entries that were removed.
    pub removed: u64,
    /// The step was bounded: the same call may remove more.
    pub more: bool,
    /// What keeps the partition from being trimmed as far as the bounds say.
    pub held: Option<Held>,
}

/// A group that still needs what the bounds would remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The group: of several, the one that holds the lowest event.
    pub group: Name,
    /// The lowest sequence that it still needs.
    pub sequence: u64,
}
