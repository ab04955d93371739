//! Reloading, through the program: builds and pipelines change under an engine that works on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use support::program::{Engine, Site, Store, built_plugin, wait_until};

/// A build of a plugin that differs from others by its number: a custom section says it.
fn build(plugin: &str, number: u32) -> Vec<u8> {
    let mut bytes = std::fs::read(built_plugin(plugin)).unwrap();
    let mut section = vec![5];
    section.extend(b"build");
    section.extend(number.to_le_bytes());
    bytes.push(0);
    bytes.push(u8::try_from(section.len()).unwrap());
    bytes.extend(section);
    bytes
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The part of a build's digest that logs show.
fn short(bytes: &[u8]) -> String {
    digest(bytes)[..12].to_owned()
}

fn event(id: impl std::fmt::Display, event_type: &str) -> String {
    json!({ "id": id.to_string(), "type": event_type, "payload": {} }).to_string()
}

fn append(site: &Site, ids: std::ops::Range<u32>, event_type: &str) {
    site.append(&ids.map(|n| event(n, event_type)).collect::<Vec<_>>());
}

/// An engine that watches a site with the plugin `hostile` in its first build, and has begun.
fn watched(pipeline_keys: &str) -> (Site, Engine) {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "timeout = \"20s\"", pipeline_keys);
    site.write("hostile.wasm", build("hostile", 1));
    append(&site, 0..1, "ok");
    let mut engine = site.engine(&["--watch", "--log", "debug"]);
    engine.wait_for(&["acked", "event=0"]);
    (site, engine)
}

fn replace(path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, bytes).unwrap();
    std::fs::rename(beside, path).unwrap();
}

#[test]
fn a_new_build_takes_new_attempts_and_a_running_one_ends_on_its_own() {
    let (site, mut engine) = watched("concurrency = 2");
    let (old, new) = (build("hostile", 1), build("hostile", 2));
    // Still asleep when the new build comes.
    append(&site, 1..2, "nap");
    engine.wait_for(&["started", "event=1"]);
    replace(&site.path().join("hostile.wasm"), &new);
    engine.wait_for(&["a new build of the plugin is in use", &short(&old), &short(&new)]);
    append(&site, 2..3, "reject");
    engine.wait_for(&["dead-lettered", "event=2", &short(&new)]);
    engine.wait_for(&["acked", "event=1", &short(&old)]);
    let summary = engine.drain();
    assert_eq!((&summary["acked"], &summary["dead_lettered"]), (&json!(2), &json!(1)), "{summary}");
    assert_eq!(site.dead_letters()[0]["plugin"], digest(&new));
}

#[test]
fn a_build_that_is_no_good_is_said_once_and_the_old_one_goes_on() {
    let (site, mut engine) = watched("");
    let path = site.path().join("hostile.wasm");
    for bad in [
        &b"not WebAssembly"[..],
        &build("hostile", 2)[..5000],
        &std::fs::read(built_plugin("wrong-world")).unwrap(),
    ] {
        let before = engine.log().matches("the build before it goes on").count();
        replace(&path, bad);
        wait_until("the complaint", || engine.log().matches("the build before it goes on").count() > before);
        // The same again is no news.
        replace(&path, bad);
        engine.signal("-HUP");
    }
    append(&site, 1..2, "ok");
    engine.wait_for(&["acked", "event=1", &short(&build("hostile", 1))]);
    replace(&path, &build("hostile", 2));
    engine.wait_for(&["a new build of the plugin is in use"]);
    append(&site, 2..3, "ok");
    engine.wait_for(&["acked", "event=2", &short(&build("hostile", 2))]);
    assert_eq!(engine.log().matches("the build before it goes on").count(), 3, "{}", engine.log());
    engine.drain();
}

#[test]
fn a_file_that_goes_and_comes_back_is_noticed() {
    let (site, mut engine) = watched("");
    let path = site.path().join("hostile.wasm");
    std::fs::remove_file(&path).unwrap();
    engine.wait_for(&["not reloaded", "hostile.wasm"]);
    append(&site, 1..2, "ok");
    engine.wait_for(&["acked", "event=1"]);
    std::fs::write(&path, build("hostile", 2)).unwrap();
    engine.wait_for(&["a new build of the plugin is in use"]);
    engine.drain();
}

