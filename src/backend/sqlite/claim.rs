//! Claiming: which entries a consumer gets, and what is settled on the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Row, Statement};

use super::bury::{Death, bury};
use super::clock::millis;
use super::fair::{self, Taken};
use super::groups::failure_kind;
use super::lane::Lane;
use super::lookup::{Group, Standing, missing_between, move_frontier, standings};
use super::rewind;
use super::rows::{self, NoEvent, Place, kept_event_columns, number, receipt, stored};
use super::worker::Op;
use crate::backend::{ClaimDeath, ClaimRequest, Claimed, Result};
use crate::event::{Event, GroupKey, Lease, Leased, random_id};
use crate::outcome::{Cause, FailureKind};

/// A [`ClaimRequest`] that can go to another thread.
pub(super) struct Request {
    group: GroupKey,
    consumer: String,
    partitions: Vec<u32>,
    limit: usize,
    lease: Duration,
    sweep: bool,
    alone: bool,
}

impl From<&ClaimRequest<'_>> for Request {
    fn from(request: &ClaimRequest<'_>) -> Self {
        Self {
            group: request.group.clone(),
            consumer: request.consumer.to_owned(),
            partitions: request.partitions.to_vec(),
            limit: request.limit,
            lease: request.lease,
            sweep: request.sweep,
            alone: request.alone,
        }
    }
}

/// Where entries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Pending entries of a lane whose time has come.
    Ready(Lane),
    /// Events that were never delivered.
    New,
}

const SUSPECTS: [Lane; 2] = [Lane::ParkedSuspect, Lane::LeasedBeforeSuspect];

impl Standing {
    fn has_ready(&self, lane: Lane, now_ms: i64) -> bool {
        self.ready_ms
            .get(lane.number() as usize)
            .copied()
            .flatten()
            .is_some_and(|ready_ms| ready_ms <= now_ms)
    }

    fn has_suspect(&self, now_ms: i64) -> bool {
        SUSPECTS.iter().any(|&lane| self.has_ready(lane, now_ms))
    }

    /// What an ordinary claim can take, the oldest first.
    fn sources(&self, now_ms: i64, sweep: bool) -> Vec<Source> {
        let mut sources = Vec::new();
        if self.has_ready(Lane::Parked, now_ms) {
            sources.push(Source::Ready(Lane::Parked));
        }
        if sweep && self.has_ready(Lane::Leased, now_ms) {
            sources.push(Source::Ready(Lane::Leased));
        }
        if self.high_watermark > self.delivered {
            sources.push(Source::New);
        }
        sources
    }
}

pub(super) fn claim(op: &mut Op<'_>, request: &Request) -> Result<Claimed> {
    let group = op.group(&request.group)?;
    let now_ms = op.time.now_ms;
    let mut standings = standings(op, &group, &request.partitions)?;
    if standings.iter().any(|standing| standing.rewinding) {
        // Whoever began it may be gone. What this step finishes can be claimed at once; the others
        // wait for the next one.
        rewind::step(op, &group)?;
        standings = self::standings(op, &group, &request.partitions)?;
        standings.retain(|standing| !standing.rewinding);
    }
    let turn = op.turns.entry(group.id).or_default();
    let this_turn = *turn;
    *turn = turn.wrapping_add(1);
    let mut claim = Claim::new(op, &group, request);
    let any_suspect = |standings: &[Standing]| standings.iter().any(|standing| standing.has_suspect(now_ms));
    if request.alone {
        claim.take_suspect(&standings, this_turn)?;
        claim.claimed.suspects = any_suspect(&self::standings(op, &group, &request.partitions)?);
    } else {
        claim.claimed.suspects = any_suspect(&standings);
        claim.take_fairly(standings, this_turn)?;
    }
    claim.finish()
}

/// A claim at work.
struct Claim<'a> {
    op: &'a Op<'a>,
    group: &'a Group,
    request: &'a Request,
    lease_id: Arc<str>,
    expires_ms: i64,
    claimed: Claimed,
    /// Partitions in which entries were settled or skipped.
    ended: BTreeSet<u32>,
}

/// A pending entry as it was found.
struct Found {
    sequence: u64,
    attempt: u32,
    was_leased: bool,
    redriven: bool,
    failure: Option<FailureKind>,
    reason: Option<String>,
    consumer: String,
    event: Result<Event, NoEvent>,
}

pub(super) const READY: &str = concat!(
    "SELECT d.sequence, d.attempt, d.lane, d.failure, d.reason, d.consumer, d.redriven, ",
    kept_event_columns!(),
    " FROM pending d",
    " LEFT JOIN events e ON e.stream_id = ?2 AND e.partition = d.partition AND e.sequence = d.sequence",
    " LEFT JOIN redriven r ON d.redriven = 1",
    " AND r.group_id = d.group_id AND r.partition = d.partition AND r.sequence = d.sequence",
    " WHERE d.group_id = ?1 AND d.lane = ?3 AND d.partition = ?4 AND d.ready_ms <= ?5",
    " ORDER BY d.ready_ms LIMIT ?6"
);

