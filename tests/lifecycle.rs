//! Whole lives, through the program: nothing is lost, whoever dies; faults stay with their events.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use serde_json::{Value, json};
use support::program::{Site, Store, wait_until};
use support::redis::RedisServer;

on_every_store!(
    the_example_ends_as_its_readme_says,
    nothing_is_lost_when_the_engine_is_killed,
    a_poison_event_takes_no_neighbour_with_it,
    two_engines_share_the_work,
    faults_stay_with_their_events,
    a_drain_finishes_what_runs_and_hands_back_the_rest,
    webhooks_come_back_byte_for_byte,
    a_lease_of_another_engine_is_waited_for_and_reported,
);

/// An event of a type, with an id.
fn event(id: impl std::fmt::Display, event_type: &str) -> String {
    json!({ "id": id.to_string(), "type": event_type, "payload": {} }).to_string()
}

fn sum(values: &Value) -> u64 {
    values.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
}

fn the_example_ends_as_its_readme_says(store: Store) {
    let site = Site::new(store);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/orders");
    for file in ["wasmill.toml", "events.jsonl"] {
        std::fs::copy(format!("{example}/{file}"), site.path().join(file)).unwrap();
    }
    site.plugin("orders");
    site.ok(&["check", "wasmill.toml"]);
    site.ok(&["append", "orders", "--file", "events.jsonl"]);
    let summary = site.until_idle(&[]);
    for (field, expected) in [
        ("claimed", 3222),
        ("acked", 2912),
        ("retried", 222),
        ("dead_lettered", 88),
        ("stale", 0),
        ("unknown", 0),
    ] {
        assert_eq!(summary[field], expected, "{field} of {summary}");
    }
    let group = site.json(&["group", "info", "orders", "checkout"]).remove(0);
    assert_eq!((&group["lag"], &group["dead_letters"]), (&json!(0), &json!(88)), "{group}");
    let dead = site.json(&["dead-letter", "list", "orders", "checkout", "--limit", "1000"]);
    let count = |cause: &str| dead.iter().filter(|letter| letter["cause"] == cause).count();
    assert_eq!((count("rejected"), count("attempts-exhausted")), (86, 2));
    let exhausted = dead.iter().find(|letter| letter["cause"] == "attempts-exhausted").unwrap();
    assert_eq!((&exhausted["attempts"], &exhausted["failure"]), (&json!(4), &json!("retry")));
    assert!(exhausted["reason"].as_str().unwrap().contains("is pending"), "{exhausted}");
    assert!(exhausted["event"]["payload"]["order_id"].is_string(), "{exhausted}");
}

fn nothing_is_lost_when_the_engine_is_killed(store: Store) {
    const EVENTS: u64 = 20_000;
    let site = Site::new(store);
    site.pipeline("passthrough", "", "lease = \"1s\"\nretry = { max_attempts = 10 }");
    site.append(&(0..EVENTS).map(|n| event(n, "tick")).collect::<Vec<_>>());
    let mut kills = 0;
    for quarter in 1..=3 {
        let mut engine = site.engine(&["--log", "info,guest=warn"]);
        engine.wait_for(&["running"]);
        let mut settled = 0;
        wait_until("a quarter more is settled", || {
            settled = sum(&site.group()["frontier"]);
            settled >= quarter * EVENTS / 5
        });
        engine.kill9();
        kills += u64::from(settled < EVENTS);
    }
    assert!(kills > 0, "the engine was done before it could be killed");
    let summary = site.until_idle(&[]);
    let group = site.group();
    assert_eq!(sum(&group["frontier"]), EVENTS, "{group}");
    assert_eq!(
        (&group["lag"], &group["in_flight"], &group["parked"]),
        (&json!(0), &json!(0), &json!(0)),
        "{group}"
    );
    assert_eq!(group["dead_letters"], 0, "{group} {summary}");
}

