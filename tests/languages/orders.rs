//! The handler of orders: five languages, the same answers.

use serde_json::{Value, json};

use crate::kit::{faults, file, lines, orders, passes};
use crate::support::program::{Site, Store};

in_every_language!(
    passes_the_conformance_events,
    takes_a_payload_of_a_megabyte,
    answers_the_same_in_a_pipeline_on_sqlite,
    answers_the_same_in_a_pipeline_on_redis,
    does_not_grow_over_ten_thousand_events,
);

fn conformance() -> Vec<Value> {
    lines(&std::fs::read_to_string(file("plugins/conformance.jsonl")).unwrap())
}

fn passes_the_conformance_events(language: &str) {
    let tried = passes(&orders(language), &file("plugins/conformance.jsonl"));
    assert_eq!(tried.len(), conformance().len());
    let verdict = |verdict: &str| tried.iter().filter(|line| line["answer"]["verdict"] == verdict).count();
    assert!(["ack", "retry", "reject"].map(verdict).iter().all(|count| *count > 3), "all outcomes occur");
}

fn order() -> Value {
    conformance()[0]["payload"].clone()
}

fn takes_a_payload_of_a_megabyte(language: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut payload = order();
    payload["note"] = "ä€🦊\"\\\n".repeat((1 << 20) / 9).into();
    let mut many = order();
    many["items"] = vec![json!({ "sku": "A", "quantity": 1, "unit_price_cents": 2 }); 25_000].into();
    many["total_cents"] = 50_000.into();
    let events =
        [json!({ "payload": payload, "expect": "ack" }), json!({ "payload": many, "expect": "ack" })];
    assert!(events.iter().all(|event| event.to_string().len() > 1 << 20));
    let text: Vec<String> = events.iter().map(Value::to_string).collect();
    let path = dir.path().join("events.jsonl");
    std::fs::write(&path, text.join("\n")).unwrap();
    passes(&orders(language), &path);
}

fn answers_the_same_in_a_pipeline_on_sqlite(language: &str) {
    answers_the_same_in_a_pipeline(language, Store::Sqlite);
}

fn answers_the_same_in_a_pipeline_on_redis(language: &str) {
    answers_the_same_in_a_pipeline(language, Store::redis());
}

/// All that needs no settings of its own and can be appended.
fn answers_the_same_in_a_pipeline(language: &str, store: Store) {
    let own = ["config", "allow_streams", "attempt", "sequence"];
    let cases: Vec<Value> = conformance()
        .into_iter()
        .filter(|case| own.iter().all(|key| case.get(*key).is_none()))
        .enumerate()
        .map(|(n, mut case)| {
            case["id"] = format!("case-{n}").into();
            case
        })
        .collect();
    let site = Site::new(store);
    site.pipeline(&orders(language), "", "concurrency = 2\nretry = { max_attempts = 2, initial = \"10ms\" }");
    let envelope = |case: &Value| {
        let keys = ["id", "payload", "key", "type", "metadata"];
        let kept = keys.iter().filter_map(|key| Some(((*key).to_owned(), case.get(*key)?.clone())));
        Value::Object(kept.collect()).to_string()
    };
    site.append(&cases.iter().map(envelope).collect::<Vec<_>>());
    let summary = site.until_idle(&[]);
    assert_eq!(faults(&summary), [0; 3], "{summary}");

    let dead = site.dead_letters();
    let reason_of = |id: &Value| {
        let letter = dead.iter().find(|letter| letter["event"]["id"] == *id);
        letter.map(|letter| letter["reason"].as_str().unwrap().to_owned())
    };
    for case in &cases {
        let reason = reason_of(&case["id"]);
        match case["expect"].as_str().unwrap() {
            "ack" => assert_eq!(reason, None, "{case}"),
            "reject" => {
                let expected = case["reason"].as_str().unwrap();
                assert!(reason.as_ref().is_some_and(|r| r.contains(expected)), "{case}: {reason:?}");
            }
            other => panic!("{other} cannot be told from a pipeline's end: {case}"),
        }
    }
    let acks = cases.iter().filter(|case| case["expect"] == "ack").count();
    assert_eq!((summary["acked"].as_u64(), dead.len()), (Some(acks as u64), cases.len() - acks));
}

/// Over the second half of them: the first may fill what a runtime keeps.
fn does_not_grow_over_ten_thousand_events(language: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.jsonl");
    let mut pending = order();
    pending["payment"] = "pending".into();
    let events = [
        json!({ "payload": order(), "key": "k", "metadata": { "trace_id": "t" } }).to_string(),
        json!({ "payload": pending }).to_string(),
        json!({ "payload": {} }).to_string(),
    ];
    let text: Vec<&str> = events.iter().map(String::as_str).cycle().take(10_000).collect();
    std::fs::write(&path, text.join("\n")).unwrap();
    let tried = passes(&orders(language), &path);
    let memory = |at: usize| tried[at]["memory_bytes"].as_u64().unwrap();
    let (half, last) = (memory(5_000), memory(9_999));
    assert!(last <= half + (1 << 20), "{language} grew from {half} to {last} bytes");
}
