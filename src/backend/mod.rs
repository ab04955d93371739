//! The seam between the engine and the store: the [`Backend`] trait, its values and its errors.
//!
//! A backend keeps streams of events, consumer groups with their leases, and dead letters. What
//! it promises is stated as executable checks in [`conformance`]; a new backend is finished when
//! it passes them. All times are the store's; callers pass and receive durations only.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use crate::event::{Event, GroupKey, Lease, Leased, Name, NewEvent};
use crate::outcome::{Cause, Settlement};
use crate::state::{Bucket, StateKeys, StateValue};

#[doc(hidden)]
pub mod conformance;
mod control;
mod dead_letter;
pub mod error;
mod explain;
mod history;
mod locate;
mod pending;
mod query;
pub mod redis;
mod repair;
mod retention;
pub mod sqlite;

pub use control::{Positions, REDRIVE_BATCH_MAX, Redriven, Rewind, RewindKind, RewindStep, Start, rewind};
pub use dead_letter::{DeadEvent, DeadLetter};
pub use error::{Error, ErrorClass, Result};
pub use explain::{Explanation, Holder, HolderState};
pub use history::{Order, ScanPage, ScanRange, Unreadable};
pub use locate::{Places, earliest, places_of, positions_at};
pub use pending::{PendingEntry, PendingState};
pub use query::{Page, Query, SORTED_LIMIT_MAX, query};
pub use repair::{Repair, RepairKind};
pub use retention::{Held, Trim, Trimmed};

/// Largest number of events that one [`Backend::append`] takes.
pub const APPEND_BATCH_MAX: usize = 1000;

/// Largest number of settlements or renewals that one call takes.
pub const SETTLE_BATCH_MAX: usize = 256;

/// Largest number of keys that one [`Backend::state`] takes.
pub const STATE_KEYS_MAX: usize = 1000;

/// Largest number of partitions that a stream can have.
pub const PARTITIONS_MAX: u32 = 1024;

/// What a backend needs to know besides where the store is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Prefix of everything that is stored (Rheo's handle).
    pub namespace: String,
    /// Largest event that `append` takes, in bytes, measured by [`NewEvent::bytes`].
    pub event_bytes_max: usize,
    /// What the SQLite backend waits for before a write counts as done.
    pub synchronous: Synchronous,
    /// How long another writer's append may be under way: so long a gap in the sequences is left
    /// alone, since what fills it may still come. Longer than any client waits for an answer.
    pub append_time_max: Duration,
}

impl Default for Settings {
    /// Rheo's default namespace, 4 MiB, full, 10 s.
    fn default() -> Self {
        Self {
            namespace: "Rheo.Redis".to_owned(),
            event_bytes_max: crate::event::EVENT_BYTES_MAX_DEFAULT,
            synchronous: Synchronous::Full,
            append_time_max: Duration::from_secs(10),
        }
    }
}

/// Durability of the embedded store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// A settled event stays settled through a power failure.
    #[default]
    Full,
    /// Through a crash of the process; the last transactions may be lost with the power.
    Normal,
}

/// Where an appended event came to stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Appended {
    /// The event's id, given or made.
    pub id: String,
    /// Its partition.
    pub partition: u32,
    /// Its sequence.
    pub sequence: u64,
}

/// A request to take events under lease.
#[derive(Clone, Debug)]
pub struct ClaimRequest<'a> {
    /// The group that takes.
    pub group: &'a GroupKey,
    /// Who takes; unique per start of a process.
    pub consumer: &'a str,
    /// The partitions to take from, each once. Ready work of all of them is served fairly.
    pub partitions: &'a [u32],
    /// At most so many events; at least 1.
    pub limit: usize,
    /// How long they are held unless renewed.
    pub lease: Duration,
    /// Also look for leases that ran out and entries that others let go: one bounded step of a
    /// walk that costs the store a scan. Callers ask for it from time to time, not always.
    pub sweep: bool,
    /// Take one suspect (see [`Claimed::suspects`]) and nothing else. `limit` and `sweep` are
    /// ignored: at most one event is returned, none where no suspect is ready.
    pub alone: bool,
}

/// What a claim gave.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// Events with their leases, in sequence order within a partition.
    pub leased: Vec<Leased>,
    /// Entries that the claim itself settled as dead letters: those beyond the attempt cap, and
    /// those that are no events.
    pub dead_lettered: Vec<ClaimDeath>,
    /// Ready entries exist that may have killed their consumer: they are on their last attempt,
    /// and the one before ended by expiry. An ordinary claim passes them over; they are to be
    /// taken by [`ClaimRequest::alone`] while the caller holds nothing else of the group.
    pub suspects: bool,
}

