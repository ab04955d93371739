//! What handlers keep, and how their effects are committed.

use rusqlite::OptionalExtension;

use super::rows::{number, stored};
use super::streams;
use super::worker::Op;
use crate::backend::{Error, Refusal, Result, STATE_KEYS_MAX, Settled};
use crate::event::{Name, NewEvent};
use crate::outcome::Effects;
use crate::routing::partition_for_key;
use crate::state::{Bucket, StateKeys, StateValue};

/// Keys of one page.
const KEYS_PAGE: usize = 500;

pub(super) const GET: &str =
    "SELECT version, value FROM state WHERE namespace = ?1 AND bucket = ?2 AND key = ?3";
pub(super) const VERSION: &str =
    "SELECT version FROM state WHERE namespace = ?1 AND bucket = ?2 AND key = ?3";
pub(super) const KEYS: &str = "SELECT row_id, key FROM state WHERE namespace = ?1 AND bucket = ?2 AND row_id > ?3 ORDER BY row_id LIMIT ?4";

/// Checks that one call takes so many keys.
pub(super) fn check_batch(keys: usize) -> Result<()> {
    if keys > STATE_KEYS_MAX {
        return Err(Error::BatchTooLarge { items: keys, max: STATE_KEYS_MAX });
    }
    Ok(())
}

pub(super) fn get(op: &mut Op<'_>, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>> {
    let mut statement = op.conn.prepare_cached(GET)?;
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        let value = statement.query_row((op.namespace, bucket.as_str(), key), |row| {
            Ok(StateValue { version: number(row, 0)?, bytes: row.get(1)? })
        });
        values.push(value.optional()?);
    }
    Ok(values)
}

pub(super) fn keys(op: &mut Op<'_>, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys> {
    let mut statement = op.conn.prepare_cached(KEYS)?;
    let after = stored(cursor.unwrap_or(0));
    let limit = super::rows::limit(KEYS_PAGE);
    let mut rows = statement.query((op.namespace, bucket.as_str(), after, limit))?;
    let (mut page, mut last) = (StateKeys::default(), None);
    while let Some(row) = rows.next()? {
        last = Some(number(row, 0)?);
        page.keys.push(row.get(1)?);
    }
    page.cursor = last.filter(|_| page.keys.len() == KEYS_PAGE);
    Ok(page)
}

/// Whether effects can be committed: everything that can fail comes before the first write.
pub(super) fn check(
    op: &Op<'_>,
    effects: &Effects,
    event_bytes_max: usize,
) -> Result<std::result::Result<(), Settled>> {
    for staged in &effects.appends {
        if let Err(refusal) = check_event(op, &staged.stream, &staged.event, event_bytes_max)? {
            return Ok(Err(Settled::Refused(refusal)));
        }
    }
    let mut statement = op.conn.prepare_cached(VERSION)?;
    for read in &effects.reads {
        let version = statement
            .query_row((op.namespace, read.bucket.as_str(), &read.key), |row| number(row, 0))
            .optional()?;
        if version.unwrap_or(0) != read.version {
            return Ok(Err(Settled::Conflict));
        }
    }
    Ok(Ok(()))
}

fn check_event(
    op: &Op<'_>,
    stream: &Name,
    event: &NewEvent,
    event_bytes_max: usize,
) -> Result<std::result::Result<(), Refusal>> {
    let stream = match op.stream(stream) {
        Ok(stream) => stream,
        Err(Error::StreamNotFound(_)) => return Ok(Err(Refusal::StreamNotFound)),
        Err(error) => return Err(error),
    };
    let by_key = || partition_for_key(event.key.as_deref(), stream.partitions);
    if event.partition.unwrap_or_else(by_key) >= stream.partitions {
        return Ok(Err(Refusal::PartitionNotFound));
    }
    Ok(event.check(event_bytes_max).map_err(|_| Refusal::EventTooLarge))
}

/// Commits effects that were checked.
pub(super) fn commit(op: &mut Op<'_>, effects: &Effects) -> Result<()> {
    // Events of one stream that follow each other go in together, in their order.
    for staged in effects.appends.chunk_by(|one, next| one.stream == next.stream) {
        if let Some(first) = staged.first() {
            let events = staged.iter().map(|staged| staged.event.clone()).collect();
            streams::append(op, &first.stream, events)?;
        }
    }
    if effects.writes.is_empty() {
        return Ok(());
    }
    let mut statement =
        op.conn.prepare_cached("UPDATE state_versions SET last = last + 1 WHERE id = 1 RETURNING last")?;
    let version: i64 = statement.query_row([], |row| row.get(0))?;
    let mut set = op.conn.prepare_cached(
        "INSERT INTO state (namespace, bucket, key, version, value) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (namespace, bucket, key) DO UPDATE SET version = excluded.version, value = excluded.value",
    )?;
    let mut remove =
        op.conn.prepare_cached("DELETE FROM state WHERE namespace = ?1 AND bucket = ?2 AND key = ?3")?;
    for write in &effects.writes {
        let place = (op.namespace, write.bucket.as_str(), &write.key);
        match &write.value {
            Some(value) => set.execute((place.0, place.1, place.2, version, value))?,
            None => remove.execute(place)?,
        };
    }
    Ok(())
}