fn a_poison_event_takes_no_neighbour_with_it(store: Store) {
    let site = Site::new(store);
    site.pipeline("hostile", "timeout = \"10m\"", "lease = \"1s\"\nconcurrency = 4");
    let mut lines: Vec<_> = (0..40).map(|n| event(format!("neighbour-{n}"), "ok")).collect();
    lines.insert(20, event("poison", "sleep"));
    site.append(&lines);
    for attempt in 1..=5 {
        let mut engine = site.engine(&["--log", "debug"]);
        engine.wait_for(&["event=poison", &format!("attempt={attempt} "), "started"]);
        engine.kill9();
    }
    let summary = site.until_idle(&[]);
    let dead = site.dead_letters();
    let ids: Vec<_> = dead.iter().map(|letter| &letter["event"]["id"]).collect();
    assert_eq!(ids, [&json!("poison")], "{summary}");
    assert_eq!(dead[0]["cause"], "attempts-exhausted");
    assert_eq!((&dead[0]["failure"], &dead[0]["attempts"]), (&json!("expired"), &json!(5)));
    let group = site.group();
    assert_eq!((&group["lag"], sum(&group["frontier"])), (&json!(0), 41), "{group}");
}

fn two_engines_share_the_work(store: Store) {
    const EVENTS: u64 = 400;
    let site = Site::new(store);
    site.pipeline("hostile", "", "");
    site.ok(&["stream", "create", "s", "--partitions", "4"]);
    let mut engines = [site.engine(&[]), site.engine(&[])];
    engines.iter_mut().for_each(|engine| engine.wait_for(&["running"]));
    let line = |n| json!({ "type": "nap", "partition": n % 4, "payload": {} }).to_string();
    site.append(&(0..EVENTS).map(line).collect::<Vec<_>>());
    wait_until("all is settled", || sum(&site.group()["frontier"]) == EVENTS);
    let summaries = engines.map(support::program::Engine::drain);
    let acked: Vec<_> = summaries.iter().map(|summary| summary["acked"].as_u64().unwrap()).collect();
    assert_eq!(acked.iter().sum::<u64>(), EVENTS, "{summaries:?}");
    assert!(acked.iter().all(|acked| *acked > 0), "{summaries:?}");
    for summary in &summaries {
        assert_eq!((&summary["stale"], &summary["unknown"]), (&json!(0), &json!(0)), "{summary}");
    }
}

fn faults_stay_with_their_events(store: Store) {
    let site = Site::new(store);
    site.pipeline("hostile", "timeout = \"2s\"\nmax_memory = \"16MiB\"", "retry = { max_attempts = 1 }");
    let mut lines: Vec<_> = (0..50).map(|n| event(n, "ok")).collect();
    for (place, fault) in [(5, "loop"), (15, "eat-memory"), (25, "trap"), (35, "recurse"), (45, "panic")] {
        lines.insert(place, event(fault, fault));
    }
    site.append(&lines);
    let summary = site.until_idle(&[]);
    assert_eq!((&summary["acked"], &summary["dead_lettered"]), (&json!(50), &json!(5)), "{summary}");
    assert_eq!(summary["faults"], json!({ "trap": 3, "timeout": 1, "memory": 1 }), "{summary}");
    let dead = site.dead_letters();
    for (id, failure, reason) in [
        ("loop", "timeout", "`timeout` raises it"),
        ("eat-memory", "memory", "max_memory"),
        ("trap", "trap", "gave up"),
        ("recurse", "trap", "stack"),
        ("panic", "trap", "the guest gave up on panic"),
    ] {
        let letter = dead.iter().find(|letter| letter["event"]["id"] == id).unwrap();
        assert_eq!(letter["failure"], failure, "{letter}");
        assert!(letter["reason"].as_str().unwrap().contains(reason), "{id}: {letter}");
    }
}

