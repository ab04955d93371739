//! What is there: streams, groups and their state. Nothing here writes.

use std::collections::HashMap;

use redis::Value;

use super::connection::Effect;
use super::errors::{ServerCode, code_of};
use super::reply::{self, Answers, array, checked, count, text, text_or_empty};
use super::rewind::kind_of;
use super::{Redis, partition_count};
use crate::backend::{Error, GroupInfo, GroupPartition, PartitionInfo, Result, StreamInfo, StreamSummary};
use crate::event::{GroupKey, Name};

/// Attempts of a group that does not say how many it wants (Rheo's default).
const MAX_ATTEMPTS_DEFAULT: u32 = 5;

impl Redis {
    pub(super) async fn list_streams(&self) -> Result<Vec<StreamSummary>> {
        let keys = self.scan(&self.keys.meta_pattern()).await?;
        let mut pipe = redis::pipe();
        let mut names = Vec::new();
        for key in &keys {
            if let Some(name) = self.keys.stream_of_meta(key).and_then(|name| Name::existing(name).ok()) {
                pipe.cmd("HGET").arg(key).arg("partition_count");
                names.push(name);
            }
        }
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.connection.pipeline(&pipe, Effect::None).await?;
        let streams = names.into_iter().zip(answers).filter_map(|(stream, answer)| {
            // What is no stream's metadata, though it is called so, is none of ours.
            let partitions = partition_count(checked(answer).ok()?, &stream).ok()?;
            Some(StreamSummary { stream, partitions })
        });
        Ok(streams.collect())
    }

