//! Settling and renewing: what the holder of a lease may do.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::{OptionalExtension, Statement};

use super::bury::{Death, bury, remove};
use super::clock::millis;
use super::groups::failure_kind;
use super::lane::Lane;
use super::lookup::{Group, move_frontier};
use super::rewind::{Markers, markers};
use super::rows::{is_receipt, stored};
use super::state;
use super::worker::Op;
use crate::backend::{Error, Result, SETTLE_BATCH_MAX, Settled};
use crate::event::{GroupKey, Lease};
use crate::outcome::{Effects, FailureKind, Settlement, Verdict};

/// Checks that one call takes so many items.
pub(super) fn check_batch(items: usize) -> Result<()> {
    if items > SETTLE_BATCH_MAX {
        return Err(Error::BatchTooLarge { items, max: SETTLE_BATCH_MAX });
    }
    Ok(())
}

pub(super) fn settle(
    op: &mut Op<'_>,
    key: &GroupKey,
    consumer: &str,
    settlements: &[Settlement],
    event_bytes_max: usize,
) -> Result<Vec<Settled>> {
    let group = op.group(key)?;
    let markers = markers(op, &group)?;
    let mut settled = Vec::with_capacity(settlements.len());
    let mut ended = BTreeSet::new();
    let mut ack = op.conn.prepare_cached(ACK)?;
    for settlement in settlements {
        if is_plain_ack(&settlement.verdict) && acked(&mut ack, &group, &markers, &settlement.lease)? {
            ended.insert(settlement.lease.partition);
            settled.push(Settled::Done);
            continue;
        }
        settled.push(match held(op, &group, &markers, &settlement.lease)? {
            Ok(held) => {
                if let Some(effects) = effects(&settlement.verdict) {
                    if let Err(refused) = state::check(op, effects, event_bytes_max)? {
                        settled.push(refused);
                        continue;
                    }
                    state::commit(op, effects)?;
                }
                if write(op, &group, consumer, settlement, held)? == Fate::Ended {
                    ended.insert(settlement.lease.partition);
                }
                Settled::Done
            }
            Err(refused) => refused,
        });
    }
    for partition in ended {
        move_frontier(op, group.id, partition)?;
    }
    Ok(settled)
}

/// The fence and the settlement in one step, for what is settled most.
pub(super) const ACK: &str = "\
DELETE FROM pending
WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3 AND lease_id = ?4 AND redriven = 0";

fn is_plain_ack(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Ack(effects) if effects.is_empty())
}

/// Acks an entry that is there by no redrive; false where nothing was written, for [`held`] to say why.
fn acked(ack: &mut Statement<'_>, group: &Group, markers: &Markers, lease: &Lease) -> Result<bool> {
    let Lease { partition, sequence, .. } = *lease;
    if markers.takes(partition, sequence) || !is_receipt(&lease.receipt, partition, sequence) {
        return Ok(false);
    }
    Ok(ack.execute((group.id, partition, stored(sequence), &*lease.id))? == 1)
}

/// What is committed with the verdict.
fn effects(verdict: &Verdict) -> Option<&Effects> {
    match verdict {
        Verdict::Ack(effects) if !effects.is_empty() => Some(effects),
        _ => None,
    }
}

pub(super) fn renew(
    op: &mut Op<'_>,
    key: &GroupKey,
    leases: &[Lease],
    lease: Duration,
) -> Result<Vec<Settled>> {
    let group = op.group(key)?;
    let markers = markers(op, &group)?;
    let expires_ms = op.time.now_ms.saturating_add(millis(lease));
    let mut statement = op.conn.prepare_cached(
        "UPDATE pending SET ready_ms = ?4 WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3",
    )?;
    let mut renewed = Vec::with_capacity(leases.len());
    for lease in leases {
        renewed.push(match held(op, &group, &markers, lease)? {
            Ok(_) => {
                statement.execute((group.id, lease.partition, stored(lease.sequence), expires_ms))?;
                Settled::Done
            }
            Err(refused) => refused,
        });
    }
    Ok(renewed)
}

/// What is known of an entry whose lease is in order.
struct Held {
    attempt: u32,
    failure: Option<FailureKind>,
    redriven: bool,
}

/// A lease id is given out once, and is gone from the row as soon as the entry is parked, taken by
/// another or settled. That the time ran out is not enough: until someone takes the entry, its
/// holder may still finish.
pub(super) const HELD: &str = "\
SELECT attempt, failure, redriven FROM pending
WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3 AND lease_id = ?4";

/// Checks the fence, then the receipt. A rewind that is under way has taken the lease already, even
/// where its row still stands.
fn held(op: &Op<'_>, group: &Group, markers: &Markers, lease: &Lease) -> Result<Result<Held, Settled>> {
    if markers.takes(lease.partition, lease.sequence) {
        return Ok(Err(Settled::Stale));
    }
    let mut statement = op.conn.prepare_cached(HELD)?;
    let held = statement
        .query_row((group.id, lease.partition, stored(lease.sequence), &*lease.id), |row| {
            Ok(Held { attempt: row.get(0)?, failure: failure_kind(row, 1)?, redriven: row.get(2)? })
        })
        .optional()?;
    Ok(match held {
        None => Err(Settled::Stale),
        Some(_) if !is_receipt(&lease.receipt, lease.partition, lease.sequence) => {
            Err(Settled::ReceiptMismatch)
        }
        Some(held) => Ok(held),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Ended,
    Waits,
}

fn write(
    op: &mut Op<'_>,
    group: &Group,
    consumer: &str,
    settlement: &Settlement,
    held: Held,
) -> Result<Fate> {
    let Lease { partition, sequence, .. } = settlement.lease;
    match &settlement.verdict {
        Verdict::Ack(_) => {
            remove(op, group, partition, sequence, held.redriven)?;
            Ok(Fate::Ended)
        }
        Verdict::DeadLetter { cause, reason, failure } => {
            let death = Death {
                partition,
                sequence,
                redriven: held.redriven,
                cause: *cause,
                reason,
                failure: *failure,
                attempts: held.attempt,
                consumer,
                plugin: settlement.plugin.as_deref(),
            };
            bury(op, group, death)?;
            Ok(Fate::Ended)
        }
        Verdict::Retry { delay, reason, failure } => {
            let lane = Lane::parked(held.attempt, group.attempts_max, Some(*failure));
            let due_ms = op.time.now_ms.saturating_add(millis(*delay));
            let mut statement = op.conn.prepare_cached(
                "UPDATE pending SET lane = ?4, ready_ms = ?5, lease_id = NULL, failure = ?6, reason = ?7
                 WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3",
            )?;
            let sequence = stored(sequence);
            statement.execute((
                group.id,
                partition,
                sequence,
                lane.number(),
                due_ms,
                failure.as_str(),
                reason,
            ))?;
            op.stirred = true;
            Ok(Fate::Waits)
        }
        Verdict::Release => {
            // As before this delivery: what is known of the attempt before it stays.
            let attempt = held.attempt.saturating_sub(1);
            let lane = Lane::parked(attempt, group.attempts_max, held.failure);
            let mut statement = op.conn.prepare_cached(
                "UPDATE pending SET lane = ?4, ready_ms = ?5, lease_id = NULL, attempt = ?6
                 WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3",
            )?;
            let sequence = stored(sequence);
            statement.execute((group.id, partition, sequence, lane.number(), op.time.now_ms, attempt))?;
            op.stirred = true;
            Ok(Fate::Waits)
        }
    }
}
