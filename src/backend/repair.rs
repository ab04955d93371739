//! Damage that a store was found with, and what was done about it: the answer of
//! [`super::Backend::heal`].

use std::fmt;

use serde::Serialize;

/// One repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// What was mended.
    pub kind: RepairKind,
    /// The sequences that it was about, first and last; `None` where it was about none.
    pub sequences: Option<(u64, u64)>,
    /// How many things were mended.
    pub count: u64,
}

/// The kinds of damage. Most of it is left by writers that do in several steps what must be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairKind {
    /// Sequences that were given out and never written: the frontier passes them.
    Hole,
    /// An entry without its row in the index: the row was added.
    IndexRow,
    /// A frontier behind what is settled: it was moved.
    Frontier,
    /// Events that were settled without that being written down: it was.
    SettledRow,
    /// Events that were taken from the pending list without being settled, or never came there: they
    /// are delivered (again).
    Undelivered,
    /// Events whose entries were removed before they were settled, and can be delivered no more: the
    /// frontier passes them, and the group's count of missing events tells.
    Missing,
    /// Fences that belong to nothing: they were removed.
    Fence,
    /// A group that the store had lost in part: it was made again.
    Group,
}

impl RepairKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Hole,
        Self::IndexRow,
        Self::Frontier,
        Self::SettledRow,
        Self::Undelivered,
        Self::Missing,
        Self::Fence,
        Self::Group,
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hole => "hole",
            Self::IndexRow => "index-row",
            Self::Frontier => "frontier",
            Self::SettledRow => "settled-row",
            Self::Undelivered => "undelivered",
            Self::Missing => "missing",
            Self::Fence => "fence",
            Self::Group => "group",
        }
    }
}

impl fmt::Display for RepairKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