#[test]
fn a_build_that_is_written_slowly_and_often_ends_as_its_last_state() {
    let (site, mut engine) = watched("");
    let path = site.path().join("hostile.wasm");
    for number in 2..32 {
        // In place and in two halves: what is read between them is no component.
        let bytes = build("hostile", number);
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        std::fs::write(&path, &bytes).unwrap();
        std::thread::sleep(Duration::from_millis(70));
    }
    engine.wait_for(&[
        "a new build of the plugin is in use",
        &format!("after=\"{}\"", short(&build("hostile", 31))),
    ]);
    append(&site, 1..2, "ok");
    engine.wait_for(&["acked", "event=1", &short(&build("hostile", 31))]);
    let log = engine.log();
    assert!(
        log.matches("a new build of the plugin is in use").count() < 30,
        "each write was taken up:\n{log}"
    );
    engine.drain();
}

#[test]
fn links_that_are_swapped_as_config_maps_do_count_as_a_change() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "");
    let at = |name: &str| site.path().join(name);
    for number in 1..=2 {
        std::fs::create_dir(at(&format!("..v{number}"))).unwrap();
        site.write(&format!("..v{number}/hostile.wasm"), build("hostile", number));
    }
    std::fs::remove_file(at("hostile.wasm")).unwrap();
    std::os::unix::fs::symlink("..v1", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/hostile.wasm", at("hostile.wasm")).unwrap();
    append(&site, 0..1, "ok");
    let mut engine = site.engine(&["--watch", "--log", "debug"]);
    engine.wait_for(&["acked", "event=0", &short(&build("hostile", 1))]);
    std::os::unix::fs::symlink("..v2", at("..data.new")).unwrap();
    std::fs::rename(at("..data.new"), at("..data")).unwrap();
    std::fs::remove_dir_all(at("..v1")).unwrap();
    engine.wait_for(&["a new build of the plugin is in use", &short(&build("hostile", 2))]);
    engine.drain();
}

/// A pipeline file with these pipelines over streams of the same names.
fn file(plugins: &[&str], pipelines: &[(&str, &str)]) -> String {
    let plugins = plugins.iter().map(|name| format!("[plugins.{name}]\npath = \"{name}.wasm\"\n"));
    let pipelines = pipelines.iter().map(|(name, keys)| {
        format!("[[pipeline]]\nname = \"{name}\"\nstream = \"{name}\"\nplugin = \"hostile\"\n{keys}\n")
    });
    plugins.chain(pipelines).collect()
}

fn append_to(site: &Site, stream: &str, id: &str, event_type: &str) {
    site.write("lines.jsonl", event(id, event_type));
    site.ok(&["append", stream, "--file", "lines.jsonl"]);
}

#[test]
fn a_changed_file_is_carried_over_as_a_difference() {
    let site = Site::new(Store::Sqlite);
    site.plugin("hostile");
    site.write(
        "wasmill.toml",
        file(&["hostile"], &[("stays", ""), ("goes", ""), ("changes", "concurrency = 1")]),
    );
    let mut engine = site.engine(&["--watch", "--log", "debug"]);
    append_to(&site, "stays", "long", "nap");
    engine.wait_for(&["started", "event=long"]);
    for stream in ["goes", "changes"] {
        append_to(&site, stream, stream, "ok");
        engine.wait_for(&["acked", &format!("event={stream}")]);
    }
    site.write(
        "wasmill.toml",
        file(&["hostile"], &[("stays", ""), ("changes", "concurrency = 2"), ("comes", "")]),
    );
    engine.wait_for(&["the pipeline file was reloaded", "comes", "goes", "changes"]);
    for stream in ["comes", "changes"] {
        append_to(&site, stream, &format!("{stream}2"), "ok");
        engine.wait_for(&["acked", &format!("event={stream}2")]);
    }
    append_to(&site, "goes", "late", "ok");
    engine.wait_for(&["acked", "event=long"]);
    engine.signal("-TERM");
    let (status, stdout, log) = engine.end();
    assert!(status.success(), "{log}");
    let summaries: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let acked: Vec<_> =
        summaries.iter().map(|s| (s["pipeline"].as_str().unwrap(), s["acked"].as_u64().unwrap())).collect();
    assert_eq!(acked, [("stays", 1), ("goes", 1), ("changes", 2), ("comes", 1)]);
    let group = site.json(&["group", "info", "goes", "goes"]).remove(0);
    assert_eq!((&group["lag"], &group["in_flight"]), (&json!(1), &json!(0)));
}

