//! Replay, reset and deletion: a durable marker first, then bounded steps that any process of the
//! group can carry out, in claims or on purpose.

use std::collections::BTreeMap;

use super::bury::remove;
use super::lane::Lane;
use super::lookup::{Group, move_frontier};
use super::rows::{self, number, stored};
use super::streams;
use super::worker::Op;
use crate::backend::{Error, Result, Rewind, RewindKind, RewindStep};
use crate::event::GroupKey;

/// Rows that one step deals with, and bytes of events that it removes.
pub(super) const STEP_ROWS_MAX: usize = 500;
pub(super) const STEP_BYTES_MAX: usize = 4 << 20;

/// What it costs to finish a partition, counted in rows.
const FINISH_ROWS: usize = 10;

/// The rewind of a group that is under way: what is left of it, by partition.
pub(super) struct Markers(BTreeMap<u32, Marker>);

#[derive(Clone, Copy, Debug)]
struct Marker {
    kind: RewindKind,
    target: u64,
    passed: u64,
}

impl Markers {
    pub(super) fn kind(&self) -> Option<RewindKind> {
        self.0.values().next().map(|marker| marker.kind)
    }

    /// Whether an entry is one that the rewind takes from its holder.
    pub(super) fn takes(&self, partition: u32, sequence: u64) -> bool {
        self.0
            .get(&partition)
            .is_some_and(|marker| marker.kind != RewindKind::Replay || sequence > marker.target)
    }

    /// The kind of rewind that a partition waits for.
    pub(super) fn kind_of(&self, partition: u32) -> Option<RewindKind> {
        self.0.get(&partition).map(|marker| marker.kind)
    }
}

pub(super) const MARKERS: &str = "SELECT partition, kind, target, passed FROM rewinds WHERE group_id = ?1";

pub(super) fn markers(op: &Op<'_>, group: &Group) -> Result<Markers> {
    let mut statement = op.conn.prepare_cached(MARKERS)?;
    let mut rows = statement.query([group.id])?;
    let mut markers = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let kind = rewind_kind(&row.get::<_, String>(1)?)?;
        let marker = Marker { kind, target: number(row, 2)?, passed: number(row, 3)? };
        markers.insert(row.get(0)?, marker);
    }
    Ok(Markers(markers))
}

/// The kind that is stored with this word.
pub(super) fn rewind_kind(word: &str) -> Result<RewindKind> {
    RewindKind::parse(word).ok_or_else(|| Error::Corrupt(format!("there is no rewind of the kind `{word}`")))
}

pub(super) fn begin(op: &mut Op<'_>, key: &GroupKey, rewind: &Rewind) -> Result<()> {
    let group = op.group(key)?;
    for &partition in rewind.to.keys() {
        group.stream.has(partition)?;
    }
    if markers(op, &group)?.kind().is_some() {
        return Err(Error::RewindUnderWay(key.clone()));
    }
    let mut statement = op.conn.prepare_cached(
        "INSERT INTO rewinds (group_id, partition, kind, target, passed) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut mark = |partition: u32, target: u64, passed: u64| {
        let kind = rewind.kind.as_str();
        statement.execute((group.id, partition, kind, stored(target), stored(passed)))
    };
    match rewind.kind {
        RewindKind::Delete => {
            for partition in 0..group.stream.partitions {
                mark(partition, 0, 0)?;
            }
        }
        RewindKind::Replay | RewindKind::Reset => {
            for (&partition, &target) in &rewind.to {
                let target = target.min(streams::partition(op, &group.stream, partition)?.high_watermark);
                let passed = if rewind.kind == RewindKind::Replay { target } else { 0 };
                mark(partition, target, passed)?;
            }
        }
    }
    op.stirred = true;
    Ok(())
}

pub(super) fn go_on(op: &mut Op<'_>, key: &GroupKey) -> Result<RewindStep> {
    match op.group(key) {
        Ok(group) => step(op, &group),
        Err(Error::GroupNotFound(_)) => Ok(RewindStep { dropped: 0, finished: true }),
        Err(error) => Err(error),
    }
}

