//! An engine in the test's own process, over a store in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wasmill::backend::sqlite::{Clock, Location, Mode, Sqlite};
use wasmill::backend::{NewGroup, Settings, Shared, Start};
use wasmill::engine::{
    self, Conditions, Ended, PartitionChoice, Pipeline, Remote, Retention, Slot, UntilIdle, Wanted,
};
use wasmill::event::{GroupKey, JsonObject, Name, NewEvent};
use wasmill::outcome::OnFault;
use wasmill::plugin::{Host, HostSettings, Plugin, PluginSpec};
use wasmill::retry::RetryPolicy;

use crate::support::program::{PATIENCE, built_plugin};

pub(crate) struct Engine {
    pub(crate) backend: Shared,
    pub(crate) conditions: Arc<Conditions>,
    pub(crate) remote: Remote,
    stop: CancellationToken,
    running: JoinHandle<Vec<Ended>>,
}

/// A store in memory.
pub(crate) async fn store() -> Shared {
    let opened = Sqlite::open(Location::Memory, Mode::Create, &Settings::default(), Clock::System).await;
    Arc::new(opened.unwrap())
}

/// A group over the one partition of the stream of the same name, both made new.
pub(crate) async fn group(backend: &Shared, name: &str) -> GroupKey {
    let name = Name::new(name).unwrap();
    backend.create_stream(&name, 1).await.unwrap();
    let key = GroupKey::new(name.clone(), name);
    backend.create_group(&key, NewGroup { max_attempts: 5, start: Start::Beginning }).await.unwrap();
    key
}

pub(crate) async fn plugin(name: &str, timeout: Duration) -> Arc<Plugin> {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache"));
    let host = Host::new(HostSettings { cache_dir }).unwrap();
    let mut spec = PluginSpec::new(name, built_plugin(name));
    spec.limits.timeout = timeout;
    host.load(&spec).await.unwrap()
}

/// A pipeline of the group's name.
pub(crate) fn pipeline(
    group: &GroupKey,
    plugin: Arc<Slot>,
    concurrency: usize,
    on_fault: OnFault,
) -> Pipeline {
    Pipeline {
        name: group.group.as_str().into(),
        group: group.clone(),
        partitions: vec![0],
        concurrency,
        in_flight_max: concurrency.max(256),
        lease: Duration::from_secs(30),
        retry: RetryPolicy { max_attempts: 5, ..RetryPolicy::default() },
        on_fault,
        plugin,
        retention: Retention::default(),
        wanted: Wanted {
            group: group.clone(),
            stream_partitions: None,
            partitions: PartitionChoice::All,
            max_attempts: None,
            start: Start::Beginning,
        },
    }
}

impl Engine {
    pub(crate) fn start(backend: Shared, pipelines: Vec<Pipeline>, until_idle: bool) -> Self {
        let (conditions, stop) = (Arc::<Conditions>::default(), CancellationToken::new());
        let (remote, changes) = engine::remote();
        let settings = engine::Settings {
            drain_timeout: Duration::from_millis(100),
            until_idle: until_idle.then_some(UntilIdle { wait: None }),
            consumer: "tester".to_owned(),
            hops_max: 32,
        };
        let run = engine::run(
            Arc::clone(&backend),
            pipelines,
            settings,
            Arc::clone(&conditions),
            (!until_idle).then_some(changes),
            stop.clone(),
        );
        Self { backend, conditions, remote, stop, running: tokio::spawn(run) }
    }

    pub(crate) async fn append(&self, group: &GroupKey, event_type: &str, count: usize) {
        let event =
            NewEvent { event_type: Some(event_type.to_owned()), ..NewEvent::new(JsonObject::empty()) };
        for batch in vec![event; count].chunks(500) {
            self.backend.append(&group.stream, batch).await.unwrap();
        }
    }

    pub(crate) async fn lag(&self, group: &GroupKey) -> u64 {
        self.backend.group_info(group).await.unwrap().lag(|_| true)
    }

    pub(crate) async fn end(self) -> Vec<Ended> {
        self.running.await.unwrap()
    }

    pub(crate) async fn stop(self) -> Vec<Ended> {
        self.stop.cancel();
        self.end().await
    }
}

/// Waits until `done`.
pub(crate) async fn wait_until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
