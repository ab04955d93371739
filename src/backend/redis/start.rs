//! A group comes into being, at its start position.

use redis::Value;

use super::Redis;
use super::connection::Effect;
use super::groups::code;
use super::reply::{self, text_or_empty};
use super::scripts::{Code, Script};
use crate::backend::{Error, NewGroup, Positions, Result, Start};
use crate::event::{GroupKey, Name};

/// Partitions of which one step finds the place: each costs a look at up to a thousand index rows.
const PLACES_MAX: usize = 8;

/// Where a group stands in one partition, as `create_group.lua` takes it: frontier, start id, up to
/// which sequence settled entries may come by.
type Place = [String; 3];

impl Redis {
    pub(super) async fn do_create_group(&self, group: &GroupKey, new: NewGroup) -> Result<()> {
        Name::new(group.group.as_str())?;
        if new.max_attempts == 0 {
            return Err(Error::InvalidMaxAttempts);
        }
        // Once more where the stream has changed under us.
        for _ in 0..2 {
            let partitions = self.partitions_of(&group.stream).await?;
            let places = match &new.start {
                Start::End => (0..partitions).map(|_| ["", "$", "0"].map(str::to_owned)).collect(),
                Start::Beginning => self.places(&group.stream, partitions, &Positions::new()).await?,
                Start::After(positions) => {
                    self.check_positions(&group.stream, positions).await?;
                    self.places(&group.stream, partitions, positions).await?
                }
            };
            let answer = self.create_at(group, new.max_attempts, partitions, &places).await?;
            match code(answer)? {
                Code::Changed => self.forget(&group.stream),
                Code::Exists => return Err(Error::GroupExists(group.clone())),
                Code::StreamNotFound => {
                    self.forget(&group.stream);
                    return Err(Error::StreamNotFound(group.stream.clone()));
                }
                _ => return Ok(()),
            }
        }
        Err(Error::Busy(format!("the stream `{}` keeps changing", group.stream)))
    }

    async fn create_at(
        &self,
        group: &GroupKey,
        max_attempts: u32,
        partitions: u32,
        places: &[Place],
    ) -> Result<Value> {
        let stream = &group.stream;
        let mut keys = vec![self.keys.meta(stream), self.keys.group(group), self.keys.note(group)];
        for p in 0..partitions {
            keys.push(self.keys.entries(stream, p));
            keys.push(self.keys.seq(stream, p));
            keys.push(self.keys.done(group, p));
            keys.push(self.keys.due(group, p));
            keys.push(self.keys.suspects(group, p));
            keys.push(self.keys.redriven(group, p));
            keys.push(self.keys.copies(group, p));
        }
        let mut call = Script::CreateGroup.call(&keys);
        call.arg(group.group.as_str()).arg(partitions).arg(max_attempts);
        for place in places {
            call.arg(place);
        }
        let answer = self.connection.script(call, Effect::Write).await;
        let all: Vec<u32> = (0..partitions).collect();
        self.blame(answer, || self.typed_keys(group, &all)).await
    }

    /// The place of a group behind these sequences, for every partition. Found in steps before the
    /// group is made: what is appended in between stands behind it all.
    async fn places(&self, stream: &Name, partitions: u32, positions: &Positions) -> Result<Vec<Place>> {
        let all: Vec<u32> = (0..partitions).collect();
        let mut places = Vec::with_capacity(all.len());
        for some in all.chunks(PLACES_MAX) {
            let mut keys = Vec::with_capacity(3 * some.len());
            for &p in some {
                keys.push(self.keys.entries(stream, p));
                keys.push(self.keys.index(stream, p));
                keys.push(self.keys.seq(stream, p));
            }
            let mut call = Script::Start.call(&keys);
            for p in some {
                call.arg(positions.get(p).copied().unwrap_or(0));
            }
            let answer = self.connection.script(call, Effect::None).await;
            let typed = || {
                let kinds = ["stream", "zset", "string"].into_iter().cycle();
                keys.iter().cloned().zip(kinds).collect()
            };
            let mut parts = reply::array(self.blame(answer, typed).await?)?.into_iter();
            for _ in some {
                let mut next = || text_or_empty(parts.next().unwrap_or(Value::Nil));
                places.push([next()?, next()?, next()?]);
            }
        }
        Ok(places)
    }

    /// Whether the stream has all these partitions.
    pub(super) async fn check_positions(&self, stream: &Name, positions: &Positions) -> Result<()> {
        match positions.last_key_value() {
            Some((&highest, _)) => self.check_partition(stream, highest).await,
            None => Ok(()),
        }
    }

    /// Whether the stream has this partition.
    pub(super) async fn check_partition(&self, stream: &Name, partition: u32) -> Result<()> {
        if partition < self.partitions_of(stream).await? {
            return Ok(());
        }
        // The stream may be another one by now.
        self.forget(stream);
        let partitions = self.partitions_of(stream).await?;
        if partition < partitions {
            return Ok(());
        }
        Err(Error::PartitionNotFound { stream: stream.clone(), partition, partitions })
    }
}