/// One bounded step of the rewind that is under way, if one is. The group may be gone afterwards.
pub(super) fn step(op: &mut Op<'_>, group: &Group) -> Result<RewindStep> {
    let markers = markers(op, group)?;
    let mut step = RewindStep { dropped: 0, finished: true };
    if markers.kind() == Some(RewindKind::Delete) {
        return delete(op, group);
    }
    let mut budget = STEP_ROWS_MAX;
    for (&partition, marker) in &markers.0 {
        if budget == 0 {
            step.finished = false;
            break;
        }
        let stretch = stretch(op, group, partition, marker, budget)?;
        step.dropped += drop_stretch(op, group, partition, marker, stretch.last)?;
        if stretch.more {
            let mut statement = op
                .conn
                .prepare_cached("UPDATE rewinds SET passed = ?3 WHERE group_id = ?1 AND partition = ?2")?;
            statement.execute((group.id, partition, stored(stretch.last)))?;
            step.finished = false;
            break;
        }
        finish(op, group, partition, marker)?;
        budget = budget.saturating_sub(stretch.count + FINISH_ROWS);
    }
    op.stirred = true;
    Ok(step)
}

/// What one step deals with of a longer row of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The last of them; what comes before is part of it.
    pub(super) last: u64,
    pub(super) count: usize,
    /// There may be more behind it.
    pub(super) more: bool,
}

impl Stretch {
    /// Takes as many of these rows (a number that grows, bytes) as one step may deal with, up to
    /// `rows_max` of them.
    pub(super) fn of(mut rows: rusqlite::Rows<'_>, after: u64, rows_max: usize) -> Result<Self> {
        let mut stretch = Self { last: after, ..Self::default() };
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            if stretch.count == rows_max || bytes >= STEP_BYTES_MAX {
                stretch.more = true;
                break;
            }
            stretch.last = number(row, 0)?;
            stretch.count += 1;
            bytes += rows::bytes(row, 1)?;
        }
        Ok(stretch)
    }
}

pub(super) const STRETCH: &str = "\
SELECT d.sequence, octet_length(r.payload) + octet_length(r.metadata) FROM pending d
LEFT JOIN redriven r ON d.redriven = 1
  AND r.group_id = d.group_id AND r.partition = d.partition AND r.sequence = d.sequence
WHERE d.group_id = ?1 AND d.partition = ?2 AND d.sequence > ?3
ORDER BY d.sequence LIMIT ?4";

/// The next pending entries that the rewind has to deal with.
fn stretch(op: &Op<'_>, group: &Group, partition: u32, marker: &Marker, budget: usize) -> Result<Stretch> {
    let mut statement = op.conn.prepare_cached(STRETCH)?;
    // One more than are taken, which tells whether that is the end.
    let limit = rows::limit(budget.saturating_add(1));
    let rows = statement.query((group.id, partition, stored(marker.passed), limit))?;
    Stretch::of(rows, marker.passed, budget)
}

/// An event that was redriven is left to be delivered from the log where the group comes by it again.
pub(super) const DROP_RECORDS: &str = "\
DELETE FROM redriven WHERE group_id = ?1 AND partition = ?2 AND sequence > ?3 AND sequence <= ?4
  AND EXISTS (SELECT 1 FROM events e
    WHERE e.stream_id = ?5 AND e.partition = ?2 AND e.sequence = redriven.sequence)";
pub(super) const DROP_PENDING: &str = "\
DELETE FROM pending WHERE group_id = ?1 AND partition = ?2 AND sequence > ?3 AND sequence <= ?4
  AND NOT (redriven = 1 AND EXISTS (SELECT 1 FROM redriven r
    WHERE r.group_id = ?1 AND r.partition = ?2 AND r.sequence = pending.sequence))";
pub(super) const TAKE_BACK: &str = "\
UPDATE pending SET lane = ?5, ready_ms = ?6, attempt = 0, lease_id = NULL, consumer = '', failure = NULL,
  reason = NULL
WHERE group_id = ?1 AND partition = ?2 AND sequence > ?3 AND sequence <= ?4";

/// Drops what is pending behind `marker.passed` up to `last`. What is there by a redrive, and will not
/// be delivered from the log, stays: taken from its holder, with its attempts afresh.
fn drop_stretch(op: &Op<'_>, group: &Group, partition: u32, marker: &Marker, last: u64) -> Result<u64> {
    let (passed, last) = (stored(marker.passed), stored(last));
    let again = stored(marker.passed.max(marker.target));
    let mut statement = op.conn.prepare_cached(DROP_RECORDS)?;
    statement.execute((group.id, partition, again, last, group.stream.id))?;
    let mut statement = op.conn.prepare_cached(DROP_PENDING)?;
    let dropped = statement.execute((group.id, partition, passed, last))?;
    let mut statement = op.conn.prepare_cached(TAKE_BACK)?;
    statement.execute((group.id, partition, passed, last, Lane::Parked.number(), op.time.now_ms))?;
    Ok(dropped as u64)
}

