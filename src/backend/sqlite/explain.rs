//! What holds a group's frontier.

use rusqlite::OptionalExtension;

use super::groups::pending_after;
use super::lookup::{Group, first_unsettled};
use super::rewind::markers;
use super::rows::{number, stored};
use super::worker::Op;
use crate::backend::{Explanation, Holder, HolderState, Result};
use crate::event::GroupKey;

pub(super) const STATE: &str = "\
SELECT gp.frontier, gp.delivered, p.high_watermark,
  (SELECT count(*) FROM redriven WHERE group_id = ?1 AND partition = ?3)
FROM group_partitions gp CROSS JOIN partitions p ON p.stream_id = ?2 AND p.partition = ?3
WHERE gp.group_id = ?1 AND gp.partition = ?3";

pub(super) fn explain(op: &mut Op<'_>, key: &GroupKey, partition: u32) -> Result<Explanation> {
    let group = op.group(key)?;
    group.stream.has(partition)?;
    let mut statement = op.conn.prepare_cached(STATE)?;
    let (frontier, delivered, high_watermark, redriven) = statement
        .query_row((group.id, group.stream.id, partition), |row| {
            Ok((number(row, 0)?, number(row, 1)?, number(row, 2)?, number(row, 3)?))
        })?;
    let rewind = markers(op, &group)?.kind_of(partition);
    let holder = if frontier < high_watermark {
        Some(holder(op, &group, partition, frontier, delivered)?)
    } else {
        None
    };
    Ok(Explanation { frontier, high_watermark, redriven, rewind, holder })
}

pub(super) const EVENT: &str =
    "SELECT id, type, timestamp FROM events WHERE stream_id = ?1 AND partition = ?2 AND sequence = ?3";

fn holder(op: &Op<'_>, group: &Group, partition: u32, frontier: u64, delivered: u64) -> Result<Holder> {
    let sequence = frontier + 1;
    let mut statement = op.conn.prepare_cached(EVENT)?;
    let event = statement
        .query_row((group.stream.id, partition, stored(sequence)), |row| {
            let text =
                |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str().ok().map(str::to_owned));
            Ok((text(0)?, text(1)?, text(2)?))
        })
        .optional()?;
    let is_there = event.is_some();
    let state = if sequence > delivered {
        if is_there { HolderState::Undelivered } else { HolderState::Missing }
    } else {
        let holds = first_unsettled(op, group.id, partition, frontier)? == Some(sequence);
        let entry = if holds { pending_after(op, group, partition, frontier, 1)?.pop() } else { None };
        entry.map_or(HolderState::Settled, HolderState::Pending)
    };
    let (event_id, event_type, timestamp) = event.unwrap_or_default();
    Ok(Holder { sequence, event_id, event_type, timestamp, state })
}
