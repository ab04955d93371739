//! Claim: what was parked and is due, what others lost, what is new; all under leases.
//!
//! New entries are read natively inside a transaction between two scripts, so that payloads stay out
//! of Lua and no one sees an entry between reading and leasing. Everything else is leased first, by a
//! script that answers ids, and read afterwards.

use std::collections::HashSet;
use std::sync::Arc;

use redis::{Pipeline, Value};

use super::codec::{self, Field};
use super::connection::{Effect, is_unknown_script};
use super::errors::server_error;
use super::groups::code;
use super::reply::{self, array, attempt_number, checked, number_or_zero, text_or_empty};
use super::resp::{self, Reader};
use super::rows::{self, Row};
use super::scripts::{Code, Script};
use super::state::GroupState;
use super::{Redis, millis};
use crate::backend::{ClaimDeath, ClaimRequest, Claimed, Error, Result};
use crate::event::{Lease, Leased, random_id};
use crate::outcome::{Cause, FailureKind, Settlement, Verdict};

/// Most events of one claim, whatever the caller asks for: a step of the server must stay short.
const CLAIM_MAX: usize = 1024;
/// Round trips in which new entries are looked for, so that empty partitions leave room to others.
const ROUNDS_MAX: usize = 4;

/// A claim under way.
pub(super) struct Taking<'a> {
    pub(super) request: &'a ClaimRequest<'a>,
    pub(super) state: &'a GroupState,
    /// How many events may still be taken.
    pub(super) room: usize,
    pub(super) claimed: Claimed,
    deaths: Vec<Death>,
}

/// An entry that is leased only to be made a dead letter.
struct Death {
    settlement: Settlement,
    consumer: String,
    report: ClaimDeath,
}

/// An entry that a script has leased.
pub(super) struct Held {
    pub(super) partition: u32,
    pub(super) id: Arc<str>,
    pub(super) lease: Arc<str>,
    pub(super) attempt: u32,
    /// Its attempts are used up; the former holder and its failure.
    pub(super) exhausted: Option<(String, Option<FailureKind>)>,
}

/// One partition's part of a read.
struct Share {
    partition: u32,
    lease: Arc<str>,
    limit: usize,
}

impl Redis {
    pub(super) async fn do_claim(&self, request: &ClaimRequest<'_>) -> Result<Claimed> {
        self.check_partitions(request).await?;
        let state = self.state_of(request.group);
        let room = if request.alone { 1 } else { request.limit.clamp(1, CLAIM_MAX) };
        let (claimed, deaths) = (Claimed::default(), Vec::new());
        let mut taking = Taking { request, state: &state, room, claimed, deaths };
        let outcome = if request.alone {
            self.take_suspect(&mut taking).await
        } else {
            self.take_all(&mut taking).await
        };
        let outcome = self.blame(outcome, || self.typed_keys(request.group, request.partitions)).await;
        // What is leased already is handed out: an error of a later step would only let it expire.
        if let Err(error) = outcome {
            if taking.claimed.leased.is_empty() && taking.deaths.is_empty() {
                return Err(error);
            }
            tracing::debug!(%error, group = %request.group, "a step of a claim failed");
        }
        self.bury(&mut taking).await;
        taking.claimed.leased.sort_by_key(|leased| (leased.event.partition, leased.event.sequence));
        Ok(taking.claimed)
    }

    /// No kind of work may starve another: retries get half of the room at first, what others lost
    /// half of the rest, new entries all that is left then; in the end the first two again.
    async fn take_all(&self, taking: &mut Taking<'_>) -> Result<()> {
        let (turn, partitions) = taking.state.in_turn(taking.request.partitions);
        let due = taking.state.due_now(&partitions);
        // Of an odd room, and so of a room for one, each side gets the middle in turn.
        let half = (taking.room + turn % 2) / 2;
        if !due.is_empty() && half > 0 {
            self.take_due(taking, &due, half).await?;
        }
        let half = taking.room.div_ceil(2);
        let mut sweep = taking.request.sweep;
        if sweep && half > 0 {
            sweep = self.sweep(taking, &partitions, half).await?;
        }
        self.take_new(taking, &partitions).await?;
        let due = taking.state.due_now(&partitions);
        if taking.room > 0 && !due.is_empty() {
            self.take_due(taking, &due, taking.room).await?;
        }
        if taking.room > 0 && sweep {
            self.sweep(taking, &partitions, taking.room).await?;
        }
        Ok(())
    }

