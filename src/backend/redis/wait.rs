//! Waiting for something to claim, without asking all the time.

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connection::{BLOCK_MAX, Effect};
use super::errors::{ServerCode, code_of};
use super::reply::{self, Answers, array, checked, count, number_or_zero, text_or_empty, time_ms};
use super::{Redis, partition_count};
use crate::backend::{Error, Result};
use crate::event::GroupKey;

/// What a group has in some partitions.
struct Look {
    /// For each partition, the id behind which the group reads on; `None` where a claim has to restore it
    /// or to go on with a rewind.
    delivered: Vec<Option<String>>,
    /// Milliseconds until the first parked entry's time.
    due_in_ms: Option<i64>,
}

impl Redis {
    pub(super) async fn do_wait(
        &self,
        group: &GroupKey,
        partitions: &[u32],
        timeout: Duration,
    ) -> Result<()> {
        // A day is as good as for ever, and far from any overflow.
        let deadline = Instant::now() + timeout.min(Duration::from_secs(86_400));
        let state = self.state_of(group);
        loop {
            let parked = state.parked.notified();
            tokio::pin!(parked);
            parked.as_mut().enable();
            let look = self.look(group, partitions).await?;
            let Some(delivered) = look.delivered.into_iter().collect::<Option<Vec<String>>>() else {
                return Ok(());
            };
            let until = look.due_in_ms.map_or(deadline, |ms| {
                deadline.min(Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
            });
            // In slices: an entry that another process parks or lets go does not end the read.
            let slice = until.min(Instant::now() + BLOCK_MAX);
            if slice <= Instant::now() {
                return Ok(());
            }
            if partitions.is_empty() {
                sleep_until(slice).await;
            } else {
                let read = self.read_blocking(group, partitions, &delivered, slice - Instant::now());
                tokio::select! {
                    read = timeout_at(slice, read) => if let Ok(found) = read && found? {
                        return Ok(());
                    },
                    () = &mut parked => {}
                }
            }
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    /// Where the group stands, and what is parked.
    async fn look(&self, group: &GroupKey, partitions: &[u32]) -> Result<Look> {
        let stream = &group.stream;
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(self.keys.meta(stream)).arg("partition_count");
        pipe.cmd("HLEN").arg(self.keys.group(group));
        pipe.cmd("TIME");
        for &p in partitions {
            pipe.cmd("XINFO").arg("GROUPS").arg(self.keys.entries(stream, p));
            pipe.cmd("ZRANGE").arg(self.keys.due(group, p)).arg(0).arg(0).arg("WITHSCORES");
            pipe.cmd("HEXISTS").arg(self.keys.note(group)).arg(format!("rewind:{p}"));
        }
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let keys = || self.typed_keys(group, partitions);
        partition_count(self.blame(answers.next(), keys).await?, stream)?;
        if count(self.blame(answers.next(), keys).await?)? == 0 {
            return Err(Error::GroupNotFound(group.clone()));
        }
        let now = time_ms(answers.next()?)?;
        let mut look = Look { delivered: Vec::with_capacity(partitions.len()), due_in_ms: None };
        for _ in partitions {
            let delivered = match answers.raw() {
                Value::ServerError(error) if code_of(&error) != ServerCode::WrongType => None,
                answer => last_delivered(self.blame(checked(answer), keys).await?, group)?,
            };
            let due = self.blame(answers.next(), keys).await?;
            if let Some(due) = array(due)?.into_iter().nth(1) {
                let in_ms = number_or_zero(due)? - now;
                look.due_in_ms = Some(look.due_in_ms.map_or(in_ms, |first| first.min(in_ms)));
            }
            let rewinding = count(self.blame(answers.next(), keys).await?)? > 0;
            look.delivered.push(delivered.filter(|_| !rewinding));
        }
        Ok(look)
    }

    /// Whether something came behind these ids before the time was over.
    async fn read_blocking(
        &self,
        group: &GroupKey,
        partitions: &[u32],
        delivered: &[String],
        time: Duration,
    ) -> Result<bool> {
        let mut read = redis::cmd("XREAD");
        // Zero would mean for ever.
        let block_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).clamp(1, 60_000);
        read.arg("COUNT").arg(1).arg("BLOCK").arg(block_ms).arg("STREAMS");
        for &p in partitions {
            read.arg(self.keys.entries(&group.stream, p));
        }
        read.arg(delivered);
        Ok(self.connection.blocking(read).await? != Value::Nil)
    }
}

/// The id behind which this group reads on.
pub(super) fn last_delivered(groups: Value, group: &GroupKey) -> Result<Option<String>> {
    for info in array(groups)? {
        let fields = reply::pairs(info)?;
        let field = |name: &str| fields.iter().find(|(n, _)| n == name.as_bytes()).map(|(_, value)| value);
        if field("name").is_some_and(|name| name == group.group.as_str().as_bytes()) {
            let id = field("last-delivered-id").cloned().unwrap_or_default();
            return Ok(Some(text_or_empty(Value::BulkString(id))?));
        }
    }
    Ok(None)
}
