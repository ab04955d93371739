//! Moving a group over its log: start positions, replay, reset and deletion, redrive.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Backend, Error, Result};
use crate::event::GroupKey;

/// Largest number of dead letters or events that one [`Backend::redrive`], [`Backend::redeliver`] or
/// [`Backend::purge`] takes.
pub const REDRIVE_BATCH_MAX: usize = 100;

/// A sequence for each of some partitions: what lies at or below it counts as settled.
pub type Positions = BTreeMap<u32, u64>;

/// Where a new group begins to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the first event.
    #[default]
    Beginning,
    /// With the first event that is appended after the group was created.
    End,
    /// Behind these sequences. A partition that is not named begins with its first event; a sequence
    /// above the high watermark means the high watermark.
    After(Positions),
}

/// What is done to a group's position. See [`Backend::begin_rewind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// What happens.
    pub kind: RewindKind,
    /// The sequences behind which events are delivered (again), for the partitions that are touched;
    /// a sequence above the high watermark means the high watermark. [`RewindKind::Delete`] touches
    /// all partitions, and takes none.
    pub to: Positions,
}

/// The ways to move a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewindKind {
    /// Events above the position are delivered again. What is unsettled at or below it stays as it
    /// is: a replay never skips anything.
    Replay,
    /// The group stands as if it had been created at the position: all that was pending is dropped.
    Reset,
    /// The group goes, with its dead letters and all that the store knows of it.
    Delete,
}

impl RewindKind {
    /// The word for it, as it is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Reset => "reset",
            Self::Delete => "delete",
        }
    }

    /// The kind with this word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Replay, Self::Reset, Self::Delete].into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for RewindKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one step of a rewind did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewindStep {
    /// Pending entries that it dropped.
    pub dropped: u64,
    /// Nothing of a rewind is left to do (or none was under way).
    pub finished: bool,
}

/// Carries out a rewind to its end, after one that was left half done. Returns how many pending
/// entries were dropped.
///
/// # Errors
/// Those of [`Backend::begin_rewind`] and [`Backend::continue_rewind`]. What was begun stays begun:
/// any engine of the group, and the next rewind, go on with it.
pub async fn rewind(backend: &dyn Backend, group: &GroupKey, rewind: &Rewind) -> Result<u64> {
    finish(backend, group).await?;
    while let Err(error) = backend.begin_rewind(group, rewind).await {
        match error {
            // Someone else began one in the meantime.
            Error::RewindUnderWay(_) => finish(backend, group).await?,
            error => return Err(error),
        };
    }
    finish(backend, group).await
}

/// Goes on with whatever rewind of the group is under way, to its end. A group that is gone by the
/// end was deleted. Returns how many pending entries were dropped.
async fn finish(backend: &dyn Backend, group: &GroupKey) -> Result<u64> {
    let mut dropped = 0;
    loop {
        let step = backend.continue_rewind(group).await?;
        dropped += step.dropped;
        if step.finished {
            return Ok(dropped);
        }
    }
}

/// What became of one dead letter or event that was to be delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redriven {
    /// It will be delivered again, with its attempts afresh.
    Done,
    /// There is no such row (any more), or no such event in the log.
    Gone,
    /// It holds no event that could be delivered; left as it was.
    NoEvent,
    /// The group has the event before it anyway: it is not settled. Left as it was.
    Underway,
}
