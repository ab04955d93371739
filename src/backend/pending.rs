//! What was delivered and is not settled.

use crate::outcome::FailureKind;

/// An entry that was delivered and is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// Its partition.
    pub partition: u32,
    /// Its sequence, where it has a readable one.
    pub sequence: Option<u64>,
    /// The event's id, where it has a readable one.
    pub event_id: Option<String>,
    /// The store's own id of the entry, and the cursor after which [`super::Backend::pending`] goes on.
    pub receipt: String,
    /// How often it was delivered.
    pub attempt: u32,
    /// Who has it, or when it comes back.
    pub state: PendingState,
    /// The last failure's kind and reason, where there was one.
    pub failure: Option<(FailureKind, String)>,
}

/// The two ways to be pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingState {
    /// Under lease.
    Leased {
        /// The holder.
        consumer: String,
        /// Milliseconds until the lease ends; zero or below: it has ended.
        expires_in_ms: i64,
    },
    /// Waiting for its time.
    Parked {
        /// Milliseconds until it can be claimed; zero or below: it can be now.
        due_in_ms: i64,
    },
}

impl PendingState {
    /// Milliseconds until the entry can be claimed, unless its holder renews or settles.
    #[must_use]
    pub fn claimable_in_ms(&self) -> i64 {
        match self {
            Self::Leased { expires_in_ms, .. } => *expires_in_ms,
            Self::Parked { due_in_ms } => *due_in_ms,
        }
    }
}
