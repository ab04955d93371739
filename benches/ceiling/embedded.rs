//! The embedded store in a directory of its own, by itself and under an engine.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use wasmill::backend::sqlite::{Clock, Location, Mode, Sqlite};
use wasmill::backend::{Settings, Synchronous};
use wasmill::engine::{self, Plugins, UntilIdle};
use wasmill::plugin::{Host, HostSettings};

use super::own;
use super::support::program::built_plugin;

pub(crate) struct Embedded {
    pub(crate) store: Arc<Sqlite>,
    pub(crate) runtime: Runtime,
    directory: TempDir,
}

impl Embedded {
    /// An empty store.
    pub(crate) fn open(synchronous: Synchronous) -> Self {
        let directory = TempDir::new().unwrap();
        let runtime = Runtime::new().unwrap();
        let settings = Settings { synchronous, ..Settings::default() };
        let location = Location::File(directory.path().join("own.db"));
        let store = runtime.block_on(Sqlite::open(location, Mode::Create, &settings, Clock::System)).unwrap();
        Self { store: Arc::new(store), runtime, directory }
    }

    /// Claims everything that was appended and acks it, a batch after the other, as an engine with a
    /// handler that does nothing.
    pub(crate) fn claim_ack(&self, events: usize, batch: usize) {
        self.runtime.block_on(own::claim_ack(self.store.as_ref(), events, batch));
    }

    /// Has a whole engine with the smallest handler work off what was appended; events a second.
    pub(crate) fn engine(&self, host: &Arc<Host>) -> f64 {
        let file = self.directory.path().join("wasmill.toml");
        let (plugin, group) = (built_plugin("passthrough"), own::group());
        let text = format!(
            "[plugins.p]\npath = {plugin:?}\n[[pipeline]]\nname = \"p\"\nplugin = \"p\"\n\
             stream = \"{}\"\ngroup = \"{}\"\n",
            group.stream, group.group
        );
        std::fs::write(&file, text).unwrap();
        let config = wasmill::config::load(&file, &|_| None).unwrap();
        let ended = self.runtime.block_on(async {
            let plugins = Plugins::load(Arc::clone(host), &config).await.unwrap();
            let slot = plugins.slot("p").unwrap();
            let pipeline =
                engine::assemble(self.store.as_ref(), &config, &config.pipelines[0], slot).await.unwrap();
            let settings = engine::Settings {
                drain_timeout: Duration::from_secs(10),
                until_idle: Some(UntilIdle::default()),
                consumer: "bench".to_owned(),
                hops_max: 32,
            };
            let (backend, stop) = (Arc::clone(&self.store) as _, CancellationToken::new());
            engine::run(backend, vec![pipeline], settings, Arc::default(), None, stop).await
        });
        ended[0].summary.events_per_second
    }
}

pub(crate) fn host() -> Arc<Host> {
    Host::new(HostSettings::default()).unwrap()
}
