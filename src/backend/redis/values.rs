//! What handlers keep, and acks that carry effects.

use std::collections::HashMap;

use redis::{Cmd, Value};

use super::Redis;
use super::append::add_event;
use super::connection::Effect;
use super::reply::{array, bytes, checked, text_or_empty, unexpected};
use super::scripts::Script;
use super::settle::{add_lease, split};
use crate::backend::{Error, ErrorClass, Refusal, Result, STATE_KEYS_MAX, Settled};
use crate::event::{GroupKey, Name, random_id};
use crate::outcome::{Effects, Settlement, StagedEvent, Verdict};
use crate::routing::partition_for_key;
use crate::state::{Bucket, StateKeys, StateValue};

/// Keys that a step of the walk over a bucket visits, as a hint to the server. Their values come
/// along, and each can have a megabyte.
const KEYS_STEP: usize = 50;

/// How often an item is sent again because a stream turned out to have other partitions.
const ROUTES_MAX: usize = 2;

/// What a command costs the server, as if it were so many bytes: a call of a megabyte is to stay short
/// also where it consists of many small things.
const APPEND_WEIGHT: usize = 1024;
const STATE_WEIGHT: usize = 128;

/// What is committed with a verdict.
pub(super) fn effects(verdict: &Verdict) -> Option<&Effects> {
    match verdict {
        Verdict::Ack(effects) if !effects.is_empty() => Some(effects),
        _ => None,
    }
}

