//! Streams: creating, listing, appending.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row};

use super::clock::iso;
use super::lookup::Stream;
use super::rows::{event_columns, number, stored};
use super::worker::Op;
use crate::backend::{
    APPEND_BATCH_MAX, Appended, Error, PARTITIONS_MAX, PartitionInfo, Result, StreamInfo, StreamSummary,
};
use crate::event::{NUMBER_MAX, Name, NewEvent, random_id};
use crate::routing::partition_for_key;

pub(super) fn create(op: &mut Op<'_>, stream: &Name, partitions: u32) -> Result<()> {
    Name::new(stream.as_str())?;
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        return Err(Error::InvalidPartitionCount { partitions });
    }
    let mut statement = op.conn.prepare_cached(
        "INSERT INTO streams (namespace, name, partitions, created_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING RETURNING id",
    )?;
    let created_at = iso(op.time.wall_ms);
    let id: Option<i64> = statement
        .query_row((op.namespace, stream.as_str(), partitions, created_at), |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Err(Error::StreamExists(stream.clone())) };
    let mut statement =
        op.conn.prepare_cached("INSERT INTO partitions (stream_id, partition) VALUES (?1, ?2)")?;
    for partition in 0..partitions {
        statement.execute((id, partition))?;
    }
    Ok(())
}

pub(super) fn list(op: &mut Op<'_>) -> Result<Vec<StreamSummary>> {
    let mut statement =
        op.conn.prepare_cached("SELECT name, partitions FROM streams WHERE namespace = ?1 ORDER BY name")?;
    let mut rows = statement.query([op.namespace])?;
    let mut streams = Vec::new();
    while let Some(row) = rows.next()? {
        streams.push(StreamSummary {
            stream: Name::existing(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?,
            partitions: row.get(1)?,
        });
    }
    Ok(streams)
}

pub(super) fn info(op: &mut Op<'_>, name: &Name) -> Result<StreamInfo> {
    let stream = op.stream(name)?;
    let mut statement = op.conn.prepare_cached("SELECT created_at FROM streams WHERE id = ?1")?;
    let created_at = statement.query_row([stream.id], |row| row.get(0))?;
    let partitions = partitions(op, &stream)?;
    Ok(StreamInfo { stream: stream.name, created_at, partitions })
}

pub(super) const PARTITIONS: &str = "\
SELECT p.partition, p.high_watermark, p.length,
  (SELECT e.sequence FROM events e WHERE e.stream_id = ?1 AND e.partition = p.partition ORDER BY e.sequence LIMIT 1)
FROM partitions p WHERE p.stream_id = ?1 AND p.partition BETWEEN ?2 AND ?3
ORDER BY p.partition";

/// All partitions of a stream, in order.
pub(super) fn partitions(op: &Op<'_>, stream: &Stream) -> Result<Vec<PartitionInfo>> {
    let mut statement = op.conn.prepare_cached(PARTITIONS)?;
    let partitions = statement.query_map((stream.id, 0, PARTITIONS_MAX), partition_info)?;
    Ok(partitions.collect::<rusqlite::Result<_>>()?)
}

/// One partition of a stream that has it.
pub(super) fn partition(op: &Op<'_>, stream: &Stream, partition: u32) -> Result<PartitionInfo> {
    let mut statement = op.conn.prepare_cached(PARTITIONS)?;
    Ok(statement.query_row((stream.id, partition, partition), partition_info)?)
}

fn partition_info(row: &Row<'_>) -> rusqlite::Result<PartitionInfo> {
    let first: Option<i64> = row.get(3)?;
    Ok(PartitionInfo {
        partition: row.get(0)?,
        high_watermark: number(row, 1)?,
        length: number(row, 2)?,
        first: first.map(|_| number(row, 3)).transpose()?,
    })
}

impl PartitionInfo {
    /// The highest sequence that the log holds no more, nor anything below it.
    pub(super) fn before_first(&self) -> u64 {
        self.first.map_or(self.high_watermark, |first| first.saturating_sub(1))
    }
}

/// Checks a batch as far as it can be checked without the store.
pub(super) fn check_batch(events: &[NewEvent], bytes_max: usize) -> Result<()> {
    if events.len() > APPEND_BATCH_MAX {
        return Err(Error::BatchTooLarge { items: events.len(), max: APPEND_BATCH_MAX });
    }
    for (index, event) in events.iter().enumerate() {
        event.check(bytes_max).map_err(|error| Error::InvalidEvent { index, error })?;
    }
    Ok(())
}

pub(super) const HIGH_WATERMARK: &str =
    "SELECT high_watermark FROM partitions WHERE stream_id = ?1 AND partition = ?2";

pub(super) fn append(op: &mut Op<'_>, name: &Name, events: Vec<NewEvent>) -> Result<Vec<Appended>> {
    let stream = op.stream(name)?;
    let mut counts = BTreeMap::<u32, u64>::new();
    let mut partitions = Vec::with_capacity(events.len());
    for event in &events {
        let by_key = || partition_for_key(event.key.as_deref(), stream.partitions);
        let partition = event.partition.unwrap_or_else(by_key);
        stream.has(partition)?;
        partitions.push(partition);
        *counts.entry(partition).or_default() += 1;
    }
    let mut next = reserve(op, &stream, &counts)?;
    let timestamp = iso(op.time.wall_ms);
    let mut statement = op.conn.prepare_cached(
        "INSERT INTO events
           (stream_id, partition, sequence, appended_ms, id, timestamp, key, type, metadata, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    let mut appended = Vec::with_capacity(events.len());
    for (event, partition) in events.into_iter().zip(partitions) {
        let next = next.entry(partition).or_default();
        let sequence = *next;
        *next += 1;
        let id = event.id.unwrap_or_else(random_id);
        statement.execute((
            stream.id,
            partition,
            stored(sequence),
            op.time.now_ms,
            &id,
            event.timestamp.as_deref().unwrap_or(&timestamp),
            event.key,
            event.event_type,
            event.metadata.as_str(),
            event.payload.as_str(),
        ))?;
        appended.push(Appended { id, partition, sequence });
    }
    op.stirred = true;
    Ok(appended)
}

/// Moves the high watermarks up by what is to be appended; the first new sequence of each partition.
fn reserve(op: &Op<'_>, stream: &Stream, counts: &BTreeMap<u32, u64>) -> Result<BTreeMap<u32, u64>> {
    let mut read = op.conn.prepare_cached(HIGH_WATERMARK)?;
    let mut write = op.conn.prepare_cached(
        "UPDATE partitions SET high_watermark = ?3, length = length + ?4 WHERE stream_id = ?1 AND partition = ?2",
    )?;
    let mut first = BTreeMap::new();
    for (&partition, &count) in counts {
        let last = read.query_row((stream.id, partition), |row| number(row, 0))?;
        let reached = last.saturating_add(count);
        if reached > NUMBER_MAX {
            return Err(Error::Corrupt(format!(
                "partition {partition} of the stream `{}` has reached the last sequence, {NUMBER_MAX}",
                stream.name
            )));
        }
        write.execute((stream.id, partition, stored(reached), stored(count)))?;
        first.insert(partition, last + 1);
    }
    Ok(first)
}

pub(super) const READ: &str = concat!(
    "SELECT e.sequence, ",
    event_columns!(),
    " FROM events e WHERE e.stream_id = ?1 AND e.partition = ?2 AND e.sequence > ?3 ORDER BY e.sequence LIMIT ?4"
);
