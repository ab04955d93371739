//! What holds a group's frontier: [`Explanation`], the answer of [`super::Backend::explain`].

use super::{PendingEntry, RewindKind};

/// Why a group's frontier stands where it stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The frontier.
    pub frontier: u64,
    /// The last sequence given out in the partition.
    pub high_watermark: u64,
    /// Events that are delivered again after a redrive, and do not hold the frontier.
    pub redriven: u64,
    /// A rewind that is under way.
    pub rewind: Option<RewindKind>,
    /// What holds the frontier; `None` where it has reached the high watermark.
    pub holder: Option<Holder>,
}

/// The sequence behind the frontier, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The sequence.
    pub sequence: u64,
    /// The event's id, where its entry is there and readable.
    pub event_id: Option<String>,
    /// The event's type, where it has one.
    pub event_type: Option<String>,
    /// The stored text of its time.
    pub timestamp: Option<String>,
    /// How it stands.
    pub state: HolderState,
}

/// How the event stands that holds the frontier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// No one has taken it yet.
    Undelivered,
    /// It was taken and is not settled.
    Pending(PendingEntry),
    /// There is no entry with that sequence: an append that is still under way, or a hole that one
    /// left. The next repair passes a hole once it is old enough.
    Unwritten,
    /// Its entry was removed from the log before it was settled. The next repair passes it.
    Missing,
    /// It was delivered and is pending no more, but no one wrote down that it was settled. The next
    /// repair decides.
    Unclear,
    /// It is settled: the frontier is behind, and the next repair moves it.
    Settled,
}