    async fn check_partitions(&self, request: &ClaimRequest<'_>) -> Result<()> {
        let partitions = self.partitions_of(&request.group.stream).await?;
        match request.partitions.iter().find(|&&p| p >= partitions) {
            None => Ok(()),
            Some(&partition) => {
                // The stream may be another one by now.
                self.forget(&request.group.stream);
                let partitions = self.partitions_of(&request.group.stream).await?;
                if request.partitions.iter().all(|&p| p < partitions) {
                    return Ok(());
                }
                Err(Error::PartitionNotFound { stream: request.group.stream.clone(), partition, partitions })
            }
        }
    }

    /// New entries: every partition gets its share, then those that had more get what is left.
    async fn take_new(&self, taking: &mut Taking<'_>, partitions: &[u32]) -> Result<()> {
        let mut open: Vec<u32> = partitions.to_vec();
        if taking.room > 0 && taking.room < open.len() {
            open = self.likely(taking, &open).await?;
        }
        for _ in 0..ROUNDS_MAX {
            if taking.room == 0 || open.is_empty() {
                // A claim that is full, or of no partition, says all the same what else there is.
                return Ok(());
            }
            let asked = open.len().min(taking.room);
            let (each, more) = (taking.room / asked, taking.room % asked);
            let later = open.split_off(asked);
            let shares: Vec<Share> = open
                .iter()
                .enumerate()
                .map(|(i, &partition)| Share {
                    partition,
                    lease: random_id().into(),
                    limit: each + usize::from(i < more),
                })
                .collect();
            let read = self.read_new(taking, &shares).await?;
            let full = shares.iter().zip(read).filter(|(share, read)| *read >= share.limit);
            open = later.into_iter().chain(full.map(|(share, _)| share.partition)).collect();
        }
        Ok(())
    }

    /// With less room than partitions: those first that seem to have something new. Those that do
    /// not come behind them, since only a read is certain.
    async fn likely(&self, taking: &mut Taking<'_>, partitions: &[u32]) -> Result<Vec<u32>> {
        let shares: Vec<Share> =
            partitions.iter().map(|&partition| Share { partition, lease: "".into(), limit: 0 }).collect();
        let call = self.begin_call(taking, &shares);
        let states = self.begun(taking, &shares, self.connection.script(call, Effect::None).await?).await?;
        let (mut ready, rest): (Vec<_>, Vec<_>) =
            partitions.iter().copied().zip(states).partition(|(_, new)| *new);
        ready.extend(rest);
        Ok(ready.into_iter().map(|(partition, _)| partition).collect())
    }

    /// Reads and leases each share's new entries in one transaction. Returns how many were read.
    async fn read_new(&self, taking: &mut Taking<'_>, shares: &[Share]) -> Result<Vec<usize>> {
        let partitions = self.partitions_of(&taking.request.group.stream).await?;
        let pipe = self.read_pipe(taking, partitions, shares);
        let answer = self.connection.transaction_bytes(&pipe, Effect::None).await?;
        let mut answer = Reader::new(&answer);
        if answer.array()? != shares.len() + 2 {
            return Err(reply::unexpected("a claim's transaction"));
        }
        let begun = resp::value(answer.part()?)?;
        let reads = shares.iter().map(|_| answer.part()).collect::<Result<Vec<_>>>()?;
        let leased = resp::value(answer.part()?)?;
        let unknown = is_unknown_script(&begun) || is_unknown_script(&leased);
        if unknown {
            self.connection.load_scripts().await?;
        } else {
            self.begun(taking, shares, begun).await?;
        }

        let entries = reads.into_iter().map(rows::read).collect::<Result<Vec<_>>>()?;
        let counts = entries.iter().map(Vec::len).collect();
        let rows = match leased {
            Value::ServerError(_) if unknown => vec![Value::Nil; shares.len()],
            // Out of memory between the two: what was read stays pending without a lease, and the
            // sweep finds it. It is never handed out so.
            Value::ServerError(error) => return Err(server_error(&error)),
            leased => array(leased)?,
        };
        for ((share, entries), row) in shares.iter().zip(entries).zip(rows) {
            if !entries.is_empty() {
                self.accept(taking, partitions, share, entries, row).await?;
            }
        }
        Ok(counts)
    }

