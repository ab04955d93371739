//! Append: one script for the whole batch.

use std::collections::BTreeMap;

use redis::{Cmd, Value};

use super::Redis;
use super::connection::Effect;
use super::groups::code;
use super::reply::{self, array};
use super::scripts::{Code, Script};
use crate::backend::{APPEND_BATCH_MAX, Appended, Error, Result};
use crate::event::{Name, NewEvent, random_id};
use crate::routing::partition_for_key;

/// Largest batch in bytes, since a batch is one request. An event alone may be larger: it has its own
/// limit.
const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;

impl Redis {
    pub(super) async fn do_append(&self, stream: &Name, events: &[NewEvent]) -> Result<Vec<Appended>> {
        self.check_batch(events)?;
        let ids: Vec<String> =
            events.iter().map(|event| event.id.clone().unwrap_or_else(random_id)).collect();
        // Once more where the stream has changed under us.
        for _ in 0..2 {
            let partitions = self.partitions_of(stream).await?;
            let sections = route(stream, events, partitions)?;
            if events.is_empty() {
                return Ok(Vec::new());
            }
            let call = self.append_call(stream, events, &ids, partitions, &sections);
            let answer = self.connection.script(call, Effect::Write).await;
            let answer = self.blame(answer, || self.append_keys(stream, &sections)).await?;
            let mut answer = array(answer)?.into_iter();
            match code(answer.next().unwrap_or(Value::Nil))? {
                Code::Ok => return appended(ids, &sections, answer),
                Code::StreamNotFound => {
                    self.forget(stream);
                    return Err(Error::StreamNotFound(stream.clone()));
                }
                Code::NotANumber => {
                    let section = reply::number_or_zero(answer.next().unwrap_or(Value::Nil))?;
                    let place = usize::try_from(section - 1).unwrap_or(0);
                    let partition = sections.keys().nth(place).copied().unwrap_or(0);
                    let key = self.keys.seq(stream, partition);
                    return Err(Error::WrongType { key, detail: "its value is no sequence".to_owned() });
                }
                _ => self.forget(stream),
            }
        }
        Err(Error::Busy(format!("the stream `{stream}` keeps changing")))
    }

    fn check_batch(&self, events: &[NewEvent]) -> Result<()> {
        if events.len() > APPEND_BATCH_MAX {
            return Err(Error::BatchTooLarge { items: events.len(), max: APPEND_BATCH_MAX });
        }
        let mut bytes = 0;
        for (index, event) in events.iter().enumerate() {
            event.check(self.event_bytes_max).map_err(|error| Error::InvalidEvent { index, error })?;
            bytes += event.bytes();
            if bytes > BATCH_BYTES_MAX && index > 0 {
                return Err(Error::BatchTooLarge { items: events.len(), max: index });
            }
        }
        Ok(())
    }

    fn append_call(
        &self,
        stream: &Name,
        events: &[NewEvent],
        ids: &[String],
        partitions: u32,
        sections: &BTreeMap<u32, Vec<usize>>,
    ) -> Cmd {
        let mut keys = vec![self.keys.meta(stream)];
        for &p in sections.keys() {
            keys.push(self.keys.seq(stream, p));
            keys.push(self.keys.index(stream, p));
            keys.push(self.keys.entries(stream, p));
        }
        let mut call = Script::Append.call(&keys);
        call.arg(partitions);
        for (p, places) in sections {
            call.arg(p).arg(places.len());
        }
        for &place in sections.values().flatten() {
            add_event(&mut call, &events[place], &ids[place]);
        }
        call
    }

    fn append_keys(
        &self,
        stream: &Name,
        sections: &BTreeMap<u32, Vec<usize>>,
    ) -> Vec<(String, &'static str)> {
        let mut keys = vec![(self.keys.meta(stream), "hash")];
        for &p in sections.keys() {
            keys.push((self.keys.seq(stream, p), "string"));
            keys.push((self.keys.index(stream, p), "zset"));
            keys.push((self.keys.entries(stream, p), "stream"));
        }
        keys
    }
}

/// One event, as `lua/lib/add.lua` takes it.
pub(super) fn add_event(call: &mut Cmd, event: &NewEvent, id: &str) {
    let plain = event.timestamp.is_none() && event.metadata.as_str() == "{}";
    call.arg(match (plain, &event.key, &event.event_type) {
        (true, None, None) => "n",
        (true, Some(_), None) => "k",
        (true, None, Some(_)) => "t",
        (true, Some(_), Some(_)) => "b",
        (false, None, None) => "N",
        (false, Some(_), None) => "K",
        (false, None, Some(_)) => "T",
        (false, Some(_), Some(_)) => "B",
    });
    call.arg(id);
    if !plain {
        call.arg(event.timestamp.as_deref().unwrap_or_default()).arg(event.metadata.as_str());
    }
    if let Some(key) = &event.key {
        call.arg(key);
    }
    if let Some(event_type) = &event.event_type {
        call.arg(event_type);
    }
    call.arg(event.payload.as_str());
}

/// The places of the batch by partition, in their order.
fn route(stream: &Name, events: &[NewEvent], partitions: u32) -> Result<BTreeMap<u32, Vec<usize>>> {
    let mut sections: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, event) in events.iter().enumerate() {
        let partition =
            event.partition.unwrap_or_else(|| partition_for_key(event.key.as_deref(), partitions));
        if partition >= partitions {
            return Err(Error::PartitionNotFound { stream: stream.clone(), partition, partitions });
        }
        sections.entry(partition).or_default().push(place);
    }
    Ok(sections)
}

/// What was appended where, from the sequences before each section's first event.
fn appended(
    ids: Vec<String>,
    sections: &BTreeMap<u32, Vec<usize>>,
    mut bases: impl Iterator<Item = Value>,
) -> Result<Vec<Appended>> {
    let mut places: Vec<(u32, u64)> = vec![(0, 0); ids.len()];
    for (&partition, section) in sections {
        let base = reply::count(bases.next().ok_or_else(|| reply::unexpected("too few sequences"))?)?;
        for (&place, sequence) in section.iter().zip(base + 1..) {
            places[place] = (partition, sequence);
        }
    }
    let pairs = ids.into_iter().zip(places);
    Ok(pairs.map(|(id, (partition, sequence))| Appended { id, partition, sequence }).collect())
}
