//! Groups: creating, and looking at them.

use rusqlite::{OptionalExtension, Row};

use super::lane::Lane;
use super::lookup::Group;
use super::rewind::markers;
use super::rows::{self, EVENT_COLUMNS, NoEvent, Place, number, receipt, sequence_of, stored};
use super::streams;
use super::worker::Op;
use crate::backend::{
    DeadEvent, DeadLetter, Error, GroupInfo, GroupPartition, NewGroup, PartitionInfo, PendingEntry,
    PendingState, Result, Start,
};
use crate::event::{GroupKey, Name};
use crate::outcome::{Cause, FailureKind};

pub(super) fn create(op: &mut Op<'_>, key: &GroupKey, new: NewGroup) -> Result<()> {
    Name::new(key.group.as_str())?;
    if new.max_attempts == 0 {
        return Err(Error::InvalidMaxAttempts);
    }
    let stream = op.stream(&key.stream)?;
    if let Start::After(positions) = &new.start {
        positions.keys().try_for_each(|&partition| stream.has(partition))?;
    }
    let mut statement = op.conn.prepare_cached(
        "INSERT INTO consumer_groups (stream_id, name, max_attempts) VALUES (?1, ?2, ?3)
         ON CONFLICT DO NOTHING RETURNING id",
    )?;
    let id: Option<i64> = statement
        .query_row((stream.id, key.group.as_str(), new.max_attempts), |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Err(Error::GroupExists(key.clone())) };
    let mut statement = op.conn.prepare_cached(
        "INSERT INTO group_partitions (group_id, partition, frontier, delivered) VALUES (?1, ?2, ?3, ?3)",
    )?;
    for partition in streams::partitions(op, &stream)? {
        statement.execute((id, partition.partition, stored(position(&new.start, &partition))))?;
    }
    Ok(())
}

/// The sequence that a new group counts as settled in a partition, with all below it.
fn position(start: &Start, partition: &PartitionInfo) -> u64 {
    let position = match start {
        Start::Beginning => 0,
        Start::End => partition.high_watermark,
        Start::After(positions) => positions.get(&partition.partition).copied().unwrap_or(0),
    };
    // What was trimmed before the group was there is nothing that it misses.
    position.clamp(partition.before_first().min(partition.high_watermark), partition.high_watermark)
}

pub(super) fn list(op: &mut Op<'_>, stream: &Name) -> Result<Vec<Name>> {
    let stream = op.stream(stream)?;
    let mut statement =
        op.conn.prepare_cached("SELECT name FROM consumer_groups WHERE stream_id = ?1 ORDER BY name")?;
    let mut rows = statement.query([stream.id])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        names.push(Name::existing(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?);
    }
    Ok(names)
}

pub(super) const COUNTS: &str =
    "SELECT lane, partition, count(*) FROM pending WHERE group_id = ?1 GROUP BY lane, partition";
pub(super) const REDRIVEN: &str =
    "SELECT partition, count(*) FROM redriven WHERE group_id = ?1 GROUP BY partition";

pub(super) fn info(op: &mut Op<'_>, key: &GroupKey) -> Result<GroupInfo> {
    let group = op.group(key)?;
    let mut statement = op.conn.prepare_cached(
        "SELECT gp.partition, gp.frontier, p.high_watermark, gp.missing
         FROM group_partitions gp CROSS JOIN partitions p ON p.stream_id = ?2 AND p.partition = gp.partition
         WHERE gp.group_id = ?1 ORDER BY gp.partition",
    )?;
    let partitions = statement.query_map((group.id, group.stream.id), |row| {
        Ok(GroupPartition {
            partition: row.get(0)?,
            frontier: number(row, 1)?,
            high_watermark: number(row, 2)?,
            in_flight: 0,
            parked: 0,
            redriven: 0,
            missing: number(row, 3)?,
        })
    })?;
    let mut partitions = partitions.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut statement = op.conn.prepare_cached(COUNTS)?;
    let mut rows = statement.query([group.id])?;
    while let Some(row) = rows.next()? {
        let (lane, partition, count): (i64, u32, u64) = (row.get(0)?, row.get(1)?, number(row, 2)?);
        if let Some(state) = partitions.iter_mut().find(|state| state.partition == partition) {
            let counter = if Lane::is_leased(lane) { &mut state.in_flight } else { &mut state.parked };
            *counter += count;
        }
    }
    let mut statement = op.conn.prepare_cached(REDRIVEN)?;
    let mut rows = statement.query([group.id])?;
    while let Some(row) = rows.next()? {
        let (partition, count): (u32, u64) = (row.get(0)?, number(row, 1)?);
        if let Some(state) = partitions.iter_mut().find(|state| state.partition == partition) {
            state.redriven = count;
        }
    }
    let mut statement = op.conn.prepare_cached("SELECT count(*) FROM dead_letters WHERE group_id = ?1")?;
    let dead_letters = statement.query_row([group.id], |row| number(row, 0))?;
    Ok(GroupInfo {
        max_attempts: group.attempts_max,
        dead_letters,
        rewind: markers(op, &group)?.kind(),
        partitions,
    })
}

