//! Redis Streams as the log, on the keys and with the semantics of the Elixir library Rheo, so that
//! both can work on one stream and in one group.
//!
//! What must be one step is one script (`lua/`); what moves payloads is a native command. Rheo's keys
//! are as Rheo writes them. Ours beside them, invisible to it: `due:{stream}:{group}:{p}` (parked
//! entries by the time they come back), `suspect:{stream}:{group}:{p}` (entries that may have killed
//! their consumer), `redriven:{stream}:{group}:{p}` and `copy:{stream}:{group}:{p}` (the record of an
//! event that is delivered again until it settles, and its fields) and `note:{stream}:{group}` (what the
//! steps of a claim tell each other, and the marker of a rewind).
//!
//! A fence (`fence:{stream}:{group}:{entry id}`) says who holds an entry. Its key has no partition, so
//! two entries with one id share it: it is believed only for the partition that it names, and while it
//! is live the other entry is not claimable. `lease_id` is a lease's token, `parked` while the entry
//! waits for its time, or empty once it was let go. To Rheo's fields we add `failure`, the kind of the
//! last one; `event_id` we leave out, since no one reads it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::{
    Appended, Backend, ClaimRequest, Claimed, DeadLetter, Error, Explanation, GroupInfo, NewGroup,
    PendingEntry, Redriven, Repair, Result, Rewind, RewindStep, ScanPage, ScanRange, Settings, SettleRequest,
    Settled, StreamInfo, StreamSummary, Trim, Trimmed,
};
use crate::event::{GroupKey, Lease, Name, NewEvent};
use crate::state::{Bucket, StateKeys, StateValue};
use crate::target::RedisUrl;
use connection::{Connection, Effect};
use keys::Keys;
use scripts::Script;
use state::GroupState;

mod append;
mod claim;
mod clear;
mod codec;
mod connection;
mod dial;
mod errors;
mod explain;
mod framing;
#[doc(hidden)]
pub mod fuzzing;
mod gaps;
mod groups;
mod heal;
mod keys;
mod listings;
mod pending;
mod read;
mod read_part;
mod redrive;
mod reply;
mod report;
mod resp;
mod retake;
mod rewind;
mod rows;
mod scripts;
mod settle;
mod start;
mod state;
mod tls;
mod trim;
mod values;
mod wait;

pub use report::{Persistence, ServerReport};

/// The backend on a Redis server (6.2 or later, or what speaks its language).
///
/// Cheap to share behind an `Arc`; all its calls go over one connection, waits over others.
pub struct Redis {
    connection: Connection,
    keys: Keys,
    event_bytes_max: usize,
    append_time_max: Duration,
    #[cfg(debug_assertions)]
    unfenced: bool,
    /// Partition counts never change while a stream lives; scripts notice where one has.
    partitions: Mutex<HashMap<Name, u32>>,
    groups: Mutex<HashMap<GroupKey, Arc<GroupState>>>,
    trims: trim::KnownGroups,
}

impl Redis {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it cannot be reached, [`Error::Busy`] while it loads its data,
    /// [`Error::Refused`] for wrong credentials, for a URL that cannot be used, and for TLS where one side
    /// does not trust the other.
    pub async fn connect(url: &RedisUrl, settings: &Settings) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(url).await?,
            keys: Keys::new(&settings.namespace),
            event_bytes_max: settings.event_bytes_max,
            append_time_max: settings.append_time_max,
            #[cfg(debug_assertions)]
            unfenced: false,
            partitions: Mutex::default(),
            groups: Mutex::default(),
            trims: trim::KnownGroups::default(),
        })
    }

    /// Settles and renews without a look at fences, so that tests can show that they would notice.
    /// Not there in a release build.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn without_fencing(self) -> Self {
        Self { unfenced: true, ..self }
    }

    /// A call of a script that checks fences.
    fn fenced(&self, script: Script, keys: &[String]) -> redis::Cmd {
        #[cfg(debug_assertions)]
        if self.unfenced {
            return script.call_unfenced(keys);
        }
        script.call(keys)
    }

    /// How many partitions a stream has, from memory where it is known.
    async fn partitions_of(&self, stream: &Name) -> Result<u32> {
        let known = self.partitions.lock().unwrap_or_else(PoisonError::into_inner).get(stream).copied();
        if let Some(partitions) = known {
            return Ok(partitions);
        }
        let mut ask = redis::cmd("HGET");
        ask.arg(self.keys.meta(stream)).arg("partition_count");
        let answer = self.connection.call(&ask, Effect::None).await;
        let answer = self.blame(answer, || vec![(self.keys.meta(stream), "hash")]).await?;
        let partitions = partition_count(answer, stream)?;
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner).insert(stream.clone(), partitions);
        Ok(partitions)
    }

    /// Forgets what is known of a stream: it has turned out to be another one.
    fn forget(&self, stream: &Name) {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner).remove(stream);
    }

    /// What this process remembers of a group.
    fn state_of(&self, group: &GroupKey) -> Arc<GroupState> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(groups.entry(group.clone()).or_default())
    }

    /// Which of the two is missing, where a group has no metadata.
    async fn missing(&self, group: &GroupKey) -> Error {
        self.forget(&group.stream);
        match self.partitions_of(&group.stream).await {
            Ok(_) => Error::GroupNotFound(group.clone()),
            Err(error) => error,
        }
    }

    /// Puts the key's name into an error about a wrong type: the server does not say it.
    async fn blame<T>(
        &self,
        result: Result<T>,
        keys: impl Fn() -> Vec<(String, &'static str)> + Send,
    ) -> Result<T> {
        let Err(Error::WrongType { key, detail }) = &result else { return result };
        if !key.is_empty() {
            return result;
        }
        let (keys, detail) = (keys(), detail.clone());
        let mut pipe = redis::pipe();
        for (key, _) in &keys {
            pipe.cmd("TYPE").arg(key);
        }
        let types = self.connection.pipeline(&pipe, Effect::None).await?;
        for ((key, expected), found) in keys.into_iter().zip(types) {
            let found = reply::text_or_empty(found)?;
            if found != expected && found != "none" {
                return Err(Error::WrongType { key, detail: format!("a {found} instead of a {expected}") });
            }
        }
        Err(Error::WrongType { key: "one of this group's fences".to_owned(), detail })
    }

    /// The keys of a group in some partitions, with the types that they should have.
    fn typed_keys(&self, group: &GroupKey, partitions: &[u32]) -> Vec<(String, &'static str)> {
        let stream = &group.stream;
        let mut keys = vec![
            (self.keys.meta(stream), "hash"),
            (self.keys.group(group), "hash"),
            (self.keys.note(group), "hash"),
            (self.keys.dead_letters(group), "stream"),
        ];
        for &p in partitions {
            keys.push((self.keys.entries(stream, p), "stream"));
            keys.push((self.keys.index(stream, p), "zset"));
            keys.push((self.keys.seq(stream, p), "string"));
            keys.push((self.keys.done(group, p), "zset"));
            keys.push((self.keys.due(group, p), "zset"));
            keys.push((self.keys.suspects(group, p), "zset"));
            keys.push((self.keys.redriven(group, p), "zset"));
            keys.push((self.keys.copies(group, p), "hash"));
        }
        keys
    }
}

