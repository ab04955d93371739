//! Settle and renew: one script for the items of each partition.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Cmd;

use super::connection::Effect;
use super::reply::{self, checked, proves, text_or_empty};
use super::scripts::Script;
use super::values::effects;
use super::{Redis, millis};
use crate::backend::{Error, ErrorClass, Result, SETTLE_BATCH_MAX, SettleRequest, Settled};
use crate::event::{GroupKey, Lease};
use crate::outcome::{Settlement, Verdict};

/// Arguments of one call, in bytes: a step of the server must stay short. An item alone may be larger.
const CALL_BYTES_MAX: usize = 1024 * 1024;

/// A part of a batch: the places of its items, and their partition.
pub(super) type Part = (u32, Vec<usize>);

impl Redis {
    pub(super) async fn do_settle(&self, request: &SettleRequest<'_>) -> Result<Vec<Settled>> {
        check_size(request.settlements.len())?;
        let settled = self.settle_all(request).await?;
        let state = self.state_of(request.group);
        for (item, settled) in request.settlements.iter().zip(&settled) {
            match &item.verdict {
                Verdict::Retry { delay, .. } if *settled == Settled::Done => {
                    state.park(item.lease.partition, *delay);
                }
                Verdict::Release if *settled == Settled::Done => {
                    state.park(item.lease.partition, Duration::ZERO);
                }
                _ => {}
            }
        }
        Ok(settled)
    }

    /// Acks with effects go one way, everything else another.
    async fn settle_all(&self, request: &SettleRequest<'_>) -> Result<Vec<Settled>> {
        let (with, without): (Vec<usize>, Vec<usize>) = (0..request.settlements.len())
            .partition(|&place| effects(&request.settlements[place].verdict).is_some());
        let plain: Vec<_> =
            without.iter().map(|&place| (&request.settlements[place], request.consumer)).collect();
        let plain = self.settle_items(request.group, &plain).await?;
        if with.is_empty() {
            return Ok(plain);
        }
        let commits: Vec<_> = with.iter().map(|&place| &request.settlements[place]).collect();
        let commits =
            self.commit_items(request.group, &commits).await.map_err(|error| match error.class() {
                // The others are written already.
                ErrorClass::Retry if !without.is_empty() => Error::Ambiguous(error.to_string()),
                _ => error,
            })?;
        let mut settled = vec![Settled::Stale; request.settlements.len()];
        for (place, answer) in with.into_iter().zip(commits).chain(without.into_iter().zip(plain)) {
            settled[place] = answer;
        }
        Ok(settled)
    }

    /// Settles items, each with the consumer that had it last.
    pub(super) async fn settle_items(
        &self,
        group: &GroupKey,
        items: &[(&Settlement, &str)],
    ) -> Result<Vec<Settled>> {
        let partitions = self.partitions_of(&group.stream).await?;
        let mut parts = split(items.iter().map(|(item, _)| (item.lease.partition, item_bytes(item))));
        for (_, places) in &mut parts {
            // Events that were claimed together have a lease id in common, and stand together then.
            places.sort_by_key(|&place| items[place].0.lease.sequence);
        }
        let calls = parts.iter().map(|(p, places)| {
            let keys = [
                self.keys.group(group),
                self.keys.entries(&group.stream, *p),
                self.keys.index(&group.stream, *p),
                self.keys.done(group, *p),
                self.keys.due(group, *p),
                self.keys.suspects(group, *p),
                self.keys.dead_letters(group),
                self.keys.note(group),
                self.keys.redriven(group, *p),
                self.keys.copies(group, *p),
            ];
            let mut call = self.fenced(Script::Settle, &keys);
            call.arg(group.group.as_str()).arg(*p).arg(self.keys.fences(group));
            call.arg(places.iter().map(|&place| letter(items[place].0, partitions)).collect::<String>());
            for run in places.chunk_by(|&a, &b| items[a].0.lease.id == items[b].0.lease.id) {
                call.arg(&*items[run[0]].0.lease.id).arg(run.len());
                for &place in run {
                    let (item, consumer) = items[place];
                    add_item(&mut call, item, consumer);
                }
            }
            call
        });
        self.answers(group, items.len(), &parts, calls.collect()).await
    }

    pub(super) async fn do_renew(
        &self,
        group: &GroupKey,
        leases: &[Lease],
        lease: Duration,
    ) -> Result<Vec<Settled>> {
        check_size(leases.len())?;
        let partitions = self.partitions_of(&group.stream).await?;
        let parts = split(leases.iter().map(|lease| (lease.partition, 64)));
        let calls = parts.iter().map(|(p, places)| {
            let keys = [
                self.keys.group(group),
                self.keys.entries(&group.stream, *p),
                self.keys.index(&group.stream, *p),
                self.keys.suspects(group, *p),
                self.keys.note(group),
            ];
            let mut call = self.fenced(Script::Renew, &keys);
            call.arg(group.group.as_str()).arg(*p).arg(self.keys.fences(group)).arg(millis(lease));
            for &place in places {
                add_lease(&mut call, 'r', &leases[place], partitions);
            }
            call
        });
        self.answers(group, leases.len(), &parts, calls.collect()).await
    }

