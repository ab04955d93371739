//! The embedded store: an SQLite file, or a database in memory.
//!
//! One thread owns the connection that writes and puts what is queued into common transactions
//! (`worker`); another one reads. Several processes can open one file: every write begins with
//! `BEGIN IMMEDIATE`, nothing that decides anything is kept outside the database, and time never
//! steps back (`clock`).
//!
//! An event's state in a group is one row in `pending` while it is delivered and unsettled, and
//! none before and after (`schema.sql`). Each step of a claim or a settlement is a search in an
//! index, however much lies in the log, is under lease or is parked.
//!
//! What can touch any number of rows goes in bounded steps: a trim by itself, a replay, reset or
//! deletion behind a durable marker (`rewind`).

mod bury;
mod claim;
mod clock;
mod explain;
mod failure;
mod fair;
mod groups;
mod heal;
mod lane;
mod lookup;
mod moved;
mod network;
mod open;
mod redrive;
mod rewind;
mod rows;
mod scan;
mod settle;
mod state;
mod streams;
#[cfg(test)]
mod tests;
mod trim;
mod wait;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use self::clock::Time;
pub use self::clock::{Clock, ManualClock};
use self::moved::Identity;
pub use self::open::{Location, Mode};
use self::worker::{Access, Session, Worker};
use crate::backend::{
    Appended, Backend, ClaimRequest, Claimed, DeadLetter, Error, Explanation, GroupInfo, NewGroup,
    PendingEntry, Redriven, Repair, Result, Rewind, RewindStep, ScanPage, ScanRange, Settings, SettleRequest,
    Settled, StreamInfo, StreamSummary, Trim, Trimmed,
};
use crate::event::{GroupKey, Lease, Name, NewEvent};
use crate::state::{Bucket, StateKeys, StateValue};

/// How long an operation waits for the lock of another process before it fails as busy.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a wait may take; a longer timeout ends earlier, as waits may.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// An open embedded store.
///
/// Dropping it waits for its threads, which closes the file (at most one transaction later).
pub struct Sqlite {
    location: Location,
    writer: Worker,
    /// None for a database in memory, which has only one connection.
    reader: Option<Worker>,
    time: Arc<Time>,
    commits: watch::Sender<u64>,
    event_bytes_max: usize,
}

impl Sqlite {
    /// Opens the store; `clock` is [`Clock::System`] outside tests.
    ///
    /// [`Mode::Create`] makes the file (not its directory) where there is none.
    /// [`Mode::Existing`] refuses a missing or empty file and writes nothing by opening, though
    /// SQLite keeps two files beside the database while it is open.
    ///
    /// # Errors
    /// [`Error::Refused`], with the path and the reason, for a file that cannot be ours: no
    /// directory, no permission, no database, another program's, a newer version's; for a missing
    /// file with [`Mode::Existing`]. [`Error::Busy`] where another process keeps it locked,
    /// [`Error::Corrupt`] where it is damaged.
    pub async fn open(location: Location, mode: Mode, settings: &Settings, clock: Clock) -> Result<Self> {
        Self::open_with(location, mode, settings.clone(), clock, LOCK_WAIT_MAX).await
    }

    async fn open_with(
        location: Location,
        mode: Mode,
        settings: Settings,
        clock: Clock,
        lock_wait_max: Duration,
    ) -> Result<Self> {
        let opened =
            tokio::task::spawn_blocking(move || Self::start(location, mode, settings, clock, lock_wait_max));
        opened.await.map_err(|error| Error::Unavailable(format!("opening was interrupted: {error}")))?
    }

    fn start(
        location: Location,
        mode: Mode,
        settings: Settings,
        clock: Clock,
        lock_wait_max: Duration,
    ) -> Result<Self> {
        let time = Arc::new(Time::new(clock));
        let commits = watch::Sender::new(0);
        let in_file = matches!(location, Location::File(_));
        let session = |conn, access| Session {
            conn,
            namespace: settings.namespace.clone(),
            time: time.clone(),
            access,
            identity: match &location {
                Location::File(path) => Some(Identity::of(path)),
                Location::Memory => None,
            },
            shared: in_file && access == Access::Write,
            commits: commits.clone(),
            lock_wait_max,
        };
        let conn = open::writer(&location, mode, &settings, lock_wait_max)?;
        let writer = Worker::start(session(conn, Access::Write))?;
        let reader = match &location {
            Location::File(path) => {
                let conn = open::reader(path, &settings, lock_wait_max)?;
                Some(Worker::start(session(conn, Access::Read))?)
            }
            Location::Memory => None,
        };
        let event_bytes_max = settings.event_bytes_max;
        Ok(Self { location, writer, reader, time, commits, event_bytes_max })
    }

    /// The worker for what only reads.
    fn reader(&self) -> &Worker {
        self.reader.as_ref().unwrap_or(&self.writer)
    }