/// Partitions that a stream of another program can have. Some requests ask for each of them, so a number
/// that means nothing must not be believed.
const PARTITIONS_READ_MAX: u32 = 1 << 16;

/// The partition count as the metadata has it.
fn partition_count(answer: Value, stream: &Name) -> Result<u32> {
    let Some(text) = reply::text(answer)? else { return Err(Error::StreamNotFound(stream.clone())) };
    text.parse().ok().filter(|count| (1..=PARTITIONS_READ_MAX).contains(count)).ok_or_else(|| {
        Error::Corrupt(format!(
            "the stream `{stream}` has `{}` as its number of partitions",
            text.escape_debug()
        ))
    })
}

/// A duration in whole milliseconds, at least one.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 50)
}

#[async_trait]
impl Backend for Redis {
    async fn ping(&self) -> Result<()> {
        self.connection.call(&redis::cmd("PING"), Effect::None).await.map(|_| ())
    }

    async fn create_stream(&self, stream: &Name, partitions: u32) -> Result<()> {
        self.do_create_stream(stream, partitions).await
    }

    async fn streams(&self) -> Result<Vec<StreamSummary>> {
        self.list_streams().await
    }

    async fn stream_info(&self, stream: &Name) -> Result<StreamInfo> {
        self.describe_stream(stream).await
    }

    async fn create_group(&self, group: &GroupKey, new: NewGroup) -> Result<()> {
        self.do_create_group(group, new).await
    }

    async fn groups(&self, stream: &Name) -> Result<Vec<Name>> {
        self.list_groups(stream).await
    }

    async fn group_info(&self, group: &GroupKey) -> Result<GroupInfo> {
        self.describe_group(group).await
    }

    async fn append(&self, stream: &Name, events: &[NewEvent]) -> Result<Vec<Appended>> {
        self.do_append(stream, events).await
    }

    async fn scan(&self, stream: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
        self.do_scan(stream, partition, range).await
    }

    async fn trim(&self, stream: &Name, trim: Trim) -> Result<Trimmed> {
        self.do_trim(stream, trim).await
    }

    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claimed> {
        self.do_claim(request).await
    }

    async fn renew(&self, group: &GroupKey, leases: &[Lease], lease: Duration) -> Result<Vec<Settled>> {
        self.do_renew(group, leases, lease).await
    }

    async fn settle(&self, request: &SettleRequest<'_>) -> Result<Vec<Settled>> {
        self.do_settle(request).await
    }

    async fn pending(
        &self,
        group: &GroupKey,
        partition: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<PendingEntry>> {
        self.list_pending(group, partition, after, limit).await
    }

    async fn dead_letters(
        &self,
        group: &GroupKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        self.list_dead_letters(group, after, limit).await
    }

    async fn purge(&self, group: &GroupKey, rows: &[String]) -> Result<u64> {
        self.do_purge(group, rows).await
    }

    async fn redrive(&self, group: &GroupKey, rows: &[String]) -> Result<Vec<Redriven>> {
        self.do_redrive(group, rows).await
    }

    async fn redeliver(&self, group: &GroupKey, events: &[(u32, u64)]) -> Result<Vec<Redriven>> {
        self.do_redeliver(group, events).await
    }

    async fn begin_rewind(&self, group: &GroupKey, rewind: &Rewind) -> Result<()> {
        self.do_begin_rewind(group, rewind).await
    }

    async fn continue_rewind(&self, group: &GroupKey) -> Result<RewindStep> {
        self.do_continue_rewind(group).await
    }

    async fn explain(&self, group: &GroupKey, partition: u32) -> Result<Explanation> {
        self.do_explain(group, partition).await
    }

    async fn heal(&self, group: &GroupKey, partition: u32) -> Result<Vec<Repair>> {
        self.do_heal(group, partition).await
    }

    async fn state(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>> {
        self.do_state(bucket, keys).await
    }

    async fn state_keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys> {
        self.do_state_keys(bucket, cursor).await
    }

    async fn wait(&self, group: &GroupKey, partitions: &[u32], timeout: Duration) -> Result<()> {
        self.do_wait(group, partitions, timeout).await
    }

    async fn retire(&self, group: &GroupKey, consumer: &str) -> Result<()> {
        self.do_retire(group, consumer).await
    }
}
