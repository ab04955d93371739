//! Where a benchmark works: a store of its own, which it removes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Error, Result};
use crate::backend::redis::Redis;
use crate::backend::sqlite::{Clock, Location, Mode, Sqlite};
use crate::backend::{Settings, Shared};
use crate::event::random_id;
use crate::target::Target;

/// What the namespaces of all benchmarks on Redis begin with; a point and a random part follow, so that
/// a benchmark finds nothing there, and two of them do not meet.
pub const NAMESPACE: &str = "Wasmill.Bench";

/// A store that a benchmark may fill.
pub struct Site {
    /// The store.
    pub backend: Shared,
    /// The same store, where it is a Redis server.
    pub redis: Option<Arc<Redis>>,
    made: Made,
    stop: CancellationToken,
}

/// What is to be removed.
enum Made {
    Nothing,
    Namespace(String),
    File(PathBuf),
}

impl Site {
    /// Makes a new, empty store at `target`: a namespace of its own on Redis, else a new file. Once
    /// `stop` is cancelled, the scenario on it ends.
    ///
    /// # Errors
    /// [`Error::Occupied`] where the file is there already; the store's own.
    pub async fn open(target: &Target, stop: CancellationToken) -> Result<Self> {
        let namespace = format!("{NAMESPACE}.{}", &random_id()[..8]);
        let settings = Settings { namespace: namespace.clone(), ..Settings::default() };
        let (location, made) = match target {
            Target::Redis(url) => {
                let redis = Arc::new(Redis::connect(url, &settings).await?);
                let backend = Arc::clone(&redis) as Shared;
                return Ok(Self { backend, redis: Some(redis), made: Made::Namespace(namespace), stop });
            }
            Target::Sqlite(path) if path.exists() => return Err(Error::Occupied(path.clone())),
            Target::Sqlite(path) => (Location::File(path.clone()), Made::File(path.clone())),
            Target::Memory => (Location::Memory, Made::Nothing),
        };
        let opened = Sqlite::open(location, Mode::Create, &settings, Clock::System).await;
        Ok(Self { backend: Arc::new(opened?), redis: None, made, stop })
    }

    /// Removes the store with all that is in it.
    ///
    /// # Errors
    /// Says what stays behind.
    pub async fn close(self) -> Result<()> {
        match self.made {
            Made::Nothing => {}
            Made::Namespace(namespace) => {
                let Some(redis) = self.redis else { return Ok(()) };
                let cleared = redis.clear_namespace().await;
                cleared.map_err(|error| left_behind(&format!("the keys rheo:{namespace}:*"), &error))?;
            }
            Made::File(path) => {
                drop(self.backend);
                for suffix in ["", "-wal", "-shm"] {
                    remove(&with_suffix(&path, suffix))?;
                }
            }
        }
        Ok(())
    }

    /// What a process that ends at once leaves behind, in words; `None` where that is nothing.
    #[must_use]
    pub fn remains(&self) -> Option<String> {
        match &self.made {
            Made::Nothing => None,
            Made::Namespace(namespace) => Some(format!("the keys rheo:{namespace}:*")),
            Made::File(path) => Some(format!("the file {}", path.display())),
        }
    }

    /// When the scenario is to end.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Fails once the scenario is to end.
    pub(super) fn going(&self) -> Result<()> {
        if self.stop.is_cancelled() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

fn left_behind(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Wrong(format!("{what} could not be removed, and are still there: {error}"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a file; that there is none is as good.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::File { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}
