//! What the tests of the plugin host share.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing::instrument::WithSubscriber;
use wasmill::event::{Event, JsonObject, Name};
use wasmill::outcome::{Fault, Outcome};
use wasmill::plugin::{Delivery, Host, HostSettings, Plugin, PluginSpec, StateSource};
use wasmill::state::{Bucket, StateKeys, StateValue};

pub(crate) const DELIVERY: Delivery<'static> =
    Delivery { pipeline: "p", group: "g", attempt: 1, max_attempts: 5, state: None };

/// A store of state in memory.
#[derive(Default)]
pub(crate) struct Memory(pub(crate) Mutex<BTreeMap<(Bucket, String), StateValue>>);

impl Memory {
    /// Puts a value there, as another commit would.
    pub(crate) fn put(&self, bucket: &str, key: &str, version: u64, value: &str) {
        let bucket = Bucket::own("p", bucket).unwrap();
        let value = StateValue { version, bytes: value.as_bytes().to_vec() };
        self.0.lock().unwrap().insert((bucket, key.to_owned()), value);
    }
}

#[async_trait::async_trait]
impl StateSource for Memory {
    async fn get(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>, String> {
        let values = self.0.lock().unwrap();
        Ok(keys.iter().map(|key| values.get(&(bucket.clone(), key.clone())).cloned()).collect())
    }

    async fn keys(&self, bucket: &Bucket, _: Option<u64>) -> Result<StateKeys, String> {
        let values = self.0.lock().unwrap();
        let keys = values.keys().filter(|(of, _)| of == bucket).map(|(_, key)| key.clone()).collect();
        Ok(StateKeys { keys, cursor: None })
    }
}

/// Asks for a behaviour of the guest `hostile`, with state in `memory`.
pub(crate) async fn ask_with(
    plugin: &Plugin,
    behaviour: &str,
    memory: &Arc<Memory>,
) -> Result<Outcome, Fault> {
    let state = Some(Arc::clone(memory) as Arc<dyn StateSource>);
    plugin.handle(&event(behaviour, "{}"), &Delivery { state, ..DELIVERY }).await
}

/// A component that `scripts/build-plugins` built.
pub(crate) fn guest(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("target/plugins/{name}.wasm"));
    assert!(path.exists(), "{} is missing: run scripts/build-plugins", path.display());
    path
}

/// A host whose compiled plugins are kept from test to test.
pub(crate) fn host() -> Arc<Host> {
    let cache_dir = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache"));
    Host::new(HostSettings { cache_dir }).unwrap()
}

/// Loads a built component after `adapt` has changed how.
pub(crate) async fn load(name: &str, adapt: impl FnOnce(&mut PluginSpec)) -> Arc<Plugin> {
    let mut spec = PluginSpec::new(name, guest(name));
    adapt(&mut spec);
    host().load(&spec).await.unwrap()
}

pub(crate) fn event(event_type: &str, payload: &str) -> Event {
    Event {
        id: "e-1".to_owned(),
        stream: Name::new("s").unwrap(),
        partition: 2,
        sequence: 7,
        timestamp: "2026-01-02T03:04:05.678Z".to_owned(),
        key: Some("k".to_owned()),
        event_type: Some(event_type.to_owned()),
        metadata: JsonObject::parse(r#"{"a":"x","n":1}"#).unwrap(),
        payload: JsonObject::parse(payload).unwrap(),
    }
}

/// Asks for a behaviour of the guest `hostile`.
pub(crate) async fn ask(plugin: &Plugin, behaviour: &str) -> Result<Outcome, Fault> {
    plugin.handle(&event(behaviour, "{}"), &DELIVERY).await
}

/// The reason of a rejection.
pub(crate) fn rejection(result: Result<Outcome, Fault>) -> String {
    match result {
        Ok(Outcome::Reject { reason }) => reason,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

/// The reason of a retry.
pub(crate) fn retry(result: Result<Outcome, Fault>) -> String {
    match result {
        Ok(Outcome::Retry { reason, .. }) => reason,
        other => panic!("expected a retry, got {other:?}"),
    }
}

/// Runs a future and gives what it logged from the level debug on, one JSON object an event.
pub(crate) async fn logged<T>(future: impl Future<Output = T>) -> (T, Vec<Value>) {
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);
    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .finish();
    let done = future.with_subscriber(subscriber).await;
    let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    (done, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// What guests logged, as `LEVEL message`.
pub(crate) fn guest_lines(events: &[Value]) -> Vec<String> {
    let guests = events.iter().filter(|event| event["target"] == "guest");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    guests.map(|event| format!("{} {}", text(&event["level"]), text(&event["fields"]["message"]))).collect()
}

/// Writes a file of the test's own.
pub(crate) fn written(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A component of the handler world around the core module's functions and data in `core`. The
/// answer is what lies at address 0: zeros are an ack.
pub(crate) fn handler_component(core: &str) -> Vec<u8> {
    component_around("(i32.const 0)", core)
}

/// The same with `handle` as the body of the handler, which gives the address of the answer.
pub(crate) fn component_around(handle: &str, core: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            (import "wasmill:handler/types@0.1.0" (instance $types
                (type $event (record
                    (field "id" string) (field "stream-name" string) (field "partition" u32)
                    (field "sequence" u64) (field "timestamp" string) (field "timestamp-ms" (option s64))
                    (field "key" (option string)) (field "event-type" (option string))
                    (field "metadata" (list (tuple string string))) (field "payload" (list u8))))
                (export "event" (type (eq $event)))
                (type $delivery (record
                    (field "pipeline" string) (field "group" string) (field "attempt" u32)
                    (field "max-attempts" u32) (field "timeout-ms" u32)))
                (export "delivery" (type (eq $delivery)))
                (type $retry (record (field "reason" string) (field "delay-ms" (option u32))))
                (export "retry" (type $named-retry (eq $retry)))
                (type $failure (variant (case "retry" $named-retry) (case "reject" string)))
                (export "failure" (type (eq $failure)))))
            (alias export $types "event" (type $event))
            (alias export $types "delivery" (type $delivery))
            (alias export $types "failure" (type $failure))
            (core module $core
                (memory (export "memory") 1)
                (global $free (mut i32) (i32.const 4096))
                (func (export "realloc") (param i32 i32 i32 i32) (result i32)
                    (global.get $free)
                    (global.set $free (i32.and (i32.const -8)
                        (i32.add (i32.const 7) (i32.add (global.get $free) (local.get 3))))))
                (func (export "handle") (param i32) (result i32) {handle})
                {core})
            (core instance $i (instantiate $core))
            (func (export "handle")
                (param "event" $event) (param "delivery" $delivery) (result (result (error $failure)))
                (canon lift (core func $i "handle") 
                    (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))"#
    );
    wat::parse_str(text).unwrap()
}
