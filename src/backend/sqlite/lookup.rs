//! Finding streams and groups by name.

use rusqlite::OptionalExtension;

use super::rows::{number, stored};
use super::worker::Op;
use crate::backend::{Error, Result};
use crate::event::{GroupKey, Name};

/// A stream that is there.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) id: i64,
    pub(super) name: Name,
    pub(super) partitions: u32,
}

/// A group that is there.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) id: i64,
    pub(super) stream: Stream,
    pub(super) attempts_max: u32,
}

pub(super) const FIND_STREAM: &str = "SELECT id, partitions FROM streams WHERE namespace = ?1 AND name = ?2";
pub(super) const FIND_GROUP: &str = "\
SELECT s.id, s.partitions, g.id, g.max_attempts
FROM streams s LEFT JOIN consumer_groups g ON g.stream_id = s.id AND g.name = ?3
WHERE s.namespace = ?1 AND s.name = ?2";

impl Op<'_> {
    pub(super) fn stream(&self, name: &Name) -> Result<Stream> {
        let mut statement = self.conn.prepare_cached(FIND_STREAM)?;
        let found = statement
            .query_row((self.namespace, name.as_str()), |row| {
                Ok(Stream { id: row.get(0)?, name: name.clone(), partitions: row.get(1)? })
            })
            .optional()?;
        found.ok_or_else(|| Error::StreamNotFound(name.clone()))
    }

    pub(super) fn group(&self, key: &GroupKey) -> Result<Group> {
        let mut statement = self.conn.prepare_cached(FIND_GROUP)?;
        let found = statement
            .query_row((self.namespace, key.stream.as_str(), key.group.as_str()), |row| {
                let stream = Stream { id: row.get(0)?, name: key.stream.clone(), partitions: row.get(1)? };
                Ok((stream, row.get::<_, Option<i64>>(2)?, row.get::<_, Option<u32>>(3)?))
            })
            .optional()?;
        let Some((stream, id, attempts_max)) = found else {
            return Err(Error::StreamNotFound(key.stream.clone()));
        };
        match (id, attempts_max) {
            (Some(id), Some(attempts_max)) => Ok(Group { id, stream, attempts_max }),
            _ => Err(Error::GroupNotFound(key.clone())),
        }
    }
}

impl Stream {
    /// Checks that the stream has this partition.
    pub(super) fn has(&self, partition: u32) -> Result<()> {
        if partition < self.partitions {
            return Ok(());
        }
        Err(Error::PartitionNotFound { stream: self.name.clone(), partition, partitions: self.partitions })
    }
}

/// What a group has in one partition, and from when on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) partition: u32,
    /// The highest sequence that was ever claimed.
    pub(super) delivered: u64,
    pub(super) high_watermark: u64,
    /// A replay, reset or deletion is under way: nothing is to be claimed.
    pub(super) rewinding: bool,
    /// When the first entry of each lane is ready, by the lane's number.
    pub(super) ready_ms: [Option<i64>; 4],
}

/// The first entry of each lane: four steps into the index, however much is pending.
pub(super) const STANDINGS: &str = "\
SELECT gp.partition, gp.delivered, p.high_watermark,
  EXISTS (SELECT 1 FROM rewinds WHERE group_id = ?1 AND partition = gp.partition),
  (SELECT ready_ms FROM pending WHERE group_id = ?1 AND lane = 0 AND partition = gp.partition ORDER BY ready_ms LIMIT 1),
  (SELECT ready_ms FROM pending WHERE group_id = ?1 AND lane = 1 AND partition = gp.partition ORDER BY ready_ms LIMIT 1),
  (SELECT ready_ms FROM pending WHERE group_id = ?1 AND lane = 2 AND partition = gp.partition ORDER BY ready_ms LIMIT 1),
  (SELECT ready_ms FROM pending WHERE group_id = ?1 AND lane = 3 AND partition = gp.partition ORDER BY ready_ms LIMIT 1)