const LEASE_AGAIN: &str = "\
UPDATE pending SET lane = ?4, ready_ms = ?5, attempt = ?6, lease_id = ?7, consumer = ?8, failure = ?9, reason = ?10
WHERE group_id = ?1 AND partition = ?2 AND sequence = ?3";
const LEASE_NEW: &str = "\
INSERT INTO pending (group_id, partition, sequence, lane, ready_ms, attempt, lease_id, consumer)
VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7)";

impl<'a> Claim<'a> {
    fn new(op: &'a Op<'a>, group: &'a Group, request: &'a Request) -> Self {
        Self {
            op,
            group,
            request,
            lease_id: random_id().into(),
            expires_ms: op.time.now_ms.saturating_add(millis(request.lease)),
            claimed: Claimed::default(),
            ended: BTreeSet::new(),
        }
    }

    /// Shares the limit among the partitions, and a partition's share among its sources.
    fn take_fairly(&mut self, mut standings: Vec<Standing>, turn: usize) -> Result<()> {
        let (now_ms, sweep) = (self.op.time.now_ms, self.request.sweep);
        standings.retain(|standing| !standing.sources(now_ms, sweep).is_empty());
        let partitions = standings.len();
        fair::share(self.request.limit, partitions, turn, |index, budget| {
            let Some(standing) = standings.get_mut(index) else { return Ok(Taken::default()) };
            let sources = standing.sources(now_ms, sweep);
            fair::share(budget, sources.len(), turn / partitions, |index, budget| match sources.get(index) {
                Some(Source::Ready(lane)) => self.take_ready(standing.partition, *lane, budget),
                Some(Source::New) => self.take_new(standing, budget),
                None => Ok(Taken::default()),
            })
        })?;
        Ok(())
    }