/// An entry that was settled as a dead letter while it was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimDeath {
    /// The entry's partition.
    pub partition: u32,
    /// Its sequence, where it has a readable one.
    pub sequence: Option<u64>,
    /// The event's id, where it has a readable one.
    pub event_id: Option<String>,
    /// Why.
    pub cause: Cause,
    /// Why, in words.
    pub reason: String,
}

/// What became of one settlement or renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Written.
    Done,
    /// Nothing written: the lease is another's by now, or was settled before.
    Stale,
    /// Nothing written: the receipt names another entry than the sequence.
    ReceiptMismatch,
    /// Nothing written, the lease still holds: a key that the attempt read has been written by
    /// another commit meanwhile.
    Conflict,
    /// Nothing written, the lease still holds: the effects cannot be committed.
    Refused(Refusal),
}

/// Why effects cannot be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A staged event's stream does not exist.
    #[error("a stream that it appends to does not exist")]
    StreamNotFound,
    /// A staged event names a partition that its stream does not have.
    #[error("a stream that it appends to has no such partition")]
    PartitionNotFound,
    /// A staged event is larger than the store takes.
    #[error("an event that it appends is larger than `max_event_bytes`")]
    EventTooLarge,
    /// A key of the store holds something else than it should.
    #[error("a key of the store that it writes to holds something of another type")]
    WrongType,
}

/// Who settles, for the record that a dead letter keeps.
#[derive(Clone, Debug)]
pub struct SettleRequest<'a> {
    /// The group.
    pub group: &'a GroupKey,
    /// The consumer that holds the leases.
    pub consumer: &'a str,
    /// At most [`SETTLE_BATCH_MAX`] verdicts, each for another lease.
    pub settlements: &'a [Settlement],
}

/// One stream as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamSummary {
    /// Its name.
    pub stream: Name,
    /// How many partitions it has.
    pub partitions: u32,
}

/// One stream in detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamInfo {
    /// Its name.
    pub stream: Name,
    /// When it was created, ISO 8601; `None` where no one wrote it down.
    pub created_at: Option<String>,
    /// Its partitions, in order.
    pub partitions: Vec<PartitionInfo>,
}

/// One partition of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionInfo {
    /// The partition.
    pub partition: u32,
    /// The last sequence given out; 0 where nothing was appended.
    pub high_watermark: u64,
    /// How many entries the log holds.
    pub length: u64,
    /// The lowest sequence that the log still holds; `None` where it holds none.
    pub first: Option<u64>,
}

/// How a new group is made.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// Deliveries after which a failure is a dead letter; at least 1.
    pub max_attempts: u32,
    /// Where it begins.
    pub start: Start,
}

/// The state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Deliveries after which a failure is a dead letter.
    pub max_attempts: u32,
    /// How many dead letters it has.
    pub dead_letters: u64,
    /// The rewind that is under way, if one is.
    pub rewind: Option<RewindKind>,
    /// Its state in each partition, in order.
    pub partitions: Vec<GroupPartition>,
}

impl GroupInfo {
    /// Events between frontier and high watermark, over the partitions that `of` picks.
    #[must_use]
    pub fn lag(&self, of: impl Fn(u32) -> bool) -> u64 {
        self.partitions.iter().filter(|p| of(p.partition)).map(GroupPartition::lag).sum()
    }
}

/// The state of a group in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GroupPartition {
    /// The partition.
    pub partition: u32,
    /// The highest sequence with everything at or below it settled.
    pub frontier: u64,
    /// The last sequence given out in the stream.
    pub high_watermark: u64,
    /// Entries under lease, whether it still holds or ran out.
    pub in_flight: u64,
    /// Entries that wait for the time of their retry, redriven ones that wait for their turn among
    /// them.
    pub parked: u64,
    /// Events that were redriven and are not settled yet, whether they wait or are under lease. The
    /// frontier does not wait for them.
    pub redriven: u64,
    /// Events that were removed from the log before they were settled, so far.
    pub missing: u64,
}

impl GroupPartition {
    /// High watermark less frontier.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.high_watermark.saturating_sub(self.frontier)
    }
}