fn a_drain_finishes_what_runs_and_hands_back_the_rest(store: Store) {
    let site = Site::new(store);
    site.pipeline("hostile", "timeout = \"10m\"", "concurrency = 4\nmax_in_flight = 8");
    site.append(&[event("a", "sleep"), event("b", "nap"), event("c", "nap")]);
    let mut engine = site.engine(&["--log", "debug"]);
    engine.wait_for(&["event=a", "started"]);
    wait_until("the naps are settled", || engine.log().matches("acked").count() == 2);
    let summary = engine.drain();
    assert_eq!((&summary["acked"], &summary["claimed"]), (&json!(2), &json!(3)), "{summary}");
    let pending = site.json(&["group", "pending", "s", "g"]);
    assert_eq!(pending.len(), 1, "{pending:?}");
    assert_eq!((&pending[0]["event"], &pending[0]["attempt"]), (&json!("a"), &json!(0)), "{pending:?}");

    // It was handed back, so the next engine has it at once and as its first attempt.
    let mut engine = site.engine(&["--log", "debug"]);
    engine.wait_for(&["event=a", "attempt=1 ", "started"]);
    engine.signal("-INT");
    engine.wait_for(&["draining"]);
    engine.signal("-INT");
    let (status, _, log) = engine.end();
    assert_eq!(status.code(), Some(130), "{log}");
}

fn webhooks_come_back_byte_for_byte(store: Store) {
    #[derive(serde::Deserialize)]
    struct Webhook<'a> {
        name: &'a str,
        #[serde(borrow)]
        examples: Vec<&'a serde_json::value::RawValue>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/fixtures/octokit/index.json");
    let text =
        std::fs::read_to_string(path).expect("target/fixtures/octokit is there: scripts/test fetches it");
    let webhooks: Vec<Webhook> = serde_json::from_str(&text).unwrap();
    let mut payloads = std::collections::BTreeMap::new();
    let mut lines = Vec::new();
    for webhook in &webhooks {
        for example in &webhook.examples {
            let parsed: Value = serde_json::from_str(example.get()).unwrap();
            let key =
                parsed["repository"]["full_name"].as_str().map(|key| format!("\"key\":{},", json!(key)));
            let id = format!("{}-{}", webhook.name, payloads.len());
            // A line cannot hold line breaks; nothing else of the text is touched.
            let payload = example.get().replace('\n', " ");
            lines.push(format!(
                "{{\"id\":\"{id}\",\"type\":\"{}\",{}\"payload\":{payload}}}",
                webhook.name,
                key.unwrap_or_default()
            ));
            payloads.insert(id, payload);
        }
    }
    assert!(payloads.len() > 200, "only {} payloads", payloads.len());

    let site = Site::new(store);
    site.pipeline("passthrough", "", "");
    site.ok(&["stream", "create", "s", "--partitions", "4"]);
    site.append(&lines);
    let summary = site.until_idle(&[]);
    assert_eq!(summary["acked"], payloads.len(), "{summary}");
    assert_eq!(site.group()["lag"], 0);
    for event in site.events() {
        let payload =
            payloads.remove(&event.id).unwrap_or_else(|| panic!("{} came twice, or from nowhere", event.id));
        assert_eq!(event.payload.as_str(), payload, "{}", event.id);
        assert!(event.id.starts_with(event.event_type.as_deref().unwrap()), "{}", event.id);
    }
    assert!(payloads.is_empty(), "not read back: {:?}", payloads.keys());
}

fn a_lease_of_another_engine_is_waited_for_and_reported(store: Store) {
    let site = Site::new(store);
    site.pipeline("hostile", "timeout = \"10m\"", "lease = \"2s\"");
    site.append(&[event("held", "sleep"), event("free", "ok")]);
    let mut holder = site.engine(&["--log", "debug"]);
    holder.wait_for(&["event=held", "started"]);
    wait_until("the other one is settled", || {
        site.group()["lag"] == 1 || sum(&site.group()["frontier"]) == 0
    });
    let output = site.run(&["run", "wasmill.toml", "--until-idle", "--idle-wait", "1s"]);
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    assert!(log.contains("is not done"), "{log}");
    holder.signal("-KILL");
}

