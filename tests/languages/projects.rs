//! From nothing to a handler that runs, as a user goes: new, build, test, run.

use std::path::Path;

use serde_json::{Value, json};

use crate::kit::{lines, ok, told, wasmill};
use crate::support::program::{Site, Store};

in_every_language!(from_nothing_to_a_pipeline);

fn from_nothing_to_a_pipeline(language: &str) {
    let dir = tempfile::tempdir().unwrap();
    ok(&mut wasmill(dir.path(), &["plugin", "new", "first-steps", "--lang", language]));
    let project = dir.path().join("first-steps");
    let built = build(&project);
    assert_eq!(built["component"], "./first-steps.wasm");
    let tested = ok(&mut wasmill(
        &project,
        &["plugin", "test", "first-steps.wasm", "--event", "events.jsonl", "--json"],
    ));
    let outcomes: Vec<&str> = ["ack", "retry", "reject"]
        .into_iter()
        .filter(|verdict| tested.contains(&format!("\"{verdict}\"")))
        .collect();
    assert_eq!(outcomes, ["ack", "retry", "reject"], "its own events show all three: {tested}");
    let tested = lines(&tested);
    assert!(tested.iter().any(|line| line["logs"].as_array().is_some_and(|logs| !logs.is_empty())));

    // The same sources give the same answers again, and what the build makes is found up to date.
    let again = build(&project);
    assert_eq!(again["imports"], built["imports"]);
    let inspected = ok(&mut wasmill(&project, &["plugin", "inspect", "first-steps.wasm"]));
    assert!(inspected.contains("world     wasmill:handler/handler@0.1.0"), "{inspected}");
    assert!(inspected.contains("producer"), "{inspected}");

    for store in [Store::Sqlite, Store::redis()] {
        let site = Site::new(store);
        std::fs::copy(project.join("first-steps.wasm"), site.path().join("first-steps.wasm")).unwrap();
        site.write(
            "wasmill.toml",
            "[plugins.first-steps]\npath = \"first-steps.wasm\"\nconfig = { greeting = \"Salut\" }\n\
             [[pipeline]]\nname = \"p\"\nstream = \"s\"\ngroup = \"g\"\nplugin = \"first-steps\"\n\
             retry = { max_attempts = 2, initial = \"10ms\" }\n",
        );
        site.append(&[
            json!({ "id": "a", "payload": { "name": "Zoë" } }).to_string(),
            json!({ "id": "b", "payload": {} }).to_string(),
            json!({ "id": "c", "payload": { "name": "Ada", "ready_at_attempt": 2 } }).to_string(),
            json!({ "id": "d", "payload": { "name": "Eve", "ready_at_attempt": 3 } }).to_string(),
        ]);
        let output = site.run(&["run", "wasmill.toml", "--until-idle", "--json"]);
        assert!(output.status.success(), "{}", told(&output));
        let summary = &lines(&String::from_utf8_lossy(&output.stdout))[0];
        assert_eq!(summary["acked"], 2, "{summary}");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(log.contains("Salut, Zoë!") && log.contains("Salut, Ada!"), "{log}");
        let mut dead = site.dead_letters();
        dead.sort_by_key(|letter| letter["event"]["id"].as_str().unwrap().to_owned());
        let reasons: Vec<&str> = dead.iter().map(|letter| letter["reason"].as_str().unwrap()).collect();
        assert_eq!(reasons[0], "the payload has no `name`");
        assert!(reasons[1].contains("Eve is not ready"), "{reasons:?}");
    }
}

fn build(project: &Path) -> Value {
    let built = lines(&ok(&mut wasmill(project, &["plugin", "build", "--json"]))).remove(0);
    assert!(built["bytes"].as_u64().unwrap() > 1_000, "{built}");
    built
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("mine")).unwrap();
    std::fs::write(dir.path().join("mine/notes.txt"), "mine").unwrap();
    let output = wasmill(dir.path(), &["plugin", "new", "mine", "--lang", "c"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("mine exists and is not empty"), "{}", told(&output));
    assert_eq!(std::fs::read_dir(dir.path().join("mine")).unwrap().count(), 1);
}

#[test]
fn mistakes_are_told_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let told_of = |args: &[&str], code: i32| {
        let output = wasmill(dir.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", told(&output));
        told(&output)
    };
    assert!(told_of(&["plugin", "new", "No Good", "--lang", "go"], 2).contains("small letter"));
    assert!(
        told_of(&["plugin", "new", "ok", "--lang", "cobol"], 2)
            .contains("[possible values: rust, python, js, go, c]")
    );
    assert!(told_of(&["plugin", "build"], 2).contains("it has no plugin.toml"));
    ok(&mut wasmill(dir.path(), &["plugin", "new", "broken", "--lang", "c"]));
    let project = dir.path().join("broken");
    let source = std::fs::read_to_string(project.join("handler.c")).unwrap();
    std::fs::write(project.join("handler.c"), format!("{source}\nint x = nowhere;\n")).unwrap();
    let output = wasmill(&project, &["plugin", "build"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("nowhere"), "the compiler's words are shown: {}", told(&output));
    assert!(!project.join("broken.wasm").exists());
}