/// A store of streams, groups, leases and dead letters.
///
/// Every method may fail with an error of the store ([`Error::Unavailable`],
/// [`Error::Ambiguous`], [`Error::Busy`], [`Error::WrongType`] and their kin); below only the
/// others are named. Names are created by [`Name::new`] only; a method that creates refuses
/// others with [`Error::InvalidName`].
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Asks the store for a sign of life.
    async fn ping(&self) -> Result<()>;

    /// Creates a stream with 1 to [`PARTITIONS_MAX`] partitions.
    ///
    /// # Errors
    /// [`Error::StreamExists`], [`Error::InvalidPartitionCount`], [`Error::InvalidName`].
    async fn create_stream(&self, stream: &Name, partitions: u32) -> Result<()>;

    /// All streams, sorted by name.
    async fn streams(&self) -> Result<Vec<StreamSummary>>;

    /// One stream.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`].
    async fn stream_info(&self, stream: &Name) -> Result<StreamInfo>;

    /// Creates a group on all partitions of its stream, or none of it.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupExists`], [`Error::InvalidName`],
    /// [`Error::InvalidMaxAttempts`].
    async fn create_group(&self, group: &GroupKey, new: NewGroup) -> Result<()>;

    /// All groups of a stream, sorted by name.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`].
    async fn groups(&self, stream: &Name) -> Result<Vec<Name>>;

    /// The state of one group.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`].
    async fn group_info(&self, group: &GroupKey) -> Result<GroupInfo>;

    /// Appends events, all or none, in the order given: contiguous sequences per partition,
    /// sequence order = log order. The answer has one item an event, in the same order. An
    /// explicit partition wins over the key; see [`crate::routing::partition_for_key`].
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::PartitionNotFound`], [`Error::InvalidEvent`] (with the
    /// event's index) and [`Error::BatchTooLarge`], each before anything is written.
    async fn append(&self, stream: &Name, events: &[NewEvent]) -> Result<Vec<Appended>>;

    /// A page of a partition's log. What is appended while someone pages through it is found, and
    /// nothing twice: where other writers append beside, a page in ascending order ends before a gap
    /// in the sequences that is younger than [`Settings::append_time_max`].
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::PartitionNotFound`].
    async fn scan(&self, stream: &Name, partition: u32, range: ScanRange) -> Result<ScanPage>;

    /// At most `limit` events of a partition with sequences above `after`, in sequence order; what is
    /// no event is passed over.
    ///
    /// # Errors
    /// Those of [`Backend::scan`].
    async fn read(&self, stream: &Name, partition: u32, after: u64, limit: usize) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut after = Some(after);
        while let Some(from) = after.filter(|_| events.len() < limit) {
            let range = ScanRange::after(from, limit - events.len());
            let page = self.scan(stream, partition, range).await?;
            events.extend(page.events);
            after = page.next;
        }
        Ok(events)
    }

    /// Removes old entries, with their rows in the index and what else is left of them: one bounded
    /// step. Without [`Trim::force`] nothing goes that a group of the stream has not settled, or that
    /// was redriven and is not settled yet.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::PartitionNotFound`].
    async fn trim(&self, stream: &Name, trim: Trim) -> Result<Trimmed>;

    /// Takes events under lease: retries that are due, then new ones; with
    /// [`ClaimRequest::sweep`] also those whose lease ran out. An entry whose attempts are used
    /// up is made a dead letter instead (cause attempts-exhausted; failure expired where its lease
    /// ran out, else that of its last attempt). An entry that is no event is made a dead letter
    /// (cause undecodable) with its raw fields kept.
    ///
    /// A group that the store lost while it still knows its metadata is made again, so that no
    /// unsettled event is passed over.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::PartitionNotFound`].
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claimed>;

    /// Prolongs leases to `lease` from now; per item, in the order given. A lease that ran out
    /// and was not taken by another is renewed. At most [`SETTLE_BATCH_MAX`] items.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::BatchTooLarge`].
    async fn renew(&self, group: &GroupKey, leases: &[Lease], lease: Duration) -> Result<Vec<Settled>>;

    /// Writes verdicts; per item, in the order given, each fence-checked and written in one
    /// atomic step. A stale item changes nothing. An expired lease that no one took still settles.
    ///
    /// An ack's effects are part of its step: either the entry is acked, every staged event stands in
    /// its stream and every write in its bucket, or nothing of that happened. Before the first write
    /// everything is checked that can fail; an item that does not pass changes nothing
    /// ([`Settled::Conflict`], [`Settled::Refused`]), and its neighbours are not affected. An item
    /// sees what the items of its partition before it wrote.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::BatchTooLarge`].
    async fn settle(&self, request: &SettleRequest<'_>) -> Result<Vec<Settled>>;

    /// At most `limit` pending entries of one partition in the order of their receipts, after
    /// the receipt `after`.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::PartitionNotFound`],
    /// [`Error::CursorNotFound`] for a text that is no receipt.
    async fn pending(
        &self,
        group: &GroupKey,
        partition: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<PendingEntry>>;

    /// At most `limit` dead letters of the group, oldest first, after the row `after`.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::CursorNotFound`] for a text
    /// that is no row id.
    async fn dead_letters(
        &self,
        group: &GroupKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>>;

    /// Removes dead letters by their rows. At most [`REDRIVE_BATCH_MAX`] rows. Returns how many were
    /// there.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::BatchTooLarge`].
    async fn purge(&self, group: &GroupKey, rows: &[String]) -> Result<u64>;

    /// Lets the group have the events of dead letters again, by their rows: same event, id and
    /// sequence, attempts afresh; from the row's own copy where the log has the event no more. In the
    /// step that removes the row a durable record takes its place until the event is settled. The
    /// frontier does not move. At most [`REDRIVE_BATCH_MAX`] rows; an answer for each, in order.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::BatchTooLarge`];
    /// [`Error::RewindUnderWay`].
    async fn redrive(&self, group: &GroupKey, rows: &[String]) -> Result<Vec<Redriven>>;

    /// Lets the group have these settled events of the log again, by partition and sequence, as
    /// [`Backend::redrive`] does. At most [`REDRIVE_BATCH_MAX`] events; an answer for each, in order.
    ///
    /// # Errors
    /// As [`Backend::redrive`], and [`Error::PartitionNotFound`].
    async fn redeliver(&self, group: &GroupKey, events: &[(u32, u64)]) -> Result<Vec<Redriven>>;

    /// Begins to replay, reset or delete a group: in one step, a durable marker is written for each
    /// partition touched. From then on all leases above the position (all of them, unless it is a
    /// replay) are stale, and nothing is claimed of these partitions, until
    /// [`Backend::continue_rewind`] has come to the end. Claims go on with it, too. Dead letters stay
    /// (unless the group is deleted); events that were redriven stay where they lie at or below the
    /// position.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::PartitionNotFound`];
    /// [`Error::RewindUnderWay`] where another one is.
    async fn begin_rewind(&self, group: &GroupKey, rewind: &Rewind) -> Result<()>;

    /// One bounded step of the rewind that is under way, if one is: drops some of what is pending, or
    /// moves the group and removes the marker. It leaves no fence behind. A group that is gone has
    /// finished.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`].
    async fn continue_rewind(&self, group: &GroupKey) -> Result<RewindStep>;

    /// What holds the frontier in a partition.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::PartitionNotFound`].
    async fn explain(&self, group: &GroupKey, partition: u32) -> Result<Explanation>;

    /// Looks for damage in one partition of a group, and mends what it finds: one bounded step. Not
    /// part of any claim: a sweeper calls it from time to time. Where it is in doubt whether an event
    /// was settled, it is delivered.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`], [`Error::PartitionNotFound`].
    async fn heal(&self, group: &GroupKey, partition: u32) -> Result<Vec<Repair>>;

    /// The values of some keys of a bucket, with their versions, in the order asked for; `None` for a
    /// key without a value. All are of one moment. At most [`STATE_KEYS_MAX`] keys.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`].
    async fn state(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>>;

    /// A page of the keys of a bucket, from `cursor` on. A page can be empty and not the last one. A
    /// cursor that no page gave is no error; what it gives is not said.
    async fn state_keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys>;

    /// Returns once the group may have something to claim in one of the partitions (a new event,
    /// a retry that came due), or after `timeout`. May return early for no reason.
    ///
    /// # Errors
    /// [`Error::StreamNotFound`], [`Error::GroupNotFound`].
    async fn wait(&self, group: &GroupKey, partitions: &[u32], timeout: Duration) -> Result<()>;

    /// Says that this consumer will not claim again, so that the store can forget its name. A
    /// consumer that still holds something is left alone.
    async fn retire(&self, group: &GroupKey, consumer: &str) -> Result<()>;
}

/// A backend that several parts of a program share.
pub type Shared = Arc<dyn Backend>;