    /// Sends the calls and puts each answer at its item's place.
    async fn answers(
        &self,
        group: &GroupKey,
        items: usize,
        parts: &[Part],
        calls: Vec<Cmd>,
    ) -> Result<Vec<Settled>> {
        let mut settled = vec![Settled::Stale; items];
        if calls.is_empty() {
            return Ok(settled);
        }
        let mut written = false;
        for ((p, places), value) in parts.iter().zip(self.connection.scripts(calls, Effect::Write).await?) {
            let letters = self.blame(checked(value), || self.typed_keys(group, &[*p])).await;
            // Where another partition's items are written, it is not true that nothing was.
            let letters = text_or_empty(letters.map_err(|error| match error.class() {
                ErrorClass::Retry if written => Error::Ambiguous(error.to_string()),
                _ => error,
            })?)?;
            written = true;
            if letters.is_empty() {
                return Err(self.missing(group).await);
            }
            if letters.len() != places.len() {
                return Err(reply::unexpected("answers to settlements"));
            }
            for (&place, letter) in places.iter().zip(letters.bytes()) {
                settled[place] = match letter {
                    b'd' => Settled::Done,
                    b'm' => Settled::ReceiptMismatch,
                    _ => Settled::Stale,
                };
            }
        }
        Ok(settled)
    }
}

fn check_size(items: usize) -> Result<()> {
    if items > SETTLE_BATCH_MAX {
        return Err(Error::BatchTooLarge { items, max: SETTLE_BATCH_MAX });
    }
    Ok(())
}

/// The items by partition, in parts of bounded size.
pub(super) fn split(items: impl Iterator<Item = (u32, usize)>) -> Vec<Part> {
    let mut open: BTreeMap<u32, (Vec<usize>, usize)> = BTreeMap::new();
    let mut parts = Vec::new();
    for (place, (partition, bytes)) in items.enumerate() {
        let (places, size) = open.entry(partition).or_default();
        if !places.is_empty() && (*size + bytes > CALL_BYTES_MAX || places.len() >= SETTLE_BATCH_MAX) {
            parts.push((partition, std::mem::take(places)));
            *size = 0;
        }
        places.push(place);
        *size += bytes;
    }
    parts.extend(open.into_iter().map(|(partition, (places, _))| (partition, places)));
    parts
}

fn item_bytes(item: &Settlement) -> usize {
    let reason = match &item.verdict {
        Verdict::Retry { reason, .. } | Verdict::DeadLetter { reason, .. } => reason.len(),
        Verdict::Ack(_) | Verdict::Release => 0,
    };
    128 + reason
}

/// The letter of a verdict or a renewal as the scripts take it: small where the entry id proves the
/// sequence.
fn proven(letter: char, lease: &Lease, partitions: u32) -> char {
    // What a fence says of an entry that no one holds is no lease's token: the script looks closer.
    let token = !matches!(&*lease.id, "" | "parked");
    let proven = token && proves(&lease.receipt, lease.sequence, partitions, lease.partition);
    if proven { letter } else { letter.to_ascii_uppercase() }
}

/// What each item of a renewal or a commit begins with.
pub(super) fn add_lease(call: &mut Cmd, letter: char, lease: &Lease, partitions: u32) {
    let letter = proven(letter, lease, partitions);
    call.arg(letter.to_string()).arg(&*lease.receipt).arg(lease.sequence).arg(&*lease.id);
}

/// The letter of an item of `settle.lua`.
fn letter(item: &Settlement, partitions: u32) -> char {
    let letter = match &item.verdict {
        Verdict::Ack(_) => 'a',
        Verdict::Release => 'l',
        Verdict::Retry { .. } => 'r',
        Verdict::DeadLetter { .. } => 'd',
    };
    proven(letter, &item.lease, partitions)
}

/// One item of `settle.lua`.
fn add_item(call: &mut Cmd, item: &Settlement, consumer: &str) {
    let lease = &item.lease;
    call.arg(&*lease.receipt).arg(lease.sequence);
    match &item.verdict {
        Verdict::Ack(_) => {}
        Verdict::Release => {
            call.arg(lease.attempt.saturating_sub(1));
        }
        Verdict::Retry { delay, reason, failure } => {
            // A delay of nothing is due at once: no least time here.
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).min(1 << 50);
            call.arg(delay_ms).arg(failure.as_str()).arg(reason);
        }
        Verdict::DeadLetter { cause, reason, failure } => {
            call.arg(reason).arg(cause.as_str()).arg(failure.map_or("", |failure| failure.as_str()));
            call.arg(lease.attempt).arg(consumer).arg(item.plugin.as_deref().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_and_keep_their_order() {
        let parts = split([(1, 10), (0, CALL_BYTES_MAX), (1, 10), (0, 10)].into_iter());
        assert_eq!(parts, [(0, vec![1]), (0, vec![3]), (1, vec![0, 2])]);
        let many = split((0..600).map(|_| (0, 1)));
        assert_eq!(many.iter().map(|(_, places)| places.len()).collect::<Vec<_>>(), [256, 256, 88]);
    }
}