FROM group_partitions gp CROSS JOIN partitions p ON p.stream_id = ?2 AND p.partition = gp.partition
WHERE gp.group_id = ?1
ORDER BY gp.partition";

/// How the group stands in these partitions, in the order of the partitions.
pub(super) fn standings(op: &Op<'_>, group: &Group, partitions: &[u32]) -> Result<Vec<Standing>> {
    let mut asked = vec![false; group.stream.partitions as usize];
    for &partition in partitions {
        group.stream.has(partition)?;
        if let Some(asked) = asked.get_mut(partition as usize) {
            *asked = true;
        }
    }
    let mut statement = op.conn.prepare_cached(STANDINGS)?;
    let mut rows = statement.query((group.id, group.stream.id))?;
    let mut standings = Vec::new();
    while let Some(row) = rows.next()? {
        let partition: u32 = row.get(0)?;
        if asked.get(partition as usize) == Some(&true) {
            standings.push(Standing {
                partition,
                delivered: number(row, 1)?,
                high_watermark: number(row, 2)?,
                rewinding: row.get(3)?,
                ready_ms: [row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?],
            });
        }
    }
    Ok(standings)
}

pub(super) const FRONTIER: &str = "\
SELECT frontier, delivered FROM group_partitions
WHERE group_id = ?1 AND partition = ?2
  AND NOT EXISTS (SELECT 1 FROM rewinds WHERE group_id = ?1 AND partition = ?2)";
pub(super) const FIRST_UNSETTLED: &str = "\
SELECT sequence FROM pending WHERE group_id = ?1 AND partition = ?2 AND sequence > ?3 AND redriven = 0
ORDER BY sequence LIMIT 1";

/// Moves the frontier up to the event before the first unsettled one, unless a rewind is under way,
/// which sets it in the end. Returns the frontier before and after, where it moved.
pub(super) fn move_frontier(op: &Op<'_>, group_id: i64, partition: u32) -> Result<Option<(u64, u64)>> {
    let mut statement = op.conn.prepare_cached(FRONTIER)?;
    let found = statement
        .query_row((group_id, partition), |row| Ok((number(row, 0)?, number(row, 1)?)))
        .optional()?;
    let Some((frontier, delivered)) = found else { return Ok(None) };
    let unsettled = first_unsettled(op, group_id, partition, frontier)?;
    let reached = unsettled.map_or(delivered, |sequence| sequence.saturating_sub(1));
    if reached <= frontier {
        return Ok(None);
    }
    let mut statement = op
        .conn
        .prepare_cached("UPDATE group_partitions SET frontier = ?3 WHERE group_id = ?1 AND partition = ?2")?;
    statement.execute((group_id, partition, stored(reached)))?;
    Ok(Some((frontier, reached)))
}

/// The first sequence above `after` that was delivered, is not settled, and is no redrive.
pub(super) fn first_unsettled(op: &Op<'_>, group_id: i64, partition: u32, after: u64) -> Result<Option<u64>> {
    let mut statement = op.conn.prepare_cached(FIRST_UNSETTLED)?;
    let found = statement.query_row((group_id, partition, stored(after)), |row| number(row, 0)).optional()?;
    Ok(found)
}

pub(super) const PENDING_BETWEEN: &str = "\
SELECT count(*) FROM pending WHERE group_id = ?1 AND partition = ?2 AND sequence > ?3 AND sequence < ?4";

/// How many events between two sequences, exclusive, the group will never have, where the log has
/// none there and none was delivered: all but those that it has by a redrive.
pub(super) fn missing_between(
    op: &Op<'_>,
    group: &Group,
    partition: u32,
    after: u64,
    before: u64,
) -> Result<u64> {
    let mut statement = op.conn.prepare_cached(PENDING_BETWEEN)?;
    let bounds = (group.id, partition, stored(after), stored(before));
    let redriven = statement.query_row(bounds, |row| number(row, 0))?;
    Ok(before.saturating_sub(after).saturating_sub(1).saturating_sub(redriven))
}