#[test]
fn a_file_that_cannot_be_carried_over_changes_nothing() {
    let site = Site::new(Store::Sqlite);
    site.plugin("hostile");
    let good = file(&["hostile"], &[("a", "")]);
    site.write("wasmill.toml", &good);
    site.write("broken.wasm", "not WebAssembly");
    let mut engine = site.engine(&["--watch", "--log", "debug"]);
    append_to(&site, "a", "a0", "ok");
    engine.wait_for(&["acked", "event=a0"]);
    for (text, complaint) in [
        ("[[pipeline".to_owned(), "this is not TOML"),
        (file(&["hostile"], &[("a", ""), ("b", "concurency = 3")]), "concurency"),
        (file(&["hostile", "broken"], &[("a", "concurrency = 3"), ("b", "")]), "broken.wasm"),
        (
            format!("[streams.a]\npartitions = 3\n{}", file(&["hostile"], &[("b", ""), ("a", "")])),
            "partitions never",
        ),
        (format!("[backend]\nnamespace = \"Other\"\n{good}"), "`[backend]` cannot change"),
        (format!("[engine]\ndrain_timeout = \"1s\"\n{good}"), "`[engine]` cannot change"),
    ] {
        site.write("wasmill.toml", text);
        engine.wait_for(&["not reloaded", complaint]);
    }
    site.write("wasmill.toml", &good);
    append_to(&site, "a", "a1", "ok");
    engine.wait_for(&["acked", "event=a1"]);
    let log = engine.log();
    assert!(!log.contains("the pipeline file was reloaded"), "{log}");
    let streams = site.json(&["stream", "list"]);
    let names: Vec<_> = streams.iter().map(|s| s["stream"].as_str().unwrap()).collect();
    // A stream that was made for a pipeline that could have run is no harm; `b` never ran.
    assert!(names.contains(&"a"));
    engine.drain();
}

#[test]
fn sighup_reloads_where_no_one_watches() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "");
    append(&site, 0..1, "ok");
    let mut engine = site.engine(&["--log", "debug"]);
    engine.wait_for(&["acked", "event=0"]);
    site.write("hostile.wasm", build("hostile", 2));
    engine.signal("-HUP");
    engine.wait_for(&["a new build of the plugin is in use", &short(&build("hostile", 2))]);
    // With nothing changed it does nothing.
    engine.signal("-HUP");
    append(&site, 1..2, "ok");
    engine.wait_for(&["acked", "event=1"]);
    assert_eq!(engine.log().matches("a new build of the plugin is in use").count(), 1);
    engine.drain();
}

#[test]
fn settings_of_a_plugin_are_reloaded_too() {
    let (site, mut engine) = watched("");
    // A call that would take longer now ends.
    site.pipeline("hostile", "timeout = \"100ms\"", "retry = { max_attempts = 1 }");
    site.write("hostile.wasm", build("hostile", 1));
    engine.wait_for(&["not reloaded", "max_attempts"]);
    site.pipeline("hostile", "timeout = \"100ms\"", "");
    site.write("hostile.wasm", build("hostile", 1));
    engine.wait_for(&["a new build of the plugin is in use"]);
    append(&site, 1..2, "loop");
    engine.wait_for(&["will be tried again", "event=1", "within 100 ms"]);
    engine.drain();
}

#[test]
fn reloads_under_load_lose_and_fail_nothing() {
    const EVENTS: u32 = 30_000;
    let site = Site::new(Store::Sqlite);
    site.pipeline("passthrough", "", "");
    let path = site.path().join("passthrough.wasm");
    append(&site, 0..EVENTS, "tick");
    let mut engine = site.engine(&["--watch", "--log", "info,guest=warn"]);
    engine.wait_for(&["running"]);
    let mut reloads = 0;
    wait_until("the backlog is gone", || {
        reloads += 1;
        replace(&path, &build("passthrough", reloads));
        engine.wait_for(&["a new build", &format!("after=\"{}\"", short(&build("passthrough", reloads)))]);
        site.group()["lag"] == 0
    });
    assert!(reloads > 3, "the backlog was gone after {reloads} reloads");
    let summary = engine.drain();
    for (field, expected) in [
        ("acked", u64::from(EVENTS)),
        ("claimed", u64::from(EVENTS)),
        ("retried", 0),
        ("stale", 0),
        ("unknown", 0),
    ] {
        assert_eq!(summary[field], expected, "{field} of {summary}");
    }
}
