//! Retention: removing the oldest events of a partition.

use rusqlite::Row;

use super::clock::millis;
use super::lookup::{Stream, move_frontier};
use super::rewind::{STEP_BYTES_MAX, STEP_ROWS_MAX, rewind_kind};
use super::rows::{self, number, stored};
use super::streams;
use super::worker::Op;
use crate::backend::{Held, PartitionInfo, Result, RewindKind, Trim, Trimmed};
use crate::event::Name;

pub(super) fn trim(op: &mut Op<'_>, name: &Name, trim: Trim) -> Result<Trimmed> {
    let stream = op.stream(name)?;
    stream.has(trim.partition)?;
    let partition = streams::partition(op, &stream, trim.partition)?;
    let Some(first) = partition.first else { return Ok(Trimmed::default()) };
    let needed = if trim.force { None } else { lowest_needed(op, &stream, trim.partition, first)? };
    let cut = cut(op, &stream, &partition, &trim, needed)?;
    if let Some(last) = cut.last {
        remove(op, &stream, &trim, last)?;
    }
    Ok(Trimmed { removed: cut.count, more: cut.more, held: cut.held })
}

pub(super) const NEEDS: &str = "\
SELECT g.name, gp.frontier, w.kind, w.target,
  (SELECT r.sequence FROM redriven r WHERE r.group_id = g.id AND r.partition = ?2 AND r.sequence >= ?3
   ORDER BY r.sequence LIMIT 1)
FROM consumer_groups g
CROSS JOIN group_partitions gp ON gp.group_id = g.id AND gp.partition = ?2
LEFT JOIN rewinds w ON w.group_id = g.id AND w.partition = ?2
WHERE g.stream_id = ?1
ORDER BY g.name";

/// The lowest sequence from `first` on that a group of the stream may still need, settled or not yet
/// there; `None` where it has no group.
fn lowest_needed(op: &Op<'_>, stream: &Stream, partition: u32, first: u64) -> Result<Option<Held>> {
    let mut statement = op.conn.prepare_cached(NEEDS)?;
    let mut rows = statement.query((stream.id, partition, stored(first)))?;
    let mut lowest: Option<Held> = None;
    while let Some(row) = rows.next()? {
        let Some(sequence) = needed(row)? else { continue };
        if lowest.as_ref().is_none_or(|held| sequence.max(first) < held.sequence) {
            let group = Name::existing(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
            lowest = Some(Held { group, sequence: sequence.max(first) });
        }
    }
    Ok(lowest)
}

/// The lowest sequence that one group needs; `None` for a group that is being deleted.
fn needed(row: &Row<'_>) -> Result<Option<u64>> {
    let mut settled = number(row, 1)?;
    if let Some(word) = row.get::<_, Option<String>>(2)? {
        if rewind_kind(&word)? == RewindKind::Delete {
            return Ok(None);
        }
        settled = settled.min(number(row, 3)?);
    }
    let unsettled = settled.saturating_add(1);
    let redriven = row.get::<_, Option<i64>>(4)?.map(|_| number(row, 4)).transpose()?;
    Ok(Some(redriven.map_or(unsettled, |sequence| sequence.min(unsettled))))
}

/// What one step removes.
#[derive(Default)]
struct Cut {
    last: Option<u64>,
    count: u64,
    more: bool,
    held: Option<Held>,
}

pub(super) const OLDEST: &str = "\
SELECT sequence, appended_ms, octet_length(metadata) + octet_length(payload) FROM events
WHERE stream_id = ?1 AND partition = ?2 ORDER BY sequence LIMIT ?3";

fn cut(
    op: &Op<'_>,
    stream: &Stream,
    partition: &PartitionInfo,
    trim: &Trim,
    needed: Option<Held>,
) -> Result<Cut> {
    let surplus = trim.max_length.map_or(0, |max| partition.length.saturating_sub(max));
    let kept_from_ms = trim.max_age.map(|age| op.time.now_ms.saturating_sub(millis(age)));
    let until = trim.until.unwrap_or(0);
    let mut statement = op.conn.prepare_cached(OLDEST)?;
    let mut rows = statement.query((stream.id, partition.partition, rows::limit(STEP_ROWS_MAX + 1)))?;
    let (mut cut, mut bytes) = (Cut::default(), 0);
    while let Some(row) = rows.next()? {
        let sequence = number(row, 0)?;
        let appended_ms: i64 = row.get(1)?;
        let goes = cut.count < surplus
            || sequence <= until
            || kept_from_ms.is_some_and(|kept_from_ms| appended_ms < kept_from_ms);
        if !goes {
            break;
        }
        if needed.as_ref().is_some_and(|held| held.sequence <= sequence) {
            cut.held = needed;
            break;
        }
        if cut.count == STEP_ROWS_MAX as u64 || bytes >= STEP_BYTES_MAX {
            cut.more = true;
            break;
        }
        cut.last = Some(sequence);
        cut.count += 1;
        bytes += rows::bytes(row, 2)?;
    }
    Ok(cut)
}

pub(super) const REMOVE: &str =
    "DELETE FROM events WHERE stream_id = ?1 AND partition = ?2 AND sequence <= ?3";

/// Removes the events up to `last`.
fn remove(op: &Op<'_>, stream: &Stream, trim: &Trim, last: u64) -> Result<()> {
    let mut statement = op.conn.prepare_cached(REMOVE)?;
    let removed = statement.execute((stream.id, trim.partition, stored(last)))?;
    let mut statement = op.conn.prepare_cached(
        "UPDATE partitions SET length = max(length - ?3, 0) WHERE stream_id = ?1 AND partition = ?2",
    )?;
    statement.execute((stream.id, trim.partition, rows::limit(removed)))?;
    if trim.force {
        for group_id in groups(op, stream)? {
            give_up(op, group_id, trim.partition, last)?;
        }
    }
    Ok(())
}

fn groups(op: &Op<'_>, stream: &Stream) -> Result<Vec<i64>> {
    let mut statement = op.conn.prepare_cached("SELECT id FROM consumer_groups WHERE stream_id = ?1")?;
    let ids = statement.query_map([stream.id], |row| row.get(0))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

pub(super) const GIVE_UP: &str =
    "DELETE FROM pending WHERE group_id = ?1 AND partition = ?2 AND sequence <= ?3 AND redriven = 0";

/// Counts as missing what a group was delivered of the removed events and has not settled. What it
/// was not is counted when it passes them; what it has by a redrive is delivered from the record.
fn give_up(op: &Op<'_>, group_id: i64, partition: u32, last: u64) -> Result<()> {
    let mut statement = op.conn.prepare_cached(GIVE_UP)?;
    let missing = statement.execute((group_id, partition, stored(last)))?;
    if missing > 0 {
        let mut statement = op.conn.prepare_cached(
            "UPDATE group_partitions SET missing = missing + ?3 WHERE group_id = ?1 AND partition = ?2",
        )?;
        statement.execute((group_id, partition, rows::limit(missing)))?;
        move_frontier(op, group_id, partition)?;
    }
    Ok(())
}
