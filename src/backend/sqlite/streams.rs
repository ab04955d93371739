//! Streams: creating, listing, appending, reading.

use std::collections::BTreeMap;

use rusqlite::OptionalExtension;

use super::clock::iso;
use super::lookup::Stream;
use super::rows::{self, NoEvent, Place, event_columns, number, receipt, stored};
use super::worker::Op;
use crate::backend::{
    APPEND_BATCH_MAX, Appended, Error, Order, PARTITIONS_MAX, PartitionInfo, Result, ScanPage, ScanRange,
    StreamInfo, StreamSummary, Unreadable,
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
    let mut statement = op.conn.prepare_cached(
        "SELECT partition, high_watermark, length FROM partitions WHERE stream_id = ?1 ORDER BY partition",
    )?;
    let partitions = statement.query_map([stream.id], |row| {
        Ok(PartitionInfo {
            partition: row.get(0)?,
            high_watermark: number(row, 1)?,
            length: number(row, 2)?,
            first: None,
        })
    })?;
    let partitions = partitions.collect::<rusqlite::Result<_>>()?;
    Ok(StreamInfo { stream: stream.name, created_at, partitions })
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
        "INSERT INTO events (stream_id, partition, sequence, id, timestamp, key, type, metadata, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
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

/// Events of a range in one direction, `?3` < sequence <= `?4`.
pub(super) const SCAN_UP: &str = concat!(
    "SELECT e.sequence, ",
    event_columns!(),
    " FROM events e WHERE e.stream_id = ?1 AND e.partition = ?2 AND e.sequence > ?3 AND e.sequence <= ?4",
    " ORDER BY e.sequence LIMIT ?5"
);
pub(super) const SCAN_DOWN: &str = concat!(
    "SELECT e.sequence, ",
    event_columns!(),
    " FROM events e WHERE e.stream_id = ?1 AND e.partition = ?2 AND e.sequence > ?3 AND e.sequence <= ?4",
    " ORDER BY e.sequence DESC LIMIT ?5"
);

/// Bytes of events after which a page ends.
const PAGE_BYTES_MAX: usize = 4 << 20;

pub(super) fn scan(op: &mut Op<'_>, name: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
    let stream = op.stream(name)?;
    stream.has(partition)?;
    let mut statement = op.conn.prepare_cached(match range.order {
        Order::Ascending => SCAN_UP,
        Order::Descending => SCAN_DOWN,
    })?;
    let limit = range.limit.clamp(1, PAGE_ROWS_MAX);
    let bounds = (stored(range.after), stored(range.until));
    let mut rows = statement.query((stream.id, partition, bounds.0, bounds.1, rows::limit(limit)))?;
    let (mut page, mut count, mut bytes) = (ScanPage::default(), 0, 0);
    while let Some(row) = rows.next()? {
        let sequence = number(row, 0)?;
        count += 1;
        match rows::event(row, 1, Place { stream: name, partition, sequence })? {
            Ok(event) => {
                bytes += event.payload.as_str().len() + event.metadata.as_str().len();
                page.events.push(event);
            }
            Err(NoEvent::Undecodable { detail, .. }) => {
                let receipt = receipt(partition, sequence);
                page.unreadable.push(Unreadable { sequence: Some(sequence), receipt, detail });
            }
            Err(NoEvent::Missing) => {}
        }
        if count == limit || bytes >= PAGE_BYTES_MAX {
            page.next = Some(sequence);
            break;
        }
    }
    Ok(page)
}

/// Rows of one page at most, whatever the caller asks for: a snapshot must not be held for long.
const PAGE_ROWS_MAX: usize = 1000;