#[test]
fn a_redis_that_is_away_for_ten_seconds_is_two_lines_in_the_log() {
    let mut site = Site::new(Store::Redis(RedisServer::durable()));
    site.pipeline("hostile", "", "");
    site.append(&(0..2000).map(|n| event(n, "nap")).collect::<Vec<_>>());
    let mut engine = site.engine(&[]);
    engine.wait_for(&["running"]);
    wait_until("some are settled", || sum(&site.group()["frontier"]) > 100);
    let Store::Redis(server) = &mut site.store else { unreachable!() };
    server.stop();
    // The outage itself, not a wait for something.
    std::thread::sleep(std::time::Duration::from_secs(10));
    server.start_again();
    wait_until("all is settled", || sum(&site.group()["frontier"]) == 2000);
    let log = engine.log();
    let summary = engine.drain();
    assert_eq!(log.matches("the store does not answer").count(), 1, "{log}");
    assert_eq!(log.matches("the store answers again").count(), 1, "{log}");
    assert!(log.lines().count() < 40, "{log}");
    assert_eq!(summary["dead_lettered"], 0, "{summary}");
    assert_eq!(summary["acked"].as_u64().unwrap() + summary["unknown"].as_u64().unwrap(), 2000, "{summary}");
}

fn redis_connection(server: &RedisServer) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

#[test]
fn a_flushed_redis_is_a_new_log_that_is_read_from_its_beginning() {
    let site = Site::new(Store::redis());
    site.pipeline("passthrough", "", "start = \"end\"");
    site.ok(&["stream", "create", "s"]);
    let mut engine = site.engine(&["--log", "debug"]);
    engine.wait_for(&["running"]);
    site.append(&[event("before", "tick")]);
    engine.wait_for(&["event=before", "acked"]);
    let Store::Redis(server) = &site.store else { unreachable!() };
    let mut connection = redis_connection(server);
    // In one step, so that the event is there before the engine can make the group again.
    let mut flush = redis::pipe();
    flush.atomic().cmd("FLUSHALL");
    flush.cmd("HSET").arg("rheo:Rheo.Redis:meta:s").arg("partition_count").arg(1);
    flush.cmd("SET").arg("rheo:Rheo.Redis:seq:s:0").arg(1);
    flush.cmd("XADD").arg("rheo:Rheo.Redis:s:s:0").arg("1-1");
    flush.arg(&["id", "after", "sequence", "1", "partition", "0", "timestamp", "2026-01-01T00:00:00.000Z"]);
    flush.arg(&["metadata", "{}", "payload", "{}"]);
    flush.cmd("ZADD").arg("rheo:Rheo.Redis:z:s:0").arg(1).arg("1-1");
    flush.exec(&mut connection).unwrap();
    engine.wait_for(&["event=after", "acked"]);
    let summary = engine.drain();
    assert_eq!(summary["acked"], 2, "{summary}");
}

#[test]
fn a_verdict_outlives_an_outage_that_is_longer_than_the_lease() {
    const EVENTS: u64 = 400;
    let mut site = Site::new(Store::Redis(RedisServer::durable()));
    site.pipeline("hostile", "", "lease = \"1s\"\nretry = { max_attempts = 2 }");
    site.append(&(0..EVENTS).map(|n| event(n, "nap")).collect::<Vec<_>>());
    let mut engine = site.engine(&[]);
    engine.wait_for(&["running"]);
    wait_until("some are settled", || sum(&site.group()["frontier"]) > 50);
    let Store::Redis(server) = &mut site.store else { unreachable!() };
    server.kill9();
    engine.wait_for(&["the store does not answer"]);
    // The outage itself, not a wait for something.
    std::thread::sleep(std::time::Duration::from_secs(3));
    server.start_again();
    wait_until("all is settled", || sum(&site.group()["frontier"]) == EVENTS);
    let summary = engine.drain();
    assert_eq!((&summary["stale"], &summary["dead_lettered"]), (&json!(0), &json!(0)), "{summary}");
    assert_eq!(site.group()["dead_letters"], 0);
}

#[test]
fn a_pipeline_that_stops_for_good_says_so_at_once_and_names_the_key() {
    let site = Site::new(Store::redis());
    site.pipeline("passthrough", "", "");
    let mut engine = site.engine(&[]);
    engine.wait_for(&["running"]);
    let Store::Redis(server) = &site.store else { unreachable!() };
    let mut wreck = redis::pipe();
    wreck.atomic().cmd("DEL").arg("rheo:Rheo.Redis:s:s:0");
    wreck.cmd("SET").arg("rheo:Rheo.Redis:s:s:0").arg("something else");
    wreck.exec(&mut redis_connection(server)).unwrap();
    let (status, _, log) = engine.end();
    assert_eq!(status.code(), Some(1), "{log}");
    let line =
        log.lines().find(|line| line.contains("the pipeline stops")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("rheo:Rheo.Redis:s:s:0"), "{line}");
}