    fn read_pipe(&self, taking: &Taking<'_>, partitions: u32, shares: &[Share]) -> Pipeline {
        let request = taking.request;
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.add_command(self.begin_call(taking, shares));
        for share in shares {
            pipe.cmd("XREADGROUP").arg("GROUP").arg(request.group.group.as_str()).arg(request.consumer);
            pipe.arg("COUNT").arg(share.limit).arg("STREAMS");
            pipe.arg(self.keys.entries(&request.group.stream, share.partition)).arg(">");
        }
        pipe.add_command(self.lease_call(
            taking,
            partitions,
            shares.iter().map(|share| (share, Found::default())),
        ));
        pipe
    }

    fn begin_call(&self, taking: &Taking<'_>, shares: &[Share]) -> redis::Cmd {
        let (group, stream) = (taking.request.group, &taking.request.group.stream);
        let mut keys = vec![self.keys.meta(stream), self.keys.group(group), self.keys.note(group)];
        for share in shares {
            keys.push(self.keys.entries(stream, share.partition));
            keys.push(self.keys.index(stream, share.partition));
            keys.push(self.keys.due(group, share.partition));
            keys.push(self.keys.suspects(group, share.partition));
        }
        let mut call = Script::Begin.call(&keys);
        call.arg(group.group.as_str());
        for share in shares {
            call.arg(share.partition).arg(&*share.lease);
        }
        call
    }

