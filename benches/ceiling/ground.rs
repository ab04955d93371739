//! Where the scenarios of `wasmill bench` run as rows: a runtime like the program's own, and a server.

use std::path::Path;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use wasmill::bench::{Result, Site};
use wasmill::target::Target;

use super::support::redis::RedisServer;

/// Which store a row is about.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Redis,
    Sqlite,
}

pub(crate) struct Ground {
    runtime: Runtime,
    server: Option<RedisServer>,
    folder: TempDir,
}

impl Ground {
    pub(crate) fn new(kind: Kind) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let server = match kind {
            Kind::Redis => Some(RedisServer::start()),
            Kind::Sqlite => None,
        };
        Self { runtime, server, folder: TempDir::new().unwrap() }
    }

    /// Whose time on the processor a row of this store is about.
    pub(crate) fn cpu(&self) -> &'static str {
        if self.server.is_some() { "Redis CPU" } else { "CPU with SQLite" }
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = Result<T>>) -> T {
        self.runtime.block_on(work).unwrap()
    }

    /// A new store.
    pub(crate) fn open(&self) -> Site {
        let url = self.server.as_ref().map_or_else(|| "sqlite:bench.db".to_owned(), RedisServer::url);
        let target = Target::parse(&url, Path::new(self.folder.path())).unwrap();
        self.run(Site::open(&target, CancellationToken::new()))
    }

    /// Works on a store of its own, which is gone afterwards.
    pub(crate) fn on_site<T>(&self, work: impl AsyncFnOnce(&Site) -> Result<T>) -> T {
        let site = self.open();
        let done = self.run(work(&site));
        self.run(site.close());
        done
    }
}
