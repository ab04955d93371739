//! What is particular to this backend; what it shares with others is in the conformance suite.

mod opening;
mod plans;
mod redriving;
mod rewinding;
mod sharing;
mod tampering;
mod time;
mod trimming;
mod undoing;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::backend::Start;
use crate::event::{JsonObject, Leased};
use crate::outcome::{Effects, Settlement, Verdict};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

/// A directory for a database, gone with the test.
struct Place {
    directory: TempDir,
    clock: ManualClock,
}

impl Place {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), clock: ManualClock::default() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("log.db")
    }

    async fn open(&self) -> Sqlite {
        self.open_as(Mode::Create, &Settings::default()).await.unwrap()
    }

    async fn open_as(&self, mode: Mode, settings: &Settings) -> Result<Sqlite> {
        open(&self.path(), mode, settings, Clock::Manual(self.clock.clone())).await
    }

    /// A connection of someone else's.
    fn stranger(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

async fn open(path: &Path, mode: Mode, settings: &Settings, clock: Clock) -> Result<Sqlite> {
    Sqlite::open(Location::File(path.to_owned()), mode, settings, clock).await
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key() -> GroupKey {
    GroupKey::new(name("orders"), name("billing"))
}

fn events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| NewEvent::new(JsonObject::parse(format!(r#"{{"n":{n}}}"#)).unwrap())).collect()
}

/// A stream of `partitions` partitions with a group.
async fn prepare(store: &Sqlite, partitions: u32, max_attempts: u32) {
    store.create_stream(&key().stream, partitions).await.unwrap();
    store.create_group(&key(), NewGroup { max_attempts, start: Start::Beginning }).await.unwrap();
}

fn request<'a>(key: &'a GroupKey, partitions: &'a [u32], limit: usize) -> ClaimRequest<'a> {
    ClaimRequest { group: key, consumer: "c", partitions, limit, lease: LONG, sweep: false, alone: false }
}

async fn claim(store: &Sqlite, limit: usize) -> Claimed {
    store.claim(&request(&key(), &[0], limit)).await.unwrap()
}

async fn settle(store: &Sqlite, leased: &[Leased], verdict: Verdict) -> Vec<Settled> {
    let settlements: Vec<Settlement> = leased
        .iter()
        .map(|leased| Settlement { lease: leased.lease.clone(), verdict: verdict.clone(), plugin: None })
        .collect();
    let request = SettleRequest { group: &key(), consumer: "c", settlements: &settlements };
    store.settle(&request).await.unwrap()
}

fn ack() -> Verdict {
    Verdict::Ack(Effects::default())
}

/// The result of `work`, which must not take for ever.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it takes too long")
}