    /// Whether another process can open the same database.
    fn is_shared(&self) -> bool {
        self.reader.is_some()
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("location", &self.location).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for Sqlite {
    async fn ping(&self) -> Result<()> {
        // Each operation begins by reading the stored time: an empty one is a sign of life.
        self.reader().call(|_| Ok(())).await
    }

    async fn create_stream(&self, stream: &Name, partitions: u32) -> Result<()> {
        let stream = stream.clone();
        self.writer.call(move |op| streams::create(op, &stream, partitions)).await
    }

    async fn streams(&self) -> Result<Vec<StreamSummary>> {
        self.reader().call(streams::list).await
    }

    async fn stream_info(&self, stream: &Name) -> Result<StreamInfo> {
        let stream = stream.clone();
        self.reader().call(move |op| streams::info(op, &stream)).await
    }

    async fn create_group(&self, group: &GroupKey, new: NewGroup) -> Result<()> {
        let group = group.clone();
        self.writer.call(move |op| groups::create(op, &group, new)).await
    }

    async fn groups(&self, stream: &Name) -> Result<Vec<Name>> {
        let stream = stream.clone();
        self.reader().call(move |op| groups::list(op, &stream)).await
    }

    async fn group_info(&self, group: &GroupKey) -> Result<GroupInfo> {
        let group = group.clone();
        self.reader().call(move |op| groups::info(op, &group)).await
    }

    async fn append(&self, stream: &Name, events: &[NewEvent]) -> Result<Vec<Appended>> {
        streams::check_batch(events, self.event_bytes_max)?;
        let (stream, events) = (stream.clone(), events.to_vec());
        self.writer.call(move |op| streams::append(op, &stream, events)).await
    }

    async fn scan(&self, stream: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
        let stream = stream.clone();
        self.reader().call(move |op| scan::scan(op, &stream, partition, range)).await
    }

    async fn trim(&self, stream: &Name, trim: Trim) -> Result<Trimmed> {
        let stream = stream.clone();
        self.writer.call(move |op| trim::trim(op, &stream, trim)).await
    }

    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claimed> {
        let request = claim::Request::from(request);
        self.writer.call(move |op| claim::claim(op, &request)).await
    }

    async fn renew(&self, group: &GroupKey, leases: &[Lease], lease: Duration) -> Result<Vec<Settled>> {
        settle::check_batch(leases.len())?;
        let (group, leases) = (group.clone(), leases.to_vec());
        self.writer.call(move |op| settle::renew(op, &group, &leases, lease)).await
    }

    async fn settle(&self, request: &SettleRequest<'_>) -> Result<Vec<Settled>> {
        settle::check_batch(request.settlements.len())?;
        let (group, consumer) = (request.group.clone(), request.consumer.to_owned());
        let (settlements, bytes_max) = (request.settlements.to_vec(), self.event_bytes_max);
        self.writer.call(move |op| settle::settle(op, &group, &consumer, &settlements, bytes_max)).await
    }

    async fn pending(
        &self,
        group: &GroupKey,
        partition: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<PendingEntry>> {
        let (group, after) = (group.clone(), after.map(str::to_owned));
        self.reader().call(move |op| groups::pending(op, &group, partition, after.as_deref(), limit)).await
    }

    async fn dead_letters(
        &self,
        group: &GroupKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let (group, after) = (group.clone(), after.map(str::to_owned));
        self.reader().call(move |op| groups::dead_letters(op, &group, after.as_deref(), limit)).await
    }

    async fn purge(&self, group: &GroupKey, rows: &[String]) -> Result<u64> {
        redrive::check_batch(rows.len())?;
        let (group, rows) = (group.clone(), rows.to_vec());
        self.writer.call(move |op| redrive::purge(op, &group, &rows)).await
    }

    async fn redrive(&self, group: &GroupKey, rows: &[String]) -> Result<Vec<Redriven>> {
        redrive::check_batch(rows.len())?;
        let (group, rows) = (group.clone(), rows.to_vec());
        self.writer.call(move |op| redrive::redrive(op, &group, &rows)).await
    }

    async fn redeliver(&self, group: &GroupKey, events: &[(u32, u64)]) -> Result<Vec<Redriven>> {
        redrive::check_batch(events.len())?;
        let (group, events) = (group.clone(), events.to_vec());
        self.writer.call(move |op| redrive::redeliver(op, &group, &events)).await
    }

    async fn begin_rewind(&self, group: &GroupKey, rewind: &Rewind) -> Result<()> {
        let (group, rewind) = (group.clone(), rewind.clone());
        self.writer.call(move |op| rewind::begin(op, &group, &rewind)).await
    }

    async fn continue_rewind(&self, group: &GroupKey) -> Result<RewindStep> {
        let group = group.clone();
        self.writer.call(move |op| rewind::go_on(op, &group)).await
    }

    async fn explain(&self, group: &GroupKey, partition: u32) -> Result<Explanation> {
        let group = group.clone();
        self.reader().call(move |op| explain::explain(op, &group, partition)).await
    }

    async fn heal(&self, group: &GroupKey, partition: u32) -> Result<Vec<Repair>> {
        let group = group.clone();
        self.writer.call(move |op| heal::heal(op, &group, partition)).await
    }

    async fn state(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>> {
        state::check_batch(keys.len())?;
        let (bucket, keys) = (bucket.clone(), keys.to_vec());
        self.reader().call(move |op| state::get(op, &bucket, &keys)).await
    }

    async fn state_keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys> {
        let bucket = bucket.clone();
        self.reader().call(move |op| state::keys(op, &bucket, cursor)).await
    }

    async fn wait(&self, group: &GroupKey, partitions: &[u32], timeout: Duration) -> Result<()> {
        let until = Instant::now() + timeout.min(WAIT_MAX);
        self.wait_until(group.clone(), partitions.to_vec(), until).await
    }

    async fn retire(&self, group: &GroupKey, _consumer: &str) -> Result<()> {
        // The names of consumers are kept only in the entries that they hold.
        let group = group.clone();
        self.reader().call(move |op| op.group(&group).map(|_| ())).await
    }
}