/// Moves the group, and takes the marker away.
fn finish(op: &Op<'_>, group: &Group, partition: u32, marker: &Marker) -> Result<()> {
    // What was trimmed cannot be delivered again: it stays settled, and does not count as missing.
    let position = marker.target.max(streams::partition(op, &group.stream, partition)?.before_first());
    let mut statement = op.conn.prepare_cached(match marker.kind {
        RewindKind::Replay => {
            "UPDATE group_partitions SET frontier = min(frontier, ?3), delivered = min(delivered, ?3)
             WHERE group_id = ?1 AND partition = ?2"
        }
        RewindKind::Reset | RewindKind::Delete => {
            "UPDATE group_partitions SET frontier = ?3, delivered = ?3
             WHERE group_id = ?1 AND partition = ?2"
        }
    })?;
    statement.execute((group.id, partition, stored(position)))?;
    let mut statement =
        op.conn.prepare_cached("DELETE FROM rewinds WHERE group_id = ?1 AND partition = ?2")?;
    statement.execute((group.id, partition))?;
    move_frontier(op, group.id, partition)?;
    Ok(())
}

pub(super) const PENDING_OF_GROUP: &str =
    "SELECT partition, sequence FROM pending WHERE group_id = ?1 LIMIT ?2";
pub(super) const RECORDS_OF_GROUP: &str = "\
SELECT row_id, octet_length(payload) + octet_length(metadata) FROM redriven WHERE group_id = ?1 LIMIT ?2";
pub(super) const LETTERS_OF_GROUP: &str = "\
SELECT id, octet_length(payload) + octet_length(metadata) FROM dead_letters WHERE group_id = ?1 LIMIT ?2";

/// One bounded step of a deletion: pending entries first, then what is stored with a body, and the
/// group with its markers in the last one, so that nobody takes anything of it in the meantime.
fn delete(op: &mut Op<'_>, group: &Group) -> Result<RewindStep> {
    op.stirred = true;
    let mut dropped = 0;
    for (partition, sequence) in some_pending(op, group)? {
        remove(op, group, partition, sequence, false)?;
        dropped += 1;
    }
    let mut emptied = dropped < STEP_ROWS_MAX;
    for (select, delete) in [
        (RECORDS_OF_GROUP, "DELETE FROM redriven WHERE row_id = ?1"),
        (LETTERS_OF_GROUP, "DELETE FROM dead_letters WHERE id = ?1"),
    ] {
        emptied = emptied && delete_some(op, group, select, delete)?;
    }
    if emptied {
        for delete in [
            "DELETE FROM rewinds WHERE group_id = ?1",
            "DELETE FROM group_partitions WHERE group_id = ?1",
            "DELETE FROM consumer_groups WHERE id = ?1",
        ] {
            op.conn.prepare_cached(delete)?.execute([group.id])?;
        }
    }
    Ok(RewindStep { dropped: dropped as u64, finished: emptied })
}

fn some_pending(op: &Op<'_>, group: &Group) -> Result<Vec<(u32, u64)>> {
    let mut statement = op.conn.prepare_cached(PENDING_OF_GROUP)?;
    let limit = rows::limit(STEP_ROWS_MAX);
    let some = statement.query_map((group.id, limit), |row| Ok((row.get(0)?, number(row, 1)?)))?;
    Ok(some.collect::<rusqlite::Result<_>>()?)
}

/// Deletes a bounded number of the rows that `select` gives (id, bytes); whether that was all.
fn delete_some(op: &Op<'_>, group: &Group, select: &str, delete: &str) -> Result<bool> {
    let mut statement = op.conn.prepare_cached(select)?;
    let mut found = statement.query((group.id, rows::limit(STEP_ROWS_MAX)))?;
    let (mut ids, mut bytes) = (Vec::<i64>::new(), 0);
    while let Some(row) = found.next()?
        && bytes < STEP_BYTES_MAX
    {
        ids.push(row.get(0)?);
        bytes += rows::bytes(row, 1)?;
    }
    let mut statement = op.conn.prepare_cached(delete)?;
    for id in &ids {
        statement.execute([id])?;
    }
    Ok(ids.len() < STEP_ROWS_MAX && bytes < STEP_BYTES_MAX)
}
