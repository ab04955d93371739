//! What a guest hands over, its answer and the events that it appends → an outcome or a fault.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wasmill::event::{Event, JsonObject, Name};
use wasmill::outcome::Outcome;
use wasmill::plugin::{Delivery, Host, HostSettings, Plugin, PluginSpec};

/// Bytes of the input that the guest has room for.
const INPUT_MAX: usize = 7 * 1024;

/// The input is laid into the guest's memory: `answer.wat` says what is made of it.
pub(crate) fn answer(input: &[u8]) {
    let input = &input[..input.len().min(INPUT_MAX)];
    let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    let event = Event {
        id: "e-1".to_owned(),
        stream: Name::new("s").unwrap(),
        partition: 0,
        sequence: 1,
        timestamp: String::new(),
        key: None,
        event_type: None,
        metadata: JsonObject::empty(),
        payload: JsonObject::parse(format!("{{\"\":\"{hex}\"}}")).unwrap(),
    };
    let delivery = Delivery { pipeline: "p", group: "g", attempt: 1, max_attempts: 5, state: None };
    let plugin = plugin();
    match super::bounded("a call", plugin.handle(&event, &delivery)) {
        Ok(Outcome::Ack(effects)) => {
            assert!(
                effects.appends.len() <= 3 && effects.bytes() <= plugin.limits().effects.event_bytes_sum_max
            );
            assert!(effects.appends.iter().all(|staged| staged.stream.as_str() == "audit"), "not granted");
        }
        Ok(Outcome::TooManyHops { .. }) => panic!("no hop was made"),
        Ok(Outcome::Retry { reason, .. } | Outcome::Reject { reason }) => {
            // Its text comes out of the guest's memory of one page; what is kept of it is cut later.
            assert!(reason.len() <= 64 * 1024, "{} bytes", reason.len());
        }
        Err(fault) => assert!(!fault.message.is_empty() && !fault.message.contains("panicked"), "{fault:?}"),
    }
}

fn plugin() -> &'static Arc<Plugin> {
    static PLUGIN: OnceLock<Arc<Plugin>> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answer.wasm");
        std::fs::write(&path, wat::parse_str(include_str!("answer.wat")).unwrap()).unwrap();
        let mut spec = PluginSpec::new("answer", &path);
        spec.grants.streams = vec![Name::new("audit").unwrap()];
        spec.limits.timeout = Duration::from_secs(60);
        let host = Host::new(HostSettings { cache_dir: Some(dir.path().join("cache")) }).unwrap();
        super::bounded("loading the guest", host.load(&spec)).unwrap()
    })
}
