//! The host's warm call of a handler that does nothing but log one line, which no one reads, against bare
//! wasmtime's typed call of the same component with the same event.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use wasmill::engine::{Delivery, Handler};
use wasmill::event::{Event, JsonObject, Name};
use wasmill::plugin::{Host, HostSettings, PluginSpec, StateSource};
use wasmill::state::{Bucket, StateKeys, StateValue};

use crate::bare::{Bare, Way};
use crate::line::{self, Budget};
use crate::rig::payload;
use crate::sides::alternate;
use crate::support::program::built_plugin;

const ROUNDS: usize = 15;
const CALLS: u32 = 20_000;
const BYTES: usize = 1024;

/// What an event has besides its payload: nothing, or what the engine writes to events that a handler
/// appends.
const METADATA: [(&str, &str); 2] = [
    ("no metadata", "{}"),
    (
        "lineage",
        r#"{"causation_id":"eHBzBfHwUWDCOqjZYm2PMw","correlation_id":"eHBzBfHwUWDCOqjZYm2PMw","hops":1}"#,
    ),
];

/// State that no one asks for.
struct NoState;

#[async_trait::async_trait]
impl StateSource for NoState {
    async fn get(&self, _: &Bucket, _: &[String]) -> Result<Vec<Option<StateValue>>, String> {
        Err("there is no state".to_owned())
    }

    async fn keys(&self, _: &Bucket, _: Option<u64>) -> Result<StateKeys, String> {
        Err("there is no state".to_owned())
    }
}

fn event(metadata: &str) -> Event {
    Event {
        id: "wR3bU5pTQyO8Gk1nV0hJ2A".to_owned(),
        stream: Name::new("orders").unwrap(),
        partition: 0,
        sequence: 123_456,
        timestamp: "2026-01-02T03:04:05.678Z".to_owned(),
        key: None,
        event_type: Some("bench".to_owned()),
        metadata: JsonObject::parse(metadata).unwrap(),
        payload: JsonObject::parse(payload(BYTES)).unwrap(),
    }
}

/// One thread, of the kind that handlers have in an engine.
fn thread() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Nanoseconds a call.
async fn timed(calls: impl Future<Output = ()>) -> f64 {
    let start = Instant::now();
    calls.await;
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

pub(crate) fn run() {
    let runtime = thread();
    let cache = tempfile::tempdir().unwrap();
    let host = Host::new(HostSettings { cache_dir: Some(cache.path().to_owned()) }).unwrap();
    let spec = PluginSpec::new("passthrough", built_plugin("passthrough"));
    let handler: Arc<dyn Handler> = runtime.block_on(host.load(&spec)).unwrap();
    let bare = Arc::new(tokio::sync::Mutex::new(runtime.block_on(Bare::new())));
    let state: Arc<dyn StateSource> = Arc::new(NoState);

    for (what, metadata) in METADATA {
        let event = Arc::new(event(metadata));
        let own = || {
            let (handler, event, state) = (Arc::clone(&handler), Arc::clone(&event), Arc::clone(&state));
            let calls = async move {
                for _ in 0..CALLS {
                    let state = Some(Arc::clone(&state));
                    let delivery = Delivery { pipeline: "p", group: "g", attempt: 1, max_attempts: 5, state };
                    handler.handle(&event, &delivery).await.unwrap();
                }
            };
            runtime.block_on(runtime.spawn(timed(calls))).unwrap()
        };
        for (way, against, budget) in
            [(Way::Async, "", Budget::AtMost(2.0)), (Way::Sync, ", call without a stack", Budget::None)]
        {
            let floor = || {
                let (bare, event) = (Arc::clone(&bare), Arc::clone(&event));
                let calls = async move { bare.lock().await.call(way, &event, CALLS).await };
                runtime.block_on(runtime.spawn(timed(calls))).unwrap()
            };
            let compared = alternate(ROUNDS, own, floor);
            line::ratio(&format!("warm call, {BYTES} B, {what}{against}"), "ns", &compared, budget);
        }
    }
}
