//! Dead letters: writing them.

use super::clock::iso;
use super::lookup::Group;
use super::rows::{kept_event_columns, stored};
use super::worker::Op;
use crate::backend::Result;
use crate::outcome::{Cause, FailureKind};

/// How an entry ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death<'a> {
    pub(super) partition: u32,
    pub(super) sequence: u64,
    /// Whether it was there by a redrive.
    pub(super) redriven: bool,
    pub(super) cause: Cause,
    pub(super) reason: &'a str,
    pub(super) failure: Option<FailureKind>,
    pub(super) attempts: u32,
    pub(super) consumer: &'a str,
    pub(super) plugin: Option<&'a str>,
}

/// The event's columns are copied as they are, whatever they hold; without an event they are null.
pub(super) const BURY: &str = concat!(
    "INSERT INTO dead_letters (group_id, partition, sequence, event_id, timestamp, key, type, metadata, payload,",
    " reason, cause, failure, attempts, consumer, plugin, dead_lettered_at) SELECT ?1, ?3, ?4, ",
    kept_event_columns!(),
    ", ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM (SELECT 1)",
    " LEFT JOIN events e ON e.stream_id = ?2 AND e.partition = ?3 AND e.sequence = ?4",
    " LEFT JOIN redriven r ON r.group_id = ?1 AND r.partition = ?3 AND r.sequence = ?4"
);

/// Makes an entry a dead letter, and no longer pending. The caller moves the frontier.
pub(super) fn bury(op: &Op<'_>, group: &Group, death: Death<'_>) -> Result<()> {
    let mut statement = op.conn.prepare_cached(BURY)?;
    statement.execute((
        group.id,
        group.stream.id,
        death.partition,
        stored(death.sequence),
        death.reason,
        death.cause.as_str(),
        death.failure.map(FailureKind::as_str),
        death.attempts,
        death.consumer,
        death.plugin,
        iso(op.time.wall_ms),
    ))?;
    remove(op, group, death.partition, death.sequence, death.redriven)
}

/// Takes an entry out of what is pending: from now on it counts as settled, and the record of its
/// redrive has done its work.
pub(super) fn remove(
    op: &Op<'_>,
    group: &Group,
    partition: u32,
    sequence: u64,
    redriven: bool,
) -> Result<()> {
    let mut statement = op
        .conn
        .prepare_cached("DELETE FROM pending WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3")?;
    statement.execute((group.id, partition, stored(sequence)))?;
    if redriven {
        let mut statement = op.conn.prepare_cached(
            "DELETE FROM redriven WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3",
        )?;
        statement.execute((group.id, partition, stored(sequence)))?;
    }
    Ok(())
}
