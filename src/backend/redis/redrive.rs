//! Dead letters and settled events are delivered again, and dead letters go.

use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::Effect;
use super::groups::code;
use super::reply::{self, Answers, array, checked, count, parse_id, text_or_empty};
use super::scripts::{Code, Script};
use super::{Redis, codec};
use crate::backend::{DeadEvent, Error, REDRIVE_BATCH_MAX, Redriven, Result};
use crate::event::GroupKey;

/// The consumer under whose name redriven events wait in the pending list.
pub(super) const REDRIVER: &str = "redrive";
/// Rows and bytes of one step: a step of the server must stay short.
const ROWS_MAX: usize = 25;
const BYTES_MAX: usize = 1024 * 1024;

/// A dead letter that holds an event.
struct Row {
    /// Its place in the request.
    place: usize,
    id: String,
    partition: u32,
    sequence: u64,
    /// The entry that it says the event stood in.
    receipt: String,
    bytes: usize,
}

impl Redis {
    pub(super) async fn do_purge(&self, group: &GroupKey, rows: &[String]) -> Result<u64> {
        check_size(rows.len())?;
        let ids: Vec<&String> = rows.iter().filter(|row| parse_id(row).is_some()).collect();
        let mut ask = redis::cmd("HLEN");
        ask.arg(self.keys.group(group));
        let keys = || vec![(self.keys.group(group), "hash"), (self.keys.dead_letters(group), "stream")];
        let answer = self.connection.call(&ask, Effect::None).await;
        if count(self.blame(answer, keys).await?)? == 0 {
            return Err(self.missing(group).await);
        }
        if ids.is_empty() {
            return Ok(0);
        }
        let mut purge = redis::cmd("XDEL");
        purge.arg(self.keys.dead_letters(group)).arg(ids);
        let answer = self.connection.call(&purge, Effect::Write).await;
        count(self.blame(answer, keys).await?)
    }

    pub(super) async fn do_redrive(&self, group: &GroupKey, rows: &[String]) -> Result<Vec<Redriven>> {
        check_size(rows.len())?;
        let mut redriven = vec![Redriven::Gone; rows.len()];
        let found = self.dead_rows(group, rows, &mut redriven).await?;
        let mut found = found.as_slice();
        while !found.is_empty() {
            let mut bytes = 0;
            let fits = found.iter().take(ROWS_MAX).take_while(|row| {
                bytes += row.bytes;
                bytes <= BYTES_MAX
            });
            let (some, rest) = found.split_at(fits.count().max(1));
            found = rest;
            let partitions = distinct(some.iter().map(|row| row.partition));
            let all = self.partitions_of(&group.stream).await?;
            let mut call = self.again_call(Script::Redrive, group, &partitions, Some(all));
            for row in some {
                call.arg(&row.id).arg(number_of(&partitions, row.partition)).arg(row.sequence);
                call.arg(&row.receipt);
            }
            let answers = self.again(group, &partitions, call).await?;
            for (row, answer) in some.iter().zip(answers) {
                redriven[row.place] = answer;
            }
        }
        Ok(redriven)
    }

    pub(super) async fn do_redeliver(
        &self,
        group: &GroupKey,
        events: &[(u32, u64)],
    ) -> Result<Vec<Redriven>> {
        check_size(events.len())?;
        if let Some(highest) = events.iter().map(|&(p, _)| p).max() {
            self.check_partition(&group.stream, highest).await?;
        }
        let mut redriven = Vec::with_capacity(events.len());
        for some in events.chunks(ROWS_MAX) {
            let partitions = distinct(some.iter().map(|&(p, _)| p));
            let mut call = self.again_call(Script::Redeliver, group, &partitions, None);
            for &(p, sequence) in some {
                call.arg(number_of(&partitions, p)).arg(sequence);
            }
            redriven.extend(self.again(group, &partitions, call).await?);
        }
        Ok(redriven)
    }

    /// Those of the rows that hold an event. Of the others it is noted why not.
    async fn dead_rows(
        &self,
        group: &GroupKey,
        rows: &[String],
        redriven: &mut [Redriven],
    ) -> Result<Vec<Row>> {
        let partitions = self.partitions_of(&group.stream).await?;
        let mut pipe = redis::pipe();
        pipe.cmd("HLEN").arg(self.keys.group(group));
        let mut places = Vec::new();
        for (place, row) in rows.iter().enumerate().filter(|(_, row)| parse_id(row).is_some()) {
            pipe.cmd("XRANGE").arg(self.keys.dead_letters(group)).arg(row).arg(row);
            places.push(place);
        }
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let keys = || vec![(self.keys.group(group), "hash"), (self.keys.dead_letters(group), "stream")];
        if count(self.blame(answers.next(), keys).await?)? == 0 {
            return Err(self.missing(group).await);
        }
        let mut found = Vec::with_capacity(places.len());
        for place in places {
            let entries = reply::entries(self.blame(answers.next(), keys).await?)?;
            let Some(entry) = entries.into_iter().next() else { continue };
            redriven[place] = Redriven::NoEvent;
            let bytes = entry.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
            let named = codec::dead_receipt(&entry);
            let id = entry.id.clone();
            if let DeadEvent::Event(event) = codec::decode_dead(&group.stream, entry).event
                && event.partition < partitions
            {
                let (partition, sequence) = (event.partition, event.sequence);
                let receipt = named.filter(|(p, _)| *p == partition).map(|(_, id)| id).unwrap_or_default();
                found.push(Row { place, id, partition, sequence, receipt, bytes });
            }
        }
        Ok(found)
    }

