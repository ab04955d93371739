//! What can go wrong between the engine and a store.

use crate::event::{GroupKey, InvalidEvent, Name, NameError};

/// Result of a backend's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which a backend's operation fails. [`Error::class`] says what a caller does next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such stream.
    #[error("there is no stream `{0}`")]
    StreamNotFound(Name),
    /// The stream is there already.
    #[error("the stream `{0}` exists already")]
    StreamExists(Name),
    /// The stream has no such group.
    #[error("the stream `{}` has no group `{}`", .0.stream, .0.group)]
    GroupNotFound(GroupKey),
    /// The group is there already.
    #[error("the stream `{}` has a group `{}` already", .0.stream, .0.group)]
    GroupExists(GroupKey),
    /// The stream has fewer partitions.
    #[error("the stream `{stream}` has no partition {partition}: it has {partitions}, counted from 0")]
    PartitionNotFound {
        /// The stream.
        stream: Name,
        /// The partition asked for.
        partition: u32,
        /// How many the stream has.
        partitions: u32,
    },
    /// No stream can have so many partitions, or none.
    #[error("a stream has 1 to {max} partitions, not {partitions}", max = super::PARTITIONS_MAX)]
    InvalidPartitionCount {
        /// The number asked for.
        partitions: u32,
    },
    /// A group needs at least one attempt.
    #[error("a group needs at least one attempt")]
    InvalidMaxAttempts,
    /// A name that cannot be created.
    #[error(transparent)]
    InvalidName(#[from] NameError),
    /// An event that cannot be stored. Nothing of its batch was written.
    #[error("event {} of the batch: {error}", .index + 1)]
    InvalidEvent {
        /// Its place in the batch, from 0.
        index: usize,
        /// What is wrong with it.
        error: InvalidEvent,
    },
    /// More items than one call takes.
    #[error("a call takes at most {max} items, not {items}")]
    BatchTooLarge {
        /// How many were given.
        items: usize,
        /// How many are taken.
        max: usize,
    },
    /// A cursor that names no place.
    #[error("`{0}` is no cursor of this list")]
    CursorNotFound(String),
    /// The group has no such dead letter.
    #[error("the group `{}` of the stream `{}` has no dead letter `{row}`", .group.group, .group.stream)]
    DeadLetterNotFound {
        /// The group.
        group: GroupKey,
        /// The row or event id asked for.
        row: String,
    },
    /// A replay, reset or deletion of the group is under way.
    #[error(
        "the group `{}` of the stream `{}` is being replayed, reset or deleted: try again in a moment",
        .0.group, .0.stream
    )]
    RewindUnderWay(GroupKey),
    /// What was asked for cannot be undone, and was not confirmed.
    #[error("{0}; nothing was changed: confirm with --yes")]
    ConfirmationRequired(String),
    /// The lease is another's by now, or was settled before.
    #[error("the lease of entry {receipt} is no longer yours: it was taken over, or settled before")]
    StaleLease {
        /// The store's id of the entry.
        receipt: String,
    },
    /// The receipt names another entry than the sequence.
    #[error("the receipt {receipt} is not that of sequence {sequence}")]
    ReceiptMismatch {
        /// The store's id of the entry.
        receipt: String,
        /// The sequence.
        sequence: u64,
    },
    /// The store cannot be reached, and the operation was not carried out.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The connection broke while an answer was due: the operation may have been carried out.
    #[error("no answer from the store, and whether it did the work is unknown: {0}")]
    Ambiguous(String),
    /// The store is there but refuses work for now (loading, out of memory, disk full, a script
    /// that runs, not enough replicas).
    #[error("the store refuses work for now: {0}")]
    Busy(String),
    /// A key of ours holds something else.
    #[error(
        "the key `{key}` holds something else than Wasmill and Rheo put there: {detail}; rename or delete it"
    )]
    WrongType {
        /// The key.
        key: String,
        /// The store's own words.
        detail: String,
    },
    /// The store refuses for a reason that waiting will not mend (no permission, wrong password,
    /// an unknown command, a file that is no database).
    #[error("the store refuses: {0}")]
    Refused(String),
    /// What is stored contradicts itself.
    #[error("what is stored contradicts itself: {0}")]
    Corrupt(String),
}

/// What a caller does about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request is wrong: mend it.
    Request,
    /// What the request names is gone or not there yet: create it, or stop.
    NotFound,
    /// Try the same again later; nothing was written.
    Retry,
    /// Try again later, where that does no harm: it may have been written.
    Ambiguous,
    /// Stop and say so: it will not mend itself.
    Fatal,
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::StreamExists(_)
            | Self::GroupExists(_)
            | Self::PartitionNotFound { .. }
            | Self::InvalidPartitionCount { .. }
            | Self::InvalidMaxAttempts
            | Self::InvalidName(_)
            | Self::InvalidEvent { .. }
            | Self::BatchTooLarge { .. }
            | Self::CursorNotFound(_)
            | Self::DeadLetterNotFound { .. }
            | Self::ConfirmationRequired(_)
            | Self::StaleLease { .. }
            | Self::ReceiptMismatch { .. } => ErrorClass::Request,
            Self::StreamNotFound(_) | Self::GroupNotFound(_) => ErrorClass::NotFound,
            Self::Unavailable(_) | Self::Busy(_) | Self::RewindUnderWay(_) => ErrorClass::Retry,
            Self::Ambiguous(_) => ErrorClass::Ambiguous,
            Self::WrongType { .. } | Self::Refused(_) | Self::Corrupt(_) => ErrorClass::Fatal,
        }
    }
}
