//! Streams and groups come into being, come back, and consumers' names go.

use std::time::Duration;

use redis::Value;

use super::connection::Effect;
use super::redrive::REDRIVER;
use super::reply::{self, number_or_zero};
use super::scripts::{Code, Script};
use super::{Redis, millis};
use crate::backend::{Error, PARTITIONS_MAX, Result};
use crate::event::{GroupKey, Name};

/// How long a consumer that holds nothing is silent before its name is forgotten.
const SILENCE: Duration = Duration::from_secs(3600);

impl Redis {
    pub(super) async fn do_create_stream(&self, stream: &Name, partitions: u32) -> Result<()> {
        Name::new(stream.as_str())?;
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(Error::InvalidPartitionCount { partitions });
        }
        let mut call = Script::CreateStream.call(&[self.keys.meta(stream), self.keys.trimmed(stream)]);
        call.arg(partitions);
        let answer = self.connection.script(call, Effect::Write).await;
        let answer = self.blame(answer, || vec![(self.keys.meta(stream), "hash")]).await?;
        self.forget(stream);
        match code(answer)? {
            Code::Exists => Err(Error::StreamExists(stream.clone())),
            _ => Ok(()),
        }
    }

    /// Makes a group again in these partitions, where the store has lost it, and says so. Returns whether
    /// it was this call that did.
    pub(super) async fn restore(&self, group: &GroupKey, partitions: &[u32]) -> Result<bool> {
        let mut keys = vec![self.keys.group(group), self.keys.note(group)];
        for &p in partitions {
            keys.push(self.keys.entries(&group.stream, p));
            keys.push(self.keys.index(&group.stream, p));
            keys.push(self.keys.done(group, p));
            keys.push(self.keys.seq(&group.stream, p));
            keys.push(self.keys.redriven(group, p));
        }
        let mut call = Script::RestoreGroup.call(&keys);
        call.arg(group.group.as_str()).arg(REDRIVER).arg(partitions);
        let answer = self.connection.script(call, Effect::Write).await;
        match number_or_zero(self.blame(answer, || self.typed_keys(group, partitions)).await?)? {
            restored if restored < 0 => Err(self.missing(group).await),
            0 => Ok(false), // another engine was faster, and has said so
            restored => {
                tracing::warn!(
                    %group, partitions = restored,
                    "the store had lost the group; made it again, just before its first unsettled event"
                );
                Ok(true)
            }
        }
    }

    pub(super) async fn do_retire(&self, group: &GroupKey, consumer: &str) -> Result<()> {
        let partitions = self.partitions_of(&group.stream).await?;
        let keys: Vec<String> = (0..partitions).map(|p| self.keys.entries(&group.stream, p)).collect();
        let mut call = Script::Retire.call(&keys);
        call.arg(group.group.as_str()).arg(consumer).arg(millis(SILENCE));
        self.connection.script(call, Effect::Write).await.map(|_| ())
    }
}

/// The code that a script answered with.
pub(super) fn code(answer: Value) -> Result<Code> {
    let number = reply::number(answer)?.ok_or_else(|| reply::unexpected("no code"))?;
    Code::parse(number).ok_or_else(|| reply::unexpected("an unknown code"))
}