    /// Takes one suspect, where there is one.
    fn take_suspect(&mut self, standings: &[Standing], turn: usize) -> Result<()> {
        let now_ms = self.op.time.now_ms;
        for step in 0..standings.len() {
            let Some(standing) = standings.get((turn % standings.len() + step) % standings.len()) else {
                break;
            };
            for lane in SUSPECTS.into_iter().filter(|&lane| standing.has_ready(lane, now_ms)) {
                if self.take_ready(standing.partition, lane, 1)?.count > 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn take_ready(&mut self, partition: u32, lane: Lane, budget: usize) -> Result<Taken> {
        let found = self.find_ready(partition, lane, budget)?;
        // Those that are buried below do not use up the budget: there may be more behind them.
        let more = found.len() == budget;
        let mut count = 0;
        let mut lease = self.op.conn.prepare_cached(LEASE_AGAIN)?;
        for found in found {
            count += usize::from(self.take_found(&mut lease, partition, found)?);
        }
        Ok(Taken { count, more })
    }

    fn find_ready(&self, partition: u32, lane: Lane, budget: usize) -> Result<Vec<Found>> {
        let (group, now_ms) = (self.group, self.op.time.now_ms);
        let mut statement = self.op.conn.prepare_cached(READY)?;
        let arguments = (group.id, group.stream.id, lane.number(), partition, now_ms, rows::limit(budget));
        let found = statement.query_map(arguments, |row| self.found(row, partition))?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }

    fn found(&self, row: &Row<'_>, partition: u32) -> rusqlite::Result<Found> {
        let sequence = number(row, 0)?;
        let place = Place { stream: &self.group.stream.name, partition, sequence };
        Ok(Found {
            sequence,
            attempt: row.get(1)?,
            was_leased: Lane::is_leased(row.get(2)?),
            failure: failure_kind(row, 3)?,
            reason: row.get(4)?,
            consumer: row.get(5)?,
            redriven: row.get(6)?,
            event: rows::event(row, 7, place)?,
        })
    }

    /// Leases a pending entry; whether it was not buried instead.
    fn take_found(&mut self, lease: &mut Statement<'_>, partition: u32, mut found: Found) -> Result<bool> {
        let attempts_max = self.group.attempts_max;
        if found.was_leased {
            found.failure = Some(FailureKind::Expired);
            found.reason = Some(format!("the lease of attempt {} of {attempts_max} expired", found.attempt));
        }
        let event = match found.event {
            Ok(event) if found.attempt < attempts_max => event,
            unfit => {
                let (cause, reason, event_id) = match unfit {
                    Ok(event) => (Cause::AttemptsExhausted, found.reason.unwrap_or_default(), Some(event.id)),
                    Err(no_event) => describe(no_event),
                };
                let death = Death {
                    partition,
                    sequence: found.sequence,
                    redriven: found.redriven,
                    cause,
                    reason: &reason,
                    failure: found.failure,
                    attempts: found.attempt,
                    consumer: &found.consumer,
                    plugin: None,
                };
                self.bury(death, event_id)?;
                return Ok(false);
            }
        };
        let attempt = found.attempt + 1;
        lease.execute((
            self.group.id,
            partition,
            stored(found.sequence),
            Lane::leased(attempt, attempts_max).number(),
            self.expires_ms,
            attempt,
            &*self.lease_id,
            &self.request.consumer,
            found.failure.map(FailureKind::as_str),
            found.reason,
        ))?;
        self.give(event, attempt);
        Ok(true)
    }

    fn take_new(&mut self, standing: &mut Standing, budget: usize) -> Result<Taken> {
        let found = self.find_new(standing, budget)?;
        let more = found.len() == budget;
        let mut count = 0;
        let (mut delivered, mut missing) = (standing.delivered, 0);
        let lane = Lane::leased(1, self.group.attempts_max);
        let mut lease = self.op.conn.prepare_cached(LEASE_NEW)?;
        for (sequence, event) in found {
            if sequence != delivered + 1 {
                missing += missing_between(self.op, self.group, standing.partition, delivered, sequence)?;
                self.ended.insert(standing.partition);
            }
            delivered = sequence;
            match event {
                Ok(event) => {
                    lease.execute((
                        self.group.id,
                        standing.partition,
                        stored(sequence),
                        lane.number(),
                        self.expires_ms,
                        &*self.lease_id,
                        &self.request.consumer,
                    ))?;
                    self.give(event, 1);
                    count += 1;
                }
                Err(no_event) => {
                    let (cause, reason, event_id) = describe(no_event);
                    let death = Death {
                        partition: standing.partition,
                        sequence,
                        redriven: false,
                        cause,
                        reason: &reason,
                        failure: None,
                        attempts: 0,
                        consumer: &self.request.consumer,
                        plugin: None,
                    };
                    self.bury(death, event_id)?;
                }
            }
        }
        if !more && delivered < standing.high_watermark {
            // The last events were removed: nothing will ever come there.
            let end = standing.high_watermark + 1;
            missing += missing_between(self.op, self.group, standing.partition, delivered, end)?;
            delivered = standing.high_watermark;
            self.ended.insert(standing.partition);
        }
        let mut statement = self.op.conn.prepare_cached(
            "UPDATE group_partitions SET delivered = ?3, missing = missing + ?4
             WHERE group_id = ?1 AND partition = ?2",
        )?;
        statement.execute((self.group.id, standing.partition, stored(delivered), stored(missing)))?;
        standing.delivered = delivered;
        Ok(Taken { count, more })
    }

    fn find_new(&self, standing: &Standing, budget: usize) -> Result<Vec<(u64, Result<Event, NoEvent>)>> {
        let stream = &self.group.stream;
        let mut statement = self.op.conn.prepare_cached(super::streams::READ)?;
        let arguments = (stream.id, standing.partition, stored(standing.delivered), rows::limit(budget));
        let found = statement.query_map(arguments, |row| {
            let sequence = number(row, 0)?;
            let place = Place { stream: &stream.name, partition: standing.partition, sequence };
            Ok((sequence, rows::event(row, 1, place)?))
        })?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    }

    fn give(&mut self, event: Event, attempt: u32) {
        let lease = Lease {
            id: self.lease_id.clone(),
            receipt: receipt(event.partition, event.sequence).into(),
            partition: event.partition,
            sequence: event.sequence,
            attempt,
        };
        self.claimed.leased.push(Leased { event, lease });
    }

    fn bury(&mut self, death: Death<'_>, event_id: Option<String>) -> Result<()> {
        bury(self.op, self.group, death)?;
        self.ended.insert(death.partition);
        self.claimed.dead_lettered.push(ClaimDeath {
            partition: death.partition,
            sequence: Some(death.sequence),
            event_id,
            cause: death.cause,
            reason: death.reason.to_owned(),
        });
        Ok(())
    }

    fn finish(mut self) -> Result<Claimed> {
        for &partition in &self.ended {
            move_frontier(self.op, self.group.id, partition)?;
        }
        self.claimed.leased.sort_by_key(|leased| (leased.event.partition, leased.event.sequence));
        Ok(self.claimed)
    }
}

/// Why an entry without an event is a dead letter, and its id if it has one.
fn describe(no_event: NoEvent) -> (Cause, String, Option<String>) {
    match no_event {
        NoEvent::Missing => (Cause::Missing, "the event is gone from the log".to_owned(), None),
        NoEvent::Undecodable { detail, event_id, .. } => {
            (Cause::Undecodable, crate::outcome::shorten(detail), event_id)
        }
    }
}
