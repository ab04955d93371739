//! Builds that are tried on real events, without consequences.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use serde_json::{Value, json};
use support::program::{Site, Store};

fn event(id: &str, event_type: &str) -> String {
    json!({ "id": id, "type": event_type, "payload": {} }).to_string()
}

fn verdicts(lines: &[Value], field: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines.iter().map(|line| (text(&line["event"]), text(&line[field]["verdict"]))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, verdict)| ((*id).to_owned(), (*verdict).to_owned())).collect()
}

fn site(store: Store) -> Site {
    let site = Site::new(store);
    // One at a time, so that the dead letters come in the order of their events.
    site.pipeline("hostile", "", "concurrency = 1\nretry = { max_attempts = 1 }");
    site.plugin("passthrough");
    site.append(&[event("a", "ok"), event("b", "retry"), event("c", "no such thing"), event("d", "trap")]);
    site
}

#[test]
fn a_build_answers_events_of_a_stream_on_sqlite() {
    a_build_answers_events_of_a_stream(Store::Sqlite);
}

#[test]
fn a_build_answers_events_of_a_stream_on_redis() {
    a_build_answers_events_of_a_stream(Store::redis());
}

fn a_build_answers_events_of_a_stream(store: Store) {
    let site = site(store);
    let before = site.contents();
    let test = ["plugin", "test", "hostile.wasm", "--stream", "s"];
    let lines = site.json(&test);
    let expected = [("a", "ack"), ("b", "retry"), ("c", "reject"), ("d", "fault")];
    assert_eq!(verdicts(&lines, "answer"), pairs(&expected));
    assert_eq!(lines[1]["answer"]["reason"], "not now");
    assert_eq!(lines[3]["answer"]["fault"], "trap");
    assert!(lines[0]["ms"].as_f64().is_some_and(|ms| ms >= 0.0), "{}", lines[0]);

    let failed = site.run(&[&test[..], &["--expect", "ack"]].concat());
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("3 of 4 events not answered as expected"));
    site.ok(&[&test[..], &["--expect", "retry", "--type", "retry"]].concat());

    let compared = site.json(&[&test[..], &["--against", "passthrough.wasm"]].concat());
    assert_eq!(verdicts(&compared, "answer"), pairs(&expected));
    assert!(compared.iter().all(|line| line["against"]["verdict"] == "ack"), "{compared:?}");
    let differ: Vec<bool> = compared.iter().map(|line| line["differs"].as_bool().unwrap()).collect();
    assert_eq!(differ, [false, true, true, true]);
    let table = site.ok(&[&test[..], &["--against", "passthrough.wasm", "--type", "retry"]].concat());
    assert!(
        table.contains("not now") && table.contains("against   ack") && !table.contains("trap"),
        "{table}"
    );

    let picked = site.json(&[&test[..], &["--desc", "--limit", "2"]].concat());
    assert_eq!(verdicts(&picked, "answer"), pairs(&[("d", "fault"), ("c", "reject")]));
    assert_eq!(site.contents(), before, "a trial wrote something");
}

#[test]
fn a_build_gets_what_the_file_says_and_what_the_command_line_adds() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "config = { a = \"1\" }", "");
    site.append(&[event("a", "config")]);
    let reason = |more: &[&str]| {
        let test = ["plugin", "test", "hostile.wasm", "--stream", "s"];
        site.json(&[&test[..], more].concat())[0]["answer"]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(&[]), "None None", "no pipeline serves the group `test`");
    assert_eq!(reason(&["--group", "g"]), "Some(\"1\") None");
    assert_eq!(reason(&["--as", "hostile"]), "Some(\"1\") None");
    assert_eq!(reason(&["--as", "hostile", "--set", "a=2"]), "Some(\"2\") None");
    let wrong = site.run(&["plugin", "test", "hostile.wasm", "--stream", "s", "--as", "other"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no plugin `other`"));
}

#[test]
fn dead_letters_are_tried_before_they_are_redriven() {
    let site = site(Store::Sqlite);
    site.until_idle(&[]);
    let before = site.contents();
    let args = ["dead-letter", "try", "s", "g", "--plugin"];
    let with = |more: &[&str]| site.json(&[&args[..], more].concat());
    let better = with(&["passthrough.wasm"]);
    assert_eq!(verdicts(&better, "answer"), pairs(&[("b", "ack"), ("c", "ack"), ("d", "ack")]));
    let same = with(&["hostile.wasm", "--cause", "rejected"]);
    assert_eq!(verdicts(&same, "answer"), pairs(&[("c", "reject")]));
    assert_eq!(same[0]["cause"], "rejected");
    let compared = with(&["passthrough.wasm", "--against", "hostile.wasm"]);
    assert!(compared.iter().all(|line| line["differs"] == true), "{compared:?}");
    let output = site.run(&[&args[..], &["passthrough.wasm"]].concat());
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(note.contains("3 of 3 dead letters would be acked"), "{note}");
    assert_eq!(site.contents(), before, "a trial wrote something");
}

#[test]
fn a_build_that_cannot_be_loaded_is_refused() {
    let site = site(Store::Sqlite);
    site.write("broken.wasm", "not WebAssembly");
    let output = site.run(&["plugin", "test", "broken.wasm", "--stream", "s"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is not WebAssembly"), "{output:?}");
    let output = site.run(&["plugin", "test", "hostile.wasm", "--stream", "missing"]);
    assert_eq!(output.status.code(), Some(1));
}
