//! Dead letters and settled events that a group is to have again, and dead letters that go.
//!
//! What is redriven has a row in `pending`, as any delivered event, and a record with a copy of the
//! event, which lives until the event is settled. The frontier has passed it and does not go back.

use rusqlite::OptionalExtension;

use super::groups::row_id;
use super::lane::Lane;
use super::lookup::Group;
use super::rewind::markers;
use super::rows::{self, Place, event_columns, number, stored};
use super::worker::Op;
use crate::backend::{Error, REDRIVE_BATCH_MAX, Redriven, Result};
use crate::event::{Event, GroupKey};

/// Checks that one call takes so many items.
pub(super) fn check_batch(items: usize) -> Result<()> {
    if items > REDRIVE_BATCH_MAX {
        return Err(Error::BatchTooLarge { items, max: REDRIVE_BATCH_MAX });
    }
    Ok(())
}

pub(super) fn purge(op: &mut Op<'_>, key: &GroupKey, rows: &[String]) -> Result<u64> {
    let group = op.group(key)?;
    let mut purged = 0;
    for id in rows.iter().filter_map(|row| row_id(row)) {
        purged += delete_letter(op, &group, id)?;
    }
    Ok(purged)
}

fn delete_letter(op: &Op<'_>, group: &Group, id: i64) -> Result<u64> {
    let mut statement = op.conn.prepare_cached("DELETE FROM dead_letters WHERE id = ?1 AND group_id = ?2")?;
    Ok(statement.execute((id, group.id))? as u64)
}

pub(super) fn redrive(op: &mut Op<'_>, key: &GroupKey, rows: &[String]) -> Result<Vec<Redriven>> {
    let group = steady(op, key)?;
    let mut redriven = Vec::with_capacity(rows.len());
    for row in rows {
        redriven.push(match row_id(row) {
            Some(id) => redrive_one(op, &group, id)?,
            None => Redriven::Gone,
        });
    }
    op.stirred = true;
    Ok(redriven)
}

pub(super) fn redeliver(op: &mut Op<'_>, key: &GroupKey, events: &[(u32, u64)]) -> Result<Vec<Redriven>> {
    let group = steady(op, key)?;
    let mut redriven = Vec::with_capacity(events.len());
    for &(partition, sequence) in events {
        group.stream.has(partition)?;
        redriven.push(match logged(op, &group, partition, sequence)? {
            Logged::Gone => Redriven::Gone,
            Logged::NoEvent => Redriven::NoEvent,
            Logged::Event(event) => offer(op, &group, &event, true)?,
        });
    }
    op.stirred = true;
    Ok(redriven)
}

/// The group, where no rewind is under way: what is above its position would go.
fn steady(op: &Op<'_>, key: &GroupKey) -> Result<Group> {
    let group = op.group(key)?;
    match markers(op, &group)?.kind() {
        Some(_) => Err(Error::RewindUnderWay(key.clone())),
        None => Ok(group),
    }
}

pub(super) const LETTER: &str = "\
SELECT partition, sequence, event_id, timestamp, key, type, metadata, payload
FROM dead_letters WHERE id = ?1 AND group_id = ?2";

fn redrive_one(op: &Op<'_>, group: &Group, id: i64) -> Result<Redriven> {
    let mut statement = op.conn.prepare_cached(LETTER)?;
    let letter = statement
        .query_row((id, group.id), |row| {
            let place =
                Place { stream: &group.stream.name, partition: row.get(0)?, sequence: number(row, 1)? };
            rows::event(row, 2, place)
        })
        .optional()?;
    let event = match letter {
        None => return Ok(Redriven::Gone),
        Some(Err(_)) => return Ok(Redriven::NoEvent),
        Some(Ok(event)) => event,
    };
    if group.stream.has(event.partition).is_err() {
        return Ok(Redriven::NoEvent);
    }
    let logged = !matches!(logged(op, group, event.partition, event.sequence)?, Logged::Gone);
    let offered = offer(op, group, &event, logged)?;
    if offered == Redriven::Done {
        delete_letter(op, group, id)?;
    }
    Ok(offered)
}

/// What the log has in a place.
enum Logged {
    Gone,
    NoEvent,
    Event(Box<Event>),
}

pub(super) const LOGGED: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM events e WHERE e.stream_id = ?1 AND e.partition = ?2 AND e.sequence = ?3"
);

fn logged(op: &Op<'_>, group: &Group, partition: u32, sequence: u64) -> Result<Logged> {
    let place = Place { stream: &group.stream.name, partition, sequence };
    let mut statement = op.conn.prepare_cached(LOGGED)?;
    let found = statement
        .query_row((group.stream.id, partition, stored(sequence)), |row| rows::event(row, 0, place))
        .optional()?;
    Ok(match found {
        None => Logged::Gone,
        Some(Err(_)) => Logged::NoEvent,
        Some(Ok(event)) => Logged::Event(Box::new(event)),
    })
}

pub(super) const HAS: &str = "\
SELECT delivered, EXISTS (SELECT 1 FROM pending WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3)
FROM group_partitions WHERE group_id = ?1 AND partition = ?2";

/// Offers a settled event to the group once more. `logged` says whether the log has it: where it does
/// and the group has not come to it yet, it will.
fn offer(op: &Op<'_>, group: &Group, event: &Event, logged: bool) -> Result<Redriven> {
    let place = (group.id, event.partition, stored(event.sequence));
    let mut statement = op.conn.prepare_cached(HAS)?;
    let (delivered, pending) =
        statement.query_row(place, |row| Ok((number(row, 0)?, row.get::<_, bool>(1)?)))?;
    if pending || (logged && event.sequence > delivered) {
        return Ok(Redriven::Underway);
    }
    let mut statement = op.conn.prepare_cached(
        "INSERT INTO redriven (group_id, partition, sequence, id, timestamp, key, type, metadata, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    statement.execute((
        place.0,
        place.1,
        place.2,
        &event.id,
        &event.timestamp,
        &event.key,
        &event.event_type,
        event.metadata.as_str(),
        event.payload.as_str(),
    ))?;
    let mut statement = op.conn.prepare_cached(
        "INSERT INTO pending (group_id, partition, sequence, lane, ready_ms, attempt, consumer, redriven)
         VALUES (?1, ?2, ?3, ?4, ?5, 0, '', 1)",
    )?;
    statement.execute((place.0, place.1, place.2, Lane::Parked.number(), op.time.now_ms))?;
    Ok(Redriven::Done)
}