impl Redis {
    pub(super) async fn do_state(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>> {
        if keys.len() > STATE_KEYS_MAX {
            return Err(Error::BatchTooLarge { items: keys.len(), max: STATE_KEYS_MAX });
        }
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = redis::cmd("HMGET");
        get.arg(self.keys.state(bucket)).arg(keys);
        let values = self.connection.call(&get, Effect::None).await;
        let values = self.blame(values, || vec![(self.keys.state(bucket), "hash")]).await?;
        array(values)?.into_iter().map(|value| self.parse_value(bucket, value)).collect()
    }

    fn parse_value(&self, bucket: &Bucket, value: Value) -> Result<Option<StateValue>> {
        let Some(mut stored) = bytes(value)? else { return Ok(None) };
        let colon = stored.iter().position(|byte| *byte == b':');
        let version = colon
            .and_then(|colon| std::str::from_utf8(&stored[..colon]).ok())
            .and_then(|version| version.parse::<u64>().ok());
        let (Some(colon), Some(version)) = (colon, version) else {
            let key = self.keys.state(bucket);
            return Err(Error::WrongType { key, detail: "a value in it has no version".to_owned() });
        };
        Ok(Some(StateValue { version, bytes: stored.split_off(colon + 1) }))
    }

    pub(super) async fn do_state_keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys> {
        let mut scan = redis::cmd("HSCAN");
        scan.arg(self.keys.state(bucket)).arg(cursor.unwrap_or(0)).arg("COUNT").arg(KEYS_STEP);
        let answer = self.connection.call(&scan, Effect::None).await;
        let answer = self.blame(answer, || vec![(self.keys.state(bucket), "hash")]).await?;
        let mut answer = array(answer)?.into_iter();
        let cursor = text_or_empty(answer.next().unwrap_or(Value::Nil))?;
        let cursor = cursor.parse::<u64>().map_err(|_| unexpected("a cursor"))?;
        let rows = array(answer.next().unwrap_or(Value::Nil))?;
        let keys = rows.into_iter().step_by(2).map(text_or_empty).collect::<Result<_>>()?;
        Ok(StateKeys { keys, cursor: (cursor != 0).then_some(cursor) })
    }

    /// Acks with their effects.
    pub(super) async fn commit_items(&self, group: &GroupKey, items: &[&Settlement]) -> Result<Vec<Settled>> {
        let mut settled = vec![Settled::Stale; items.len()];
        let mut left: Vec<usize> = (0..items.len()).collect();
        // Once more for those whose target streams have changed under us.
        for round in 0..ROUTES_MAX {
            let answers = self.commit_round(group, items, &left, &mut settled).await;
            let answers = answers.map_err(|error| if round > 0 { partly(error) } else { error })?;
            left.clear();
            for (place, answer) in answers {
                match answer {
                    Some(answer) => settled[place] = answer,
                    None => {
                        settled[place] = Settled::Refused(Refusal::PartitionNotFound);
                        left.push(place);
                    }
                }
            }
            if left.is_empty() {
                break;
            }
        }
        Ok(settled)
    }

    /// Sends those of the items that can be; `None` for one whose streams have other partitions than was
    /// thought.
    async fn commit_round(
        &self,
        group: &GroupKey,
        items: &[&Settlement],
        places: &[usize],
        settled: &mut [Settled],
    ) -> Result<Vec<(usize, Option<Settled>)>> {
        let (ready, routes) = self.routed(items, places, settled).await?;
        self.commit_ready(group, items, &ready, &routes).await
    }

    /// Which of the items can be sent, and how many partitions their streams have. What cannot be is
    /// refused here.
    async fn routed(
        &self,
        items: &[&Settlement],
        places: &[usize],
        settled: &mut [Settled],
    ) -> Result<(Vec<usize>, HashMap<Name, u32>)> {
        let (mut ready, mut routes) = (Vec::with_capacity(places.len()), HashMap::new());
        for &place in places {
            let Some(effects) = effects(&items[place].verdict) else { continue };
            let mut refused = None;
            for staged in &effects.appends {
                refused = self.route(staged, &mut routes).await?;
                if refused.is_some() {
                    break;
                }
            }
            match refused {
                Some(refusal) => settled[place] = Settled::Refused(refusal),
                None => ready.push(place),
            }
        }
        Ok((ready, routes))
    }

    /// Why this event cannot be appended, as far as that is known here. Learns of its stream.
    async fn route(&self, staged: &StagedEvent, routes: &mut HashMap<Name, u32>) -> Result<Option<Refusal>> {
        let StagedEvent { stream, event } = staged;
        if event.check(self.event_bytes_max).is_err() {
            return Ok(Some(Refusal::EventTooLarge));
        }
        let fits = |partitions: u32| event.partition.is_none_or(|p| p < partitions);
        match routes.get(stream) {
            Some(partitions) if fits(*partitions) => return Ok(None),
            // It may have more by now.
            Some(_) => self.forget(stream),
            None => {}
        }
        for _ in 0..2 {
            match self.partitions_of(stream).await {
                Ok(partitions) => {
                    routes.insert(stream.clone(), partitions);
                    if fits(partitions) {
                        return Ok(None);
                    }
                    self.forget(stream);
                }
                Err(Error::StreamNotFound(_)) => return Ok(Some(Refusal::StreamNotFound)),
                Err(Error::WrongType { .. }) => return Ok(Some(Refusal::WrongType)),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(Refusal::PartitionNotFound))
    }

    async fn commit_ready(
        &self,
        group: &GroupKey,
        items: &[&Settlement],
        ready: &[usize],
        routes: &HashMap<Name, u32>,
    ) -> Result<Vec<(usize, Option<Settled>)>> {
        let own = self.partitions_of(&group.stream).await?;
        let parts = split(ready.iter().map(|&place| (items[place].lease.partition, weight(items[place]))));
        let calls = parts.iter().map(|(p, places)| {
            let mut call = self.commit_call(group, *p);
            for &at in places {
                add_item(&mut call, items[ready[at]], own, routes);
            }
            call
        });
        let calls: Vec<Cmd> = calls.collect();
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers = Vec::with_capacity(ready.len());
        let values = self.connection.scripts(calls, Effect::Write).await?;
        let written = values.iter().any(|value| !matches!(value, Value::ServerError(_)));
        for ((p, places), value) in parts.iter().zip(values) {
            let letters = self.blame(checked(value), || self.typed_keys(group, &[*p])).await;
            let letters = letters.map_err(|error| if written { partly(error) } else { error })?;
            let letters = text_or_empty(letters)?;
            if letters.is_empty() {
                return Err(self.missing(group).await);
            }
            if letters.len() != places.len() {
                return Err(unexpected("answers to commits"));
            }
            if letters.contains('e') {
                return Err(Error::Ambiguous("the store refused a step of a commit".to_owned()));
            }
            for (&at, letter) in places.iter().zip(letters.bytes()) {
                let item = items[ready[at]];
                answers.push((ready[at], self.committed(letter, item)));
            }
        }
        Ok(answers)
    }

    fn committed(&self, letter: u8, item: &Settlement) -> Option<Settled> {
        let streams = || effects(&item.verdict).into_iter().flat_map(|effects| &effects.appends);
        Some(match letter {
            b'd' => Settled::Done,
            b'm' => Settled::ReceiptMismatch,
            b'c' => Settled::Conflict,
            b'w' => Settled::Refused(Refusal::WrongType),
            b'x' | b'r' => {
                streams().for_each(|staged| self.forget(&staged.stream));
                if letter == b'r' {
                    return None;
                }
                Settled::Refused(Refusal::StreamNotFound)
            }
            _ => Settled::Stale,
        })
    }

    fn commit_call(&self, group: &GroupKey, p: u32) -> Cmd {
        let keys = [
            self.keys.group(group),
            self.keys.entries(&group.stream, p),
            self.keys.index(&group.stream, p),
            self.keys.done(group, p),
            self.keys.suspects(group, p),
            self.keys.note(group),
            self.keys.redriven(group, p),
            self.keys.copies(group, p),
            self.keys.versions(),
        ];
        let mut call = self.fenced(Script::Commit, &keys);
        call.arg(group.group.as_str()).arg(p).arg(self.keys.fences(group)).arg(self.keys.prefix());
        call
    }
}

/// The error of a part, where other parts' items are written: so it is not true that nothing was.
fn partly(error: Error) -> Error {
    match error.class() {
        ErrorClass::Retry => Error::Ambiguous(error.to_string()),
        _ => error,
    }
}

fn weight(item: &Settlement) -> usize {
    effects(&item.verdict).map_or(0, |effects| {
        effects.bytes()
            + APPEND_WEIGHT * effects.appends.len()
            + STATE_WEIGHT * (effects.reads.len() + effects.writes.len())
    })
}

/// One item of `commit.lua`.
fn add_item(call: &mut Cmd, item: &Settlement, partitions: u32, routes: &HashMap<Name, u32>) {
    let Some(effects) = effects(&item.verdict) else { return };
    add_lease(call, 'a', &item.lease, partitions);
    call.arg(effects.reads.len()).arg(effects.writes.len()).arg(effects.appends.len());
    for read in &effects.reads {
        call.arg(read.bucket.as_str()).arg(&read.key).arg(read.version);
    }
    for write in &effects.writes {
        call.arg(write.bucket.as_str()).arg(&write.key);
        match &write.value {
            Some(value) => call.arg("s").arg(value.as_slice()),
            None => call.arg("d").arg(""),
        };
    }
    for staged in &effects.appends {
        let event = &staged.event;
        let count = routes.get(&staged.stream).copied().unwrap_or(1);
        let partition = event.partition.unwrap_or_else(|| partition_for_key(event.key.as_deref(), count));
        call.arg(staged.stream.as_str()).arg(count).arg(partition);
        match &event.id {
            Some(id) => add_event(call, event, id),
            None => add_event(call, event, &random_id()),
        }
    }
}