pub(super) const PENDING: &str = "\
SELECT d.sequence, d.lane, d.ready_ms, d.attempt, d.consumer, d.failure, d.reason, COALESCE(r.id, e.id)
FROM pending d
LEFT JOIN events e ON e.stream_id = ?2 AND e.partition = d.partition AND e.sequence = d.sequence
LEFT JOIN redriven r ON d.redriven = 1
  AND r.group_id = d.group_id AND r.partition = d.partition AND r.sequence = d.sequence
WHERE d.group_id = ?1 AND d.partition = ?3 AND d.sequence > ?4
ORDER BY d.sequence LIMIT ?5";

pub(super) fn pending(
    op: &mut Op<'_>,
    key: &GroupKey,
    partition: u32,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<PendingEntry>> {
    let group = op.group(key)?;
    group.stream.has(partition)?;
    let after = match after {
        Some(text) => sequence_of(text, partition).ok_or_else(|| Error::CursorNotFound(text.to_owned()))?,
        None => 0,
    };
    pending_after(op, &group, partition, after, limit)
}

/// At most `limit` pending entries above the sequence `after`.
pub(super) fn pending_after(
    op: &Op<'_>,
    group: &Group,
    partition: u32,
    after: u64,
    limit: usize,
) -> Result<Vec<PendingEntry>> {
    let mut statement = op.conn.prepare_cached(PENDING)?;
    let arguments = (group.id, group.stream.id, partition, stored(after), rows::limit(limit));
    let entries = statement.query_map(arguments, |row| pending_entry(row, partition, op.time.now_ms))?;
    Ok(entries.collect::<rusqlite::Result<_>>()?)
}

fn pending_entry(row: &Row<'_>, partition: u32, now_ms: i64) -> rusqlite::Result<PendingEntry> {
    let sequence = number(row, 0)?;
    let lane: i64 = row.get(1)?;
    let in_ms = row.get::<_, i64>(2)?.saturating_sub(now_ms);
    let state = if Lane::is_leased(lane) {
        PendingState::Leased { consumer: row.get(4)?, expires_in_ms: in_ms }
    } else {
        PendingState::Parked { due_in_ms: in_ms }
    };
    let failure = match failure_kind(row, 5)? {
        Some(kind) => Some((kind, row.get::<_, Option<String>>(6)?.unwrap_or_default())),
        None => None,
    };
    Ok(PendingEntry {
        partition,
        sequence: Some(sequence),
        event_id: row.get_ref(7)?.as_str().ok().map(str::to_owned),
        receipt: receipt(partition, sequence),
        attempt: row.get(3)?,
        state,
        failure,
    })
}

/// The failure whose name stands in this column.
pub(super) fn failure_kind(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<FailureKind>> {
    Ok(row.get_ref(column)?.as_str().ok().and_then(FailureKind::parse))
}

pub(super) const DEAD_LETTERS: &str = "\
SELECT id, partition, sequence, event_id, timestamp, key, type, metadata, payload,
  reason, cause, failure, attempts, consumer, plugin, dead_lettered_at
FROM dead_letters WHERE group_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3";

pub(super) fn dead_letters(
    op: &mut Op<'_>,
    key: &GroupKey,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<DeadLetter>> {
    let group = op.group(key)?;
    let after: i64 = match after {
        Some(text) => row_id(text).ok_or_else(|| Error::CursorNotFound(text.to_owned()))?,
        None => 0,
    };
    let mut statement = op.conn.prepare_cached(DEAD_LETTERS)?;
    let letters =
        statement.query_map((group.id, after, rows::limit(limit)), |row| dead_letter(row, &key.stream))?;
    Ok(letters.collect::<rusqlite::Result<_>>()?)
}

/// The number of a dead letter's row; `None` for a text that names none.
pub(super) fn row_id(text: &str) -> Option<i64> {
    text.parse().ok().filter(|id: &i64| *id >= 0 && id.to_string() == text)
}

fn dead_letter(row: &Row<'_>, stream: &Name) -> rusqlite::Result<DeadLetter> {
    const EVENT: usize = 3;
    const REST: usize = EVENT + EVENT_COLUMNS;
    let (partition, sequence) = (row.get(1)?, number(row, 2)?);
    let place = Place { stream, partition, sequence };
    let event = match rows::event(row, EVENT, place)? {
        Ok(event) => DeadEvent::Event(Box::new(event)),
        Err(no_event) => {
            let mut fields = vec![
                ("partition".to_owned(), partition.to_string()),
                ("sequence".to_owned(), sequence.to_string()),
            ];
            if let NoEvent::Undecodable { fields: stored, .. } = no_event {
                fields.extend(stored);
            }
            DeadEvent::Raw(fields)
        }
    };
    Ok(DeadLetter {
        row: row.get::<_, i64>(0)?.to_string(),
        event,
        reason: row.get(REST)?,
        cause: row.get_ref(REST + 1)?.as_str().ok().and_then(Cause::parse),
        failure: failure_kind(row, REST + 2)?,
        attempts: row.get(REST + 3)?,
        consumer: row.get(REST + 4)?,
        plugin: row.get(REST + 5)?,
        dead_lettered_at: row.get(REST + 6)?,
    })
}
