//! The backends under test, each with an empty store of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use wasmill::backend::conformance::{EVENT_BYTES_MAX, Store};
use wasmill::backend::redis::Redis;
use wasmill::backend::sqlite::{Clock, Location, ManualClock, Mode, Sqlite};
use wasmill::backend::{Settings, Shared, Synchronous};
use wasmill::target::Target;

use crate::server::RedisServer;

fn settings(namespace: &str) -> Settings {
    Settings {
        namespace: namespace.to_owned(),
        event_bytes_max: EVENT_BYTES_MAX,
        // No check cuts the power; waiting for the disk would only make them slow.
        synchronous: Synchronous::Normal,
        ..Settings::default()
    }
}

async fn open(location: Location, namespace: &str, clock: &ManualClock) -> anyhow::Result<Shared> {
    let clock = Clock::Manual(clock.clone());
    Ok(Arc::new(Sqlite::open(location, Mode::Create, &settings(namespace), clock).await?))
}

/// The embedded store, with a clock that stands still until it is moved.
pub(crate) struct SqliteStore {
    backend: Shared,
    clock: ManualClock,
    /// Where its file is; a database in memory has none.
    folder: Option<TempDir>,
}

impl SqliteStore {
    fn location(folder: Option<&TempDir>) -> Location {
        let file = |folder: &TempDir| -> PathBuf { folder.path().join("events.db") };
        folder.map_or(Location::Memory, |folder| Location::File(file(folder)))
    }

    async fn new(folder: Option<TempDir>) -> Self {
        let clock = ManualClock::default();
        let backend = open(Self::location(folder.as_ref()), "Test", &clock).await.unwrap();
        Self { backend, clock, folder }
    }
}

/// A database in memory.
pub(crate) async fn sqlite_memory() -> SqliteStore {
    SqliteStore::new(None).await
}

/// A file.
pub(crate) async fn sqlite_file() -> SqliteStore {
    SqliteStore::new(Some(tempfile::tempdir().unwrap())).await
}

#[async_trait::async_trait]
impl Store for SqliteStore {
    fn backend(&self) -> Shared {
        self.backend.clone()
    }

    async fn other(&self) -> anyhow::Result<Shared> {
        match &self.folder {
            Some(folder) => open(Self::location(Some(folder)), "Test", &self.clock).await,
            // No other process can have it.
            None => Ok(self.backend.clone()),
        }
    }

    async fn elsewhere(&self) -> anyhow::Result<Shared> {
        open(Self::location(self.folder.as_ref()), "Elsewhere", &self.clock).await
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn moves_time(&self) -> bool {
        true
    }
}

/// A namespace of its own on a real server, whose clock no one can move.
pub(crate) struct RedisStore {
    backend: Shared,
    namespace: String,
    server: Arc<RedisServer>,
}

impl RedisStore {
    /// A store on this server that no other one shares.
    pub(crate) async fn on(server: Arc<RedisServer>) -> Self {
        static STORES: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("Test.{}", STORES.fetch_add(1, Ordering::Relaxed));
        let backend = Self::connect(&server, &namespace).await.unwrap();
        Self { backend, namespace, server }
    }

    async fn connect(server: &RedisServer, namespace: &str) -> anyhow::Result<Shared> {
        match Target::parse(&server.url(), Path::new("."))? {
            Target::Redis(url) => Ok(Arc::new(Redis::connect(&url, &settings(namespace)).await?)),
            other => anyhow::bail!("a server's URL is that of a server: found {other:?}"),
        }
    }
}

/// A server of its own.
pub(crate) async fn redis() -> RedisStore {
    RedisStore::on(Arc::new(RedisServer::start())).await
}

#[async_trait::async_trait]
impl Store for RedisStore {
    fn backend(&self) -> Shared {
        self.backend.clone()
    }

    async fn other(&self) -> anyhow::Result<Shared> {
        Self::connect(&self.server, &self.namespace).await
    }

    async fn elsewhere(&self) -> anyhow::Result<Shared> {
        Self::connect(&self.server, "Elsewhere").await
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn moves_time(&self) -> bool {
        false
    }
}