    pub(super) async fn list_groups(&self, stream: &Name) -> Result<Vec<Name>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(self.keys.meta(stream)).arg("partition_count");
        let answer = self.connection.pipeline(&pipe, Effect::None).await?.into_iter().next();
        partition_count(checked(answer.unwrap_or(Value::Nil))?, stream)?;
        let keys = self.scan(&self.keys.group_pattern(stream)).await?;
        let names: Vec<&str> = keys.iter().filter_map(|key| self.keys.group_of_meta(stream, key)).collect();
        // `a:b` has a group `c` exactly where `a` has a group `b:c`: it belongs to the stream with the
        // longer name, where there is one.
        let mut pipe = redis::pipe();
        let mut owners = vec![0; names.len()];
        for (owner, name) in owners.iter_mut().zip(&names) {
            for (at, _) in name.match_indices(':') {
                if let Ok(longer) = Name::existing(&format!("{stream}:{}", &name[..at])) {
                    pipe.cmd("EXISTS").arg(self.keys.meta(&longer));
                    *owner += 1;
                }
            }
        }
        let mut answers = match pipe.is_empty() {
            true => Vec::new().into_iter(),
            false => self.connection.pipeline(&pipe, Effect::None).await?.into_iter(),
        };
        let mut groups = Vec::new();
        for (owners, name) in owners.into_iter().zip(names) {
            let mut foreign = false;
            for answer in answers.by_ref().take(owners) {
                foreign |= count(checked(answer)?)? > 0;
            }
            if let (false, Ok(name)) = (foreign, Name::existing(name)) {
                groups.push(name);
            }
        }
        Ok(groups)
    }

    /// All keys that match, each once, sorted.
    async fn scan(&self, pattern: &str) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(500);
            let mut answer = array(self.connection.call(&scan, Effect::None).await?)?.into_iter();
            cursor = text_or_empty(answer.next().unwrap_or(Value::Nil))?;
            for key in array(answer.next().unwrap_or(Value::Nil))? {
                // Names are text: a key that is none is not of ours.
                if let Some(Ok(key)) = reply::bytes(key)?.map(String::from_utf8) {
                    keys.push(key);
                }
            }
            if cursor == "0" || cursor.is_empty() {
                break;
            }
        }
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    pub(super) async fn describe_stream(&self, stream: &Name) -> Result<StreamInfo> {
        self.forget(stream);
        let partitions = self.partitions_of(stream).await?;
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(self.keys.meta(stream)).arg("created_at");
        for p in 0..partitions {
            pipe.cmd("GET").arg(self.keys.seq(stream, p));
            pipe.cmd("XLEN").arg(self.keys.entries(stream, p));
            pipe.cmd("ZRANGE").arg(self.keys.index(stream, p)).arg(0).arg(0).arg("WITHSCORES");
        }
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let keys = || {
            let (seq, entries) = (|p| self.keys.seq(stream, p), |p| self.keys.entries(stream, p));
            let index = |p| self.keys.index(stream, p);
            let of = |p| [(seq(p), "string"), (entries(p), "stream"), (index(p), "zset")];
            (0..partitions).flat_map(of).collect()
        };
        let created_at = text(self.blame(answers.next(), keys).await?)?;
        let mut info = StreamInfo { stream: stream.clone(), created_at, partitions: Vec::new() };
        for partition in 0..partitions {
            let high_watermark = count(self.blame(answers.next(), keys).await?)?;
            let length = count(self.blame(answers.next(), keys).await?)?;
            let first = array(self.blame(answers.next(), keys).await?)?.into_iter().nth(1);
            let first = first.map(count).transpose()?;
            info.partitions.push(PartitionInfo { partition, high_watermark, length, first });
        }
        Ok(info)
    }

    pub(super) async fn describe_group(&self, group: &GroupKey) -> Result<GroupInfo> {
        self.forget(&group.stream);
        let partitions = self.partitions_of(&group.stream).await?;
        let all: Vec<u32> = (0..partitions).collect();
        let keys = || self.typed_keys(group, &all);
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("HGETALL").arg(self.keys.group(group));
        pipe.cmd("HGETALL").arg(self.keys.note(group));
        pipe.cmd("XLEN").arg(self.keys.dead_letters(group));
        for p in 0..partitions {
            pipe.cmd("GET").arg(self.keys.seq(&group.stream, p));
            pipe.cmd("XPENDING").arg(self.keys.entries(&group.stream, p)).arg(group.group.as_str());
            pipe.cmd("ZCARD").arg(self.keys.due(group, p));
            pipe.cmd("ZCOUNT").arg(self.keys.suspects(group, p)).arg(0).arg(0);
            pipe.cmd("ZCARD").arg(self.keys.redriven(group, p));
        }
        let mut answers = Answers::new(self.connection.transaction(&pipe, Effect::None).await?);
        let meta = fields(self.blame(answers.next(), keys).await?)?;
        let note = fields(self.blame(answers.next(), keys).await?)?;
        if meta.is_empty() {
            return Err(Error::GroupNotFound(group.clone()));
        }
        let number = |fields: &HashMap<String, String>, name: &str| fields.get(name)?.parse::<u64>().ok();
        let max_attempts = number(&meta, "max_attempts").and_then(|max| u32::try_from(max).ok());
        let marker = all.iter().find_map(|p| note.get(&format!("rewind:{p}")));
        let dead_letters = count(self.blame(answers.next(), keys).await?)?;
        let mut info = GroupInfo {
            max_attempts: max_attempts.unwrap_or(MAX_ATTEMPTS_DEFAULT),
            dead_letters,
            rewind: marker.map(|marker| kind_of(marker)),
            partitions: Vec::with_capacity(all.len()),
        };
        for &partition in &all {
            let high_watermark = count(self.blame(answers.next(), keys).await?)?;
            let pending = match answers.raw() {
                // Lost, or not made yet: then nothing of it is pending.
                Value::ServerError(error) if code_of(&error) == ServerCode::NoGroup => 0,
                answer => {
                    let summary = array(self.blame(checked(answer), keys).await?)?;
                    count(summary.into_iter().next().unwrap_or(Value::Nil))?
                }
            };
            let due = count(self.blame(answers.next(), keys).await?)?;
            let parked = due + count(self.blame(answers.next(), keys).await?)?;
            let redriven = count(self.blame(answers.next(), keys).await?)?;
            let unlisted = match redriven {
                0 => 0,
                _ => self.unlisted(group, partition).await?.len() as u64,
            };
            info.partitions.push(GroupPartition {
                partition,
                frontier: number(&meta, &format!("frontier_p{partition}")).unwrap_or(0),
                high_watermark,
                in_flight: (pending + unlisted).saturating_sub(parked),
                parked,
                redriven,
                missing: number(&note, &format!("missing:{partition}")).unwrap_or(0),
            });
        }
        Ok(info)
    }
}

/// A hash as texts; what is no text is nothing that we look for.
fn fields(answer: Value) -> Result<HashMap<String, String>> {
    Ok(reply::pairs(answer)?
        .into_iter()
        .map(|(name, value)| (reply::lossy(name), reply::lossy(value)))
        .collect())
}
