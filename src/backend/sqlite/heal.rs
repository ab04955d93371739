//! Mending what can be wrong with a group here: next to nothing, since all that belongs together is
//! written in one transaction. What is left is what a forced trim or another program took away.

use rusqlite::OptionalExtension;

use super::lookup::{Group, missing_between, move_frontier, standings};
use super::rows::{number, stored};
use super::worker::Op;
use crate::backend::{Repair, RepairKind, Result};
use crate::event::GroupKey;

pub(super) fn heal(op: &mut Op<'_>, key: &GroupKey, partition: u32) -> Result<Vec<Repair>> {
    let group = op.group(key)?;
    let mut repairs = Vec::new();
    let Some(standing) = standings(op, &group, &[partition])?.pop() else { return Ok(repairs) };
    if standing.rewinding {
        // It moves the group itself.
        return Ok(repairs);
    }
    if standing.delivered < standing.high_watermark {
        repairs.extend(pass_missing(op, &group, partition, standing.delivered, standing.high_watermark)?);
    }
    if let Some((before, after)) = move_frontier(op, group.id, partition)?
        && repairs.is_empty()
    {
        let sequences = Some((before.saturating_add(1), after));
        repairs.push(Repair { kind: RepairKind::Frontier, sequences, count: 1 });
    }
    Ok(repairs)
}

pub(super) const NEXT: &str = "\
SELECT sequence FROM events WHERE stream_id = ?1 AND partition = ?2 AND sequence > ?3
ORDER BY sequence LIMIT 1";

/// Passes the events that were removed before they were delivered, up to the next one that is there.
fn pass_missing(
    op: &Op<'_>,
    group: &Group,
    partition: u32,
    delivered: u64,
    high_watermark: u64,
) -> Result<Option<Repair>> {
    let mut statement = op.conn.prepare_cached(NEXT)?;
    let next = statement
        .query_row((group.stream.id, partition, stored(delivered)), |row| number(row, 0))
        .optional()?;
    let reached = next.map_or(high_watermark, |next| next.saturating_sub(1));
    if reached <= delivered {
        return Ok(None);
    }
    let count = missing_between(op, group, partition, delivered, reached.saturating_add(1))?;
    let mut statement = op.conn.prepare_cached(
        "UPDATE group_partitions SET delivered = ?3, missing = missing + ?4
         WHERE group_id = ?1 AND partition = ?2",
    )?;
    statement.execute((group.id, partition, stored(reached), stored(count)))?;
    let sequences = Some((delivered.saturating_add(1), reached));
    // None where the group has all of them by a redrive.
    Ok((count > 0).then_some(Repair { kind: RepairKind::Missing, sequences, count }))
}
