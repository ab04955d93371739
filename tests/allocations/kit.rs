//! The steps of an event's way, each on a number of events.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use wasmill::backend::redis::Redis;
use wasmill::backend::sqlite::{Clock, Location, Mode, Sqlite};
use wasmill::backend::{ClaimRequest, NewGroup, Settings, SettleRequest, Settled, Shared, Start};
use wasmill::engine::{self, Delivery, Handler, Plugins, UntilIdle};
use wasmill::event::{Event, GroupKey, JsonObject, Name, NewEvent};
use wasmill::outcome::{Effects, Settlement, Verdict};
use wasmill::plugin::{Host, HostSettings, PluginSpec};
use wasmill::target::Target;

use crate::asked;
use crate::support::program::built_plugin;
use crate::support::redis::RedisServer;

/// Events of one call of the store.
const BATCH: usize = 64;
const PAYLOAD: &str = r#"{"order":"o-4711","amount":1299,"currency":"EUR","items":[{"sku":"a","n":1}]}"#;

/// A store with one stream and one group.
pub(crate) struct Bench {
    store: Shared,
    runtime: Runtime,
    folder: TempDir,
    _server: Option<RedisServer>,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub(crate) fn host() -> Arc<Host> {
    Host::new(HostSettings::default()).unwrap()
}

fn group() -> GroupKey {
    GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap())
}

impl Bench {
    pub(crate) fn sqlite() -> Self {
        let (runtime, folder) = (runtime(), TempDir::new().unwrap());
        let location = Location::File(folder.path().join("wasmill.db"));
        let settings = Settings::default();
        let opened = runtime.block_on(Sqlite::open(location, Mode::Create, &settings, Clock::System));
        let store = Arc::new(opened.unwrap());
        Self { store, runtime, folder, _server: None }.made()
    }

    pub(crate) fn redis() -> Self {
        let (runtime, folder, server) = (runtime(), TempDir::new().unwrap(), RedisServer::start());
        let Ok(Target::Redis(url)) = Target::parse(&server.url(), Path::new("/")) else {
            panic!("the server's URL is no target")
        };
        let store = Arc::new(runtime.block_on(Redis::connect(&url, &Settings::default())).unwrap());
        Self { store, runtime, folder, _server: Some(server) }.made()
    }

    fn made(self) -> Self {
        self.runtime.block_on(async {
            self.store.create_stream(&group().stream, 1).await.unwrap();
            let new = NewGroup { max_attempts: 5, start: Start::Beginning };
            self.store.create_group(&group(), new).await.unwrap();
        });
        self
    }

    /// Appends events, and acks them again; counts the first.
    pub(crate) fn append(&self, events: usize) -> usize {
        let before = asked();
        self.runtime.block_on(self.fill(events));
        let counted = asked() - before;
        self.runtime.block_on(self.empty(events));
        counted
    }

    /// Appends events, claims and acks them in order; counts the last two.
    pub(crate) fn claim_ack(&self, events: usize) -> usize {
        self.runtime.block_on(self.fill(events));
        let before = asked();
        self.runtime.block_on(self.empty(events));
        asked() - before
    }

    /// Appends events, and has an engine with the smallest handler work them off; counts the engine.
    pub(crate) fn engine(&self, host: &Arc<Host>, events: usize) -> usize {
        let file = self.folder.path().join("wasmill.toml");
        let plugin = built_plugin("passthrough");
        let text = format!(
            "[plugins.p]\npath = {plugin:?}\n[[pipeline]]\nname = \"p\"\nplugin = \"p\"\n\
             stream = \"{}\"\ngroup = \"{}\"\n",
            group().stream,
            group().group
        );
        std::fs::write(&file, text).unwrap();
        let config = wasmill::config::load(&file, &|_| None).unwrap();
        self.runtime.block_on(async {
            self.fill(events).await;
            let plugins = Plugins::load(Arc::clone(host), &config).await.unwrap();
            let slot = plugins.slot("p").unwrap();
            let pipeline =
                engine::assemble(self.store.as_ref(), &config, &config.pipelines[0], slot).await.unwrap();
            let settings = engine::Settings {
                drain_timeout: Duration::from_secs(10),
                until_idle: Some(UntilIdle::default()),
                consumer: "c".to_owned(),
                hops_max: 32,
            };
            let (store, stop) = (Arc::clone(&self.store), CancellationToken::new());
            let before = asked();
            let ended = engine::run(store, vec![pipeline], settings, Arc::default(), None, stop).await;
            let counted = asked() - before;
            assert_eq!(ended[0].summary.acked, events as u64, "{:?}", ended[0].error);
            counted
        })
    }

    async fn fill(&self, events: usize) {
        let batch = vec![event(); BATCH];
        let mut left = events;
        while left > 0 {
            let some = left.min(BATCH);
            self.store.append(&group().stream, &batch[..some]).await.unwrap();
            left -= some;
        }
    }

    async fn empty(&self, events: usize) {
        let group = group();
        let mut left = events;
        while left > 0 {
            let request = ClaimRequest {
                group: &group,
                consumer: "c",
                partitions: &[0],
                limit: BATCH,
                lease: Duration::from_secs(3600),
                sweep: false,
                alone: false,
            };
            let leased = self.store.claim(&request).await.unwrap().leased;
            assert_eq!(leased.len(), left.min(BATCH));
            left -= leased.len();
            let settlements: Vec<Settlement> = leased
                .into_iter()
                .map(|leased| Settlement {
                    lease: leased.lease,
                    verdict: Verdict::Ack(Effects::default()),
                    plugin: None,
                })
                .collect();
            let request = SettleRequest { group: &group, consumer: "c", settlements: &settlements };
            let answers = self.store.settle(&request).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Settled::Done), "{answers:?}");
        }
    }
}

/// An event with an id, a key, a type and a small payload.
fn event() -> NewEvent {
    NewEvent {
        id: Some("wR3bU5pTQyO8Gk1nV0hJ2A".to_owned()),
        key: Some("customer-17".to_owned()),
        event_type: Some("order.placed".to_owned()),
        ..NewEvent::new(JsonObject::parse(PAYLOAD).unwrap())
    }
}

/// Calls a warm handler that does nothing but log one line, which no one reads.
pub(crate) fn call(host: &Arc<Host>, calls: usize) -> usize {
    runtime().block_on(async {
        let spec = PluginSpec::new("p", built_plugin("passthrough"));
        let handler: Arc<dyn Handler> = host.load(&spec).await.unwrap();
        let event = Event {
            id: "wR3bU5pTQyO8Gk1nV0hJ2A".to_owned(),
            stream: group().stream,
            partition: 0,
            sequence: 4711,
            timestamp: "2026-01-02T03:04:05.678Z".to_owned(),
            key: Some("customer-17".to_owned()),
            event_type: Some("order.placed".to_owned()),
            metadata: JsonObject::empty(),
            payload: JsonObject::parse(PAYLOAD).unwrap(),
        };
        let delivery = Delivery { pipeline: "p", group: "g", attempt: 1, max_attempts: 5, state: None };
        let before = asked();
        for _ in 0..calls {
            handler.handle(&event, &delivery).await.unwrap();
        }
        asked() - before
    })
}
