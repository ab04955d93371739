//! What each language's SDK does, from outside: `tests/guests/probe` says what is asked.

use serde_json::json;

use crate::kit::{faults, file, passes};
use crate::support::program::{Site, Store};

in_every_language!(
    does_what_events_ask,
    errors_reach_the_dead_letter,
    crashes_reach_the_dead_letter,
    a_leak_is_ended_by_a_new_instance,
);

fn does_what_events_ask(language: &str) {
    passes(&format!("probe-{language}"), &file("tests/guests/probe/events.jsonl"));
}

fn event(id: &str, payload: serde_json::Value) -> String {
    json!({ "id": id, "payload": payload }).to_string()
}

fn errors_reach_the_dead_letter(language: &str) {
    let site = Site::new(Store::Sqlite);
    site.pipeline(&format!("probe-{language}"), "", "retry = { max_attempts = 2, initial = \"10ms\" }");
    site.append(&[
        event("raise", json!({ "do": "raise", "reason": "the disk is on fire" })),
        event("retry", json!({ "do": "retry", "reason": "not yet" })),
        event("reject", json!({ "do": "reject", "reason": "never" })),
    ]);
    let summary = site.until_idle(&[]);
    assert_eq!(faults(&summary), [0; 3], "an error is no fault: {summary}");
    let dead = site.dead_letters();
    let of = |id: &str| dead.iter().find(|letter| letter["event"]["id"] == id).unwrap();
    let reason = of("raise")["reason"].as_str().unwrap();
    assert!(reason.contains("the disk is on fire"), "{reason}");
    // `Type: message`, but for C, which has no errors that have a type.
    let kind = reason.split(": ").next().unwrap();
    assert!(language == "c" || (!kind.contains(' ') && kind.len() > 3), "{reason}");
    assert_eq!(of("raise")["cause"], "attempts-exhausted");
    assert!(of("retry")["reason"].as_str().unwrap().contains("not yet"));
    assert_eq!(of("reject")["reason"], "never");
    assert_eq!(of("reject")["cause"], "rejected");
}

fn crashes_reach_the_dead_letter(language: &str) {
    let site = Site::new(Store::Redis(crate::support::redis::RedisServer::start()));
    site.pipeline(&format!("probe-{language}"), "", "retry = { max_attempts = 2, initial = \"10ms\" }");
    site.append(&[
        event("crash", json!({ "do": "crash", "reason": "beyond repair" })),
        event("after", json!({ "do": "ack" })),
    ]);
    let summary = site.until_idle(&[]);
    assert_eq!(faults(&summary), [2, 0, 0], "{summary}");
    let dead = site.dead_letters();
    assert_eq!(dead.len(), 1, "{dead:?}");
    let reason = dead[0]["reason"].as_str().unwrap();
    assert!(reason.contains("beyond repair"), "{reason}");
}

/// Each call keeps a megabyte: a thousand of them would need more than the plugin may have.
fn a_leak_is_ended_by_a_new_instance(language: &str) {
    let leak = event("leak", json!({ "do": "leak", "bytes": 1 << 20 }));
    let run = |max_calls: u32, events: usize| {
        let site = Site::new(Store::Sqlite);
        let keys = format!("max_memory = \"192MiB\"\nmax_calls = {max_calls}");
        let pipeline = "concurrency = 1\nretry = { max_attempts = 1 }";
        site.pipeline(&format!("probe-{language}"), &keys, pipeline);
        site.append(&vec![leak.clone(); events]);
        site.until_idle(&[])
    };
    let recycled = run(50, 1_000);
    assert_eq!((recycled["acked"].as_u64(), faults(&recycled)), (Some(1_000), [0; 3]), "{recycled}");
    let kept = run(100_000, 300);
    // Whether it is a fault or an exception: one event fails, and the next meets a fresh instance.
    assert!((290..300).contains(&kept["acked"].as_u64().unwrap()), "{kept}");
}