    /// A call that leases entries: those that it finds behind the note, or those that are given.
    fn lease_call<'s>(
        &self,
        taking: &Taking<'_>,
        partitions: u32,
        shares: impl Iterator<Item = (&'s Share, Found<'s>)> + Clone,
    ) -> redis::Cmd {
        let (request, group) = (taking.request, taking.request.group);
        let mut keys = vec![self.keys.group(group), self.keys.note(group)];
        for (share, _) in shares.clone() {
            keys.push(self.keys.entries(&group.stream, share.partition));
            keys.push(self.keys.index(&group.stream, share.partition));
            keys.push(self.keys.done(group, share.partition));
            keys.push(self.keys.due(group, share.partition));
            keys.push(self.keys.suspects(group, share.partition));
            keys.push(self.keys.redriven(group, share.partition));
        }
        let mut call = Script::Lease.call(&keys);
        call.arg(group.group.as_str()).arg(request.consumer).arg(millis(request.lease));
        call.arg(self.keys.fences(group)).arg(partitions);
        for (share, found) in shares {
            call.arg(share.partition).arg(&*share.lease).arg(share.limit);
            call.arg(found.read.len()).arg(found.strays.len());
            for entry in found.read {
                call.arg(entry.id);
            }
            call.arg(found.strays);
        }
        call
    }

    /// Reads the answer of `begin.lua`: learns what is parked and suspect, restores a lost group, goes
    /// on with a rewind.
    /// Returns for each share whether there may be something new.
    async fn begun(&self, taking: &mut Taking<'_>, shares: &[Share], answer: Value) -> Result<Vec<bool>> {
        let group = taking.request.group;
        let mut answer = array(checked(answer)?)?.into_iter();
        let mut next = || answer.next().unwrap_or(Value::Nil);
        match code(next())? {
            Code::Ok => {}
            Code::GroupNotFound => return Err(Error::GroupNotFound(group.clone())),
            _ => {
                self.forget(&group.stream);
                return Err(Error::StreamNotFound(group.stream.clone()));
            }
        }
        let partitions = number_or_zero(next())?;
        if partitions != i64::from(self.partitions_of(&group.stream).await?) {
            self.forget(&group.stream);
        }
        let now = number_or_zero(next())?;
        taking.claimed.suspects |= number_or_zero(next())? == 1;
        let (mut news, mut lost, mut rewinding) = (Vec::with_capacity(shares.len()), Vec::new(), false);
        for share in shares {
            let state = number_or_zero(next())?;
            let due = number_or_zero(next())?;
            taking.state.learn_due(share.partition, (due >= 0).then_some(due - now));
            if state == 2 {
                lost.push(share.partition);
            }
            rewinding |= state == 3;
            news.push(state != 0);
        }
        if !lost.is_empty() {
            self.restore(group, &lost).await?;
        }
        // Whoever began it may have died: a claim does its part. A deleted group is gone then.
        if rewinding && self.rewind_step(group).await?.deleted {
            return Err(Error::GroupNotFound(group.clone()));
        }
        Ok(news)
    }

    /// Takes in one partition's entries as far as they are leased: `row` is the answer of `lease.lua`.
    async fn accept(
        &self,
        taking: &mut Taking<'_>,
        partitions: u32,
        share: &Share,
        entries: Vec<Row<'_>>,
        row: Value,
    ) -> Result<()> {
        let mut lease = LeaseRow::parse(row)?;
        if !lease.is_of(&entries) {
            // The script did not run, or not on these: lease them by name. No entry without a lease.
            let strays = lease.strays(&entries);
            let found = Found { read: &entries, strays: &strays };
            let call = self.lease_call(taking, partitions, std::iter::once((share, found)));
            let rows = array(self.connection.script(call, Effect::None).await?)?;
            lease = LeaseRow::parse(rows.into_iter().next().unwrap_or(Value::Nil))?;
            if lease.letters.len() != entries.len() {
                return Err(reply::unexpected("leases"));
            }
        }
        let letters = std::mem::take(&mut lease.letters);
        for (entry, letter) in entries.into_iter().zip(letters.bytes()) {
            let (attempt, exhausted) = match letter {
                b'1' => (1, None),
                b'L' => (lease.next_extra()?.0, None),
                b'E' => {
                    let (attempt, holder, failure) = lease.next_extra()?;
                    (attempt, Some((holder, failure)))
                }
                b'S' => {
                    taking.claimed.suspects = true;
                    continue;
                }
                _ => continue,
            };
            let lease = Arc::clone(&share.lease);
            let held = Held { partition: share.partition, id: entry.id.into(), lease, attempt, exhausted };
            taking.take(held, entry.fields);
        }
        Ok(())
    }

    /// Makes dead letters of what the claim has leased for that. What cannot be written now stays
    /// under its lease, and comes again when that has run out.
    async fn bury(&self, taking: &mut Taking<'_>) {
        let deaths = std::mem::take(&mut taking.deaths);
        if deaths.is_empty() {
            return;
        }
        let items: Vec<_> = deaths.iter().map(|d| (&d.settlement, d.consumer.as_str())).collect();
        match self.settle_items(taking.request.group, &items).await {
            Ok(settled) => {
                let buried =
                    deaths.into_iter().zip(settled).filter(|(_, s)| *s == crate::backend::Settled::Done);
                taking.claimed.dead_lettered.extend(buried.map(|(death, _)| death.report));
            }
            Err(error) => {
                tracing::warn!(%error, group = %taking.request.group, "dead letters could not be written");
            }
        }
    }
}