    /// A call of `redrive.lua` or `redeliver.lua`, up to what comes for each row; `all`: the number of
    /// the stream's partitions, for a redrive.
    fn again_call(&self, script: Script, group: &GroupKey, partitions: &[u32], all: Option<u32>) -> Cmd {
        let mut keys = vec![self.keys.group(group), self.keys.note(group)];
        if all.is_some() {
            keys.push(self.keys.dead_letters(group));
        }
        for &p in partitions {
            keys.push(self.keys.entries(&group.stream, p));
            keys.push(self.keys.index(&group.stream, p));
            keys.push(self.keys.done(group, p));
            keys.push(self.keys.due(group, p));
            keys.push(self.keys.suspects(group, p));
            keys.push(self.keys.redriven(group, p));
            keys.push(self.keys.copies(group, p));
        }
        let mut call = script.call(&keys);
        call.arg(group.group.as_str()).arg(REDRIVER).arg(self.keys.fences(group)).arg(all);
        call.arg(partitions.len()).arg(partitions);
        call
    }

    /// Sends such a call, and wakes who waits for something to claim.
    async fn again(&self, group: &GroupKey, partitions: &[u32], call: Cmd) -> Result<Vec<Redriven>> {
        let answer = self.connection.script(call, Effect::Write).await;
        let answer = self.blame(answer, || self.typed_keys(group, partitions)).await?;
        let mut answer = array(answer)?.into_iter();
        let mut next = || answer.next().unwrap_or(Value::Nil);
        match code(next())? {
            Code::Ok => {}
            Code::Rewinding => return Err(Error::RewindUnderWay(group.clone())),
            _ => return Err(self.missing(group).await),
        }
        let answers: Vec<Redriven> = text_or_empty(next())?
            .bytes()
            .map(|letter| match letter {
                b'd' => Redriven::Done,
                b'u' => Redriven::Underway,
                _ => Redriven::Gone,
            })
            .collect();
        if answers.contains(&Redriven::Done) {
            let state = self.state_of(group);
            partitions.iter().for_each(|&p| state.park(p, Duration::ZERO));
        }
        Ok(answers)
    }

    /// The copies that the group has of these entries of its redriven events.
    pub(super) async fn copies(
        &self,
        group: &GroupKey,
        asked: Vec<(u32, String)>,
    ) -> Result<Vec<((u32, String), Vec<(Vec<u8>, Vec<u8>)>)>> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for (p, id) in &asked {
            pipe.cmd("HGET").arg(self.keys.copies(group, *p)).arg(id);
        }
        let mut copies = Vec::new();
        for (place, value) in asked.into_iter().zip(self.connection.pipeline(&pipe, Effect::None).await?) {
            if let Some(fields) = reply::bytes(checked(value)?)?.and_then(|copy| codec::decode_copy(&copy)) {
                copies.push((place, fields));
            }
        }
        Ok(copies)
    }

    /// Redriven events of a partition that the pending list does not name, since their bodies are gone
    /// or the group was lost: entry id and sequence, in no order. Of very many redriven ones only the
    /// first are looked at.
    pub(super) async fn unlisted(&self, group: &GroupKey, partition: u32) -> Result<Vec<(String, u64)>> {
        let keys = [self.keys.entries(&group.stream, partition), self.keys.redriven(group, partition)];
        let mut call = Script::Unlisted.call(&keys);
        call.arg(group.group.as_str());
        let answer = self.connection.script(call, Effect::None).await;
        let answer = self.blame(answer, || self.typed_keys(group, &[partition])).await?;
        let mut items = array(answer)?.into_iter();
        let mut found = Vec::with_capacity(items.len() / 2);
        while let (Some(id), Some(sequence)) = (items.next(), items.next()) {
            found.push((text_or_empty(id)?, count(sequence)?));
        }
        Ok(found)
    }
}

fn check_size(items: usize) -> Result<()> {
    if items > REDRIVE_BATCH_MAX {
        return Err(Error::BatchTooLarge { items, max: REDRIVE_BATCH_MAX });
    }
    Ok(())
}

/// Each partition once.
fn distinct(partitions: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut partitions: Vec<u32> = partitions.collect();
    partitions.sort_unstable();
    partitions.dedup();
    partitions
}

/// The partition's place in a script's list, counted from 1.
fn number_of(partitions: &[u32], partition: u32) -> usize {
    partitions.partition_point(|&p| p < partition) + 1
}