#[test]
fn a_dead_letter_shows_its_payload_byte_for_byte() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "retry = { max_attempts = 1 }");
    let payload = r#"{"z":12345678901234567890123, "a":1.0e5,"a":2,"f":0.1000000000000000055,"u":"\u0041ä"}"#;
    site.append(&[format!(r#"{{"id":"odd","type":"retry","payload":{payload}}}"#)]);
    site.until_idle(&[]);
    for args in [
        &["dead-letter", "list", "s", "g", "--json"][..],
        &["dead-letter", "show", "s", "g", "odd", "--json"],
        &["dead-letter", "show", "s", "g", "odd"],
    ] {
        let shown = site.ok(args);
        assert!(shown.contains(payload), "{args:?}: {shown}");
    }
}

#[test]
fn a_second_signal_ends_it_even_if_no_one_reads_its_log() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "timeout = \"10m\"", "");
    site.write(
        "wasmill.toml",
        std::fs::read_to_string(site.path().join("wasmill.toml")).unwrap().replace("1s", "1h"),
    );
    site.append(&[event("a", "sleep")]);
    let mut command = site.command(&["run", "wasmill.toml"]);
    let mut child =
        command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    // The group is made only now.
    wait_until("the event is held", || {
        !site.run(&["group", "pending", "s", "g", "--json"]).stdout.is_empty()
    });
    drop(child.stderr.take());
    wait_until("the engine has ended", || {
        let kill =
            std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn what_cannot_be_a_plugin_is_refused_before_anything_runs() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("wrong-world", "", "");
    let output = site.run(&["run", "wasmill.toml"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    for text in ["wrong-world", "handle"] {
        assert!(message.contains(text), "{message}");
    }
    assert!(!site.path().join("wasmill.db").exists(), "a refused run created a store");
}

#[test]
fn a_lease_lost_to_another_engine_ends_its_attempt() {
    let site = Site::new(Store::redis());
    site.pipeline("hostile", "timeout = \"10m\"", "lease = \"1s\"");
    site.append(&[event("a", "sleep")]);
    let mut first = site.engine(&["--log", "debug"]);
    first.wait_for(&["event=a", "attempt=1 ", "started"]);
    // It sleeps for longer than its lease, as a machine that swaps or is suspended does.
    first.signal("-STOP");
    let mut second = site.engine(&["--log", "debug"]);
    second.wait_for(&["event=a", "attempt=2 ", "started"]);
    first.signal("-CONT");
    first.wait_for(&["a lease was lost"]);
    first.wait_for(&["event=a", "attempt=1 ", "nothing was written"]);
    let summary = first.drain();
    assert_eq!((&summary["stale"], &summary["acked"]), (&json!(1), &json!(0)), "{summary}");
    let pending = site.json(&["group", "pending", "s", "g"]);
    assert_eq!((&pending[0]["state"], &pending[0]["attempt"]), (&json!("leased"), &json!(2)), "{pending:?}");
    second.kill9();
}

#[test]
fn a_server_that_evicts_streams_is_refused() {
    let server = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let site = Site::new(Store::Redis(server));
    site.pipeline("passthrough", "", "");
    for command in ["check", "run"] {
        let output = site.run(&[command, "wasmill.toml"]);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        for text in ["allkeys-lru", "noeviction", "--allow-eviction"] {
            assert!(said.contains(text), "{command}: {said}");
        }
    }
    assert!(site.json(&["stream", "list"]).is_empty(), "a refused run created something");
    let warned = site.ok(&["check", "wasmill.toml", "--allow-eviction"]);
    assert!(warned.contains("warning") && warned.contains("a restart loses the log"), "{warned}");
    site.ok(&["run", "wasmill.toml", "--allow-eviction", "--until-idle"]);
}