impl Taking<'_> {
    /// Takes in one leased entry: as an event, or to be made a dead letter. One that was deleted is
    /// answered without fields, or not at all.
    pub(super) fn take<'f>(&mut self, held: Held, fields: impl Iterator<Item = Field<'f>> + Clone) {
        self.room = self.room.saturating_sub(1);
        if fields.clone().next().is_none() {
            let reason = "its body is gone from the log".to_owned();
            self.doom(held, fields, Cause::Missing, reason);
            return;
        }
        if let Some((holder, failure)) = &held.exhausted {
            let reason = match failure {
                Some(FailureKind::Expired) | None => {
                    format!(
                        "attempt {}, the last one, brought no answer: the lease of `{holder}` ran out",
                        held.attempt
                    )
                }
                Some(_) => format!("its {} attempts are used up", held.attempt),
            };
            self.doom(held, fields, Cause::AttemptsExhausted, reason);
            return;
        }
        match codec::decode(&self.request.group.stream, held.partition, fields.clone()) {
            Ok(event) => {
                let lease = Lease {
                    id: held.lease,
                    receipt: held.id,
                    partition: held.partition,
                    sequence: event.sequence,
                    attempt: held.attempt,
                };
                self.claimed.leased.push(Leased { event, lease });
            }
            Err(why) => self.doom(held, fields, Cause::Undecodable, why),
        }
    }

    fn doom<'f>(
        &mut self,
        held: Held,
        fields: impl Iterator<Item = Field<'f>> + Clone,
        cause: Cause,
        reason: String,
    ) {
        let (sequence, event_id) = (codec::raw_sequence(fields.clone()), codec::raw_id(fields));
        let (consumer, failure) = match held.exhausted {
            Some((holder, failure)) => (holder, Some(failure.unwrap_or(FailureKind::Expired))),
            None => (self.request.consumer.to_owned(), None),
        };
        let lease = Lease {
            id: held.lease,
            receipt: held.id,
            partition: held.partition,
            sequence: sequence.unwrap_or(0),
            attempt: held.attempt,
        };
        let verdict = Verdict::DeadLetter { cause, reason: reason.clone(), failure };
        let report = ClaimDeath { partition: held.partition, sequence, event_id, cause, reason };
        self.deaths.push(Death { settlement: Settlement { lease, verdict, plugin: None }, consumer, report });
    }
}

/// What a claim read in a partition, and what was leased there although the log has it no more.
#[derive(Clone, Copy, Default)]
struct Found<'a> {
    read: &'a [Row<'a>],
    strays: &'a [String],
}

/// One partition's part of the answer of `lease.lua`.
#[derive(Default)]
struct LeaseRow {
    ids: String,
    letters: String,
    extra: std::vec::IntoIter<Value>,
}

impl LeaseRow {
    fn parse(row: Value) -> Result<Self> {
        let mut extra = array(row)?.into_iter();
        let mut next = || text_or_empty(extra.next().unwrap_or(Value::Nil));
        let (ids, letters) = (next()?, next()?);
        Ok(Self { ids, letters, extra })
    }

    fn ids(&self) -> impl Iterator<Item = &str> {
        self.ids.split(' ').filter(|id| !id.is_empty())
    }

    /// Whether the script decided on just these entries, and on each of them.
    fn is_of(&self, entries: &[Row<'_>]) -> bool {
        self.letters.len() == entries.len()
            && !self.letters.contains('X')
            && self.ids().eq(entries.iter().map(|entry| entry.id))
    }

    /// What it gave a first lease and was not read.
    fn strays(&self, entries: &[Row<'_>]) -> Vec<String> {
        let read: HashSet<&str> = entries.iter().map(|entry| entry.id).collect();
        let leased = self.ids().zip(self.letters.bytes()).filter(|(_, letter)| *letter == b'1');
        leased.map(|(id, _)| id).filter(|id| !read.contains(id)).map(str::to_owned).collect()
    }

    /// Attempt, former holder and former failure of the next L or E.
    fn next_extra(&mut self) -> Result<(u32, String, Option<FailureKind>)> {
        let mut next = || self.extra.next().unwrap_or(Value::Nil);
        let attempt = attempt_number(next())?;
        let holder = text_or_empty(next())?;
        Ok((attempt, holder, FailureKind::parse(&text_or_empty(next())?)))
    }
}
