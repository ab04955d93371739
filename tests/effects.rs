//! Effects, through the program: committed with the ack and exactly once, or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use support::program::{Site, Store, wait_until};
use wasmill::event::{Event, Name};
use wasmill::state::Bucket;

on_every_store!(
    the_example_ends_as_its_readme_says,
    money_moves_once_though_the_engine_is_killed_twenty_times,
    a_run_waits_for_the_whole_chain_and_events_say_where_they_come_from,
    events_derived_again_have_the_same_ids,
    a_cycle_ends_in_a_dead_letter,
    what_is_not_acked_leaves_nothing,
    conflicts_burn_no_attempts,
    sixteen_consumers_count_exactly,
);

/// An event of a type, with an id.
fn event(id: impl std::fmt::Display, event_type: &str) -> String {
    json!({ "id": id.to_string(), "type": event_type, "key": "k", "payload": {} }).to_string()
}

/// Everything that a stream holds.
fn events(site: &Site, stream: &str) -> Vec<Event> {
    site.with_store(async |backend| {
        let stream = Name::new(stream).unwrap();
        let mut events = Vec::new();
        for partition in backend.stream_info(&stream).await.unwrap().partitions {
            let all = usize::try_from(partition.high_watermark).unwrap();
            events.extend(backend.read(&stream, partition.partition, 0, all).await.unwrap());
        }
        events
    })
}

/// The values of keys in a pipeline's own bucket.
fn state(site: &Site, pipeline: &str, bucket: &str, keys: &[String]) -> Vec<Option<u64>> {
    let bucket = Bucket::own(pipeline, bucket).unwrap();
    let values = site.with_store(async |backend| backend.state(&bucket, keys).await.unwrap());
    let number = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().parse().unwrap();
    values.into_iter().map(|value| value.map(|value| number(value.bytes))).collect()
}

fn field(event: &Event, name: &str) -> String {
    event.metadata.text_field(name).unwrap_or_else(|| panic!("no {name} in {event:?}"))
}

/// The summaries by the names of their pipelines.
fn until_idle(site: &Site) -> BTreeMap<String, Value> {
    let summaries = site.json(&["run", "wasmill.toml", "--until-idle", "--log", "warn"]);
    summaries.into_iter().map(|summary| (summary["pipeline"].as_str().unwrap().to_owned(), summary)).collect()
}

/// What must have become of events of the example's kind, whatever happened meanwhile.
#[derive(Default)]
struct Book {
    balances: BTreeMap<String, u64>,
    acked: BTreeSet<String>,
    rejected: BTreeSet<String>,
}

impl Book {
    fn enter(&mut self, line: &str) {
        let event: Value = serde_json::from_str(line).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (id, payload) = (text(&event["id"]), &event["payload"]);
        let amount = payload["amount"].as_u64().unwrap();
        if event["type"] == "deposit" {
            *self.balances.entry(text(&payload["account"])).or_default() += amount;
        } else if amount > self.balances.values().sum() {
            self.rejected.insert(id);
            return;
        } else {
            *self.balances.get_mut(&text(&payload["from"])).unwrap() -= amount;
            *self.balances.get_mut(&text(&payload["to"])).unwrap() += amount;
        }
        self.acked.insert(id);
    }

    /// Each event settled once, its money moved once, and its entry in the audit once.
    fn check(&self, site: &Site) {
        for (stream, group) in [("bank", "ledger"), ("audit", "statements")] {
            let info = site.json(&["group", "info", stream, group]).remove(0);
            for field in ["lag", "in_flight", "parked"] {
                assert_eq!(info[field], 0, "{field} of {info}");
            }
        }
        let dead = site.json(&["dead-letter", "list", "bank", "ledger", "--limit", "1000000"]);
        let mut ids: Vec<_> = dead.iter().map(|letter| letter["event"]["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        assert!(ids.iter().eq(&self.rejected), "dead letters {ids:?}, not {:?}", self.rejected);
        assert!(dead.iter().all(|letter| letter["cause"] == "rejected"), "{dead:?}");

        let accounts: Vec<_> = self.balances.keys().cloned().collect();
        let balances = state(site, "transfers", "accounts", &accounts);
        let balances: BTreeMap<_, _> =
            accounts.into_iter().zip(balances.into_iter().map(Option::unwrap_or_default)).collect();
        assert_eq!(balances.values().sum::<u64>(), self.balances.values().sum::<u64>());
        assert_eq!(balances, self.balances);

        let audit = events(site, "audit");
        let mut sources: Vec<_> = audit.iter().map(|event| field(event, "causation_id")).collect();
        sources.sort_unstable();
        assert_eq!(sources.len(), self.acked.len(), "events of the audit");
        assert!(sources.iter().eq(&self.acked), "the audit holds each deposit and transfer once");
    }
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/transfers");

fn example(store: Store) -> Site {
    let site = Site::new(store);
    std::fs::copy(format!("{EXAMPLE}/wasmill.toml"), site.path().join("wasmill.toml")).unwrap();
    site.plugin("transfers");
    site.plugin("passthrough");
    site
}

fn the_example_ends_as_its_readme_says(store: Store) {
    let site = example(store);
    let lines = std::fs::read_to_string(format!("{EXAMPLE}/events.jsonl")).unwrap();
    site.write("events.jsonl", &lines);
    site.ok(&["check", "wasmill.toml"]);
    site.ok(&["append", "bank", "--file", "events.jsonl"]);
    let summaries = until_idle(&site);
    let (transfers, statements) = (&summaries["transfers"], &summaries["statements"]);
    assert_eq!((&transfers["acked"], &transfers["dead_lettered"]), (&json!(1980), &json!(20)), "{transfers}");
    assert_eq!((&statements["acked"], &statements["claimed"]), (&json!(1980), &json!(1980)), "{statements}");
    let mut book = Book::default();
    lines.lines().for_each(|line| book.enter(line));
    assert_eq!((book.acked.len(), book.rejected.len()), (1980, 20));
    assert_eq!(book.balances.values().sum::<u64>(), 40_000_000);
    book.check(&site);
}

/// Transfers between accounts, numbered from `from` on. One in fifty asks for more than there is.
fn transfers(from: usize, count: usize) -> Vec<String> {
    let transfer = |number: usize| {
        let sender = rand::random_range(0..ACCOUNTS);
        let receiver = (sender + rand::random_range(1..ACCOUNTS)) % ACCOUNTS;
        let amount = if number.is_multiple_of(50) { 1_000_000_000 } else { rand::random_range(1..100) };
        let [sender, receiver] = [sender, receiver].map(|account| format!("a-{account}"));
        let payload = json!({ "from": sender, "to": receiver, "amount": amount });
        json!({ "id": format!("t-{number:06}"), "type": "transfer", "key": sender, "payload": payload })
    };
    (from..from + count).map(|number| transfer(number).to_string()).collect()
}

const ACCOUNTS: usize = 30;

fn money_moves_once_though_the_engine_is_killed_twenty_times(store: Store) {
    const KILLS: u32 = 20;
    let site = example(store);
    let file = site.path().join("wasmill.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    // An event that is killed again and again must not run out of attempts.
    let text = text.replace("\"30s\"", "\"1s\"").replace("max_attempts = 10", "max_attempts = 1000");
    let text = text.replace("plugin = \"passthrough\"", "plugin = \"passthrough\"\nlease = \"1s\"");
    std::fs::write(
        &file,
        text.replace("group = \"statements\"", "group = \"statements\"\nretry = { max_attempts = 1000 }"),
    )
    .unwrap();
    let mut book = Book::default();
    let mut append = |lines: &[String]| {
        lines.iter().for_each(|line| book.enter(line));
        site.write("lines.jsonl", lines.join("\n"));
        site.ok(&["append", "bank", "--file", "lines.jsonl"]);
    };
    let opening = |n: usize| {
        let payload = json!({ "account": format!("a-{n}"), "amount": 1_000_000 });
        json!({ "id": format!("d-{n:06}"), "type": "deposit", "key": format!("a-{n}"), "payload": payload })
    };
    append(&(0..ACCOUNTS).map(|n| opening(n).to_string()).collect::<Vec<_>>());
    let lag = || site.json(&["group", "info", "bank", "ledger"])[0]["lag"].as_u64().unwrap();
    let (mut appended, mut kills) = (0, 0);
    for round in 0.. {
        assert!(round < 10 * KILLS, "the engine is done before it can be killed, again and again");
        let lines = transfers(appended, 100);
        appended += lines.len();
        append(&lines);
        let mut engine = site.engine(&["--log", "info,guest=warn"]);
        engine.wait_for(&["running"]);
        // The moment of the kill, not a wait for something.
        std::thread::sleep(Duration::from_millis(rand::random_range(0..150)));
        engine.kill9();
        kills += u32::from(lag() > 0);
        if kills == KILLS {
            break;
        }
    }
    until_idle(&site);
    book.check(&site);
}

/// A pipeline file for pipelines `NAME: from a stream to a stream`, of the same handler with other settings.
fn chain(site: &Site, engine: &str, links: &[(&str, &str, &str)]) {
    site.plugin("hostile");
    let mut text = format!("[engine]\n{engine}\n");
    for (name, from, to) in links {
        text += &format!(
            "[plugins.{name}]\npath = \"hostile.wasm\"\nallow_streams = [\"{to}\"]\nconfig = {{ to = \"{to}\" }}\n\
             [[pipeline]]\nname = \"{name}\"\nstream = \"{from}\"\ngroup = \"g\"\nplugin = \"{name}\"\n"
        );
    }
    site.write("wasmill.toml", text);
}

/// The digest of the built handler, as far as it is shown.
fn short_digest(site: &Site) -> String {
    use sha2::{Digest as _, Sha256};
    let bytes = std::fs::read(site.path().join("hostile.wasm")).unwrap();
    Sha256::digest(bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn a_run_waits_for_the_whole_chain_and_events_say_where_they_come_from(store: Store) {
    let site = Site::new(store);
    chain(&site, "max_hops = 2", &[("third", "u", "v"), ("second", "t", "u"), ("first", "s", "t")]);
    let mut lines: Vec<_> = (0..20).map(|n| event(format!("e-{n}"), "forward")).collect();
    lines.push(
        r#"{"id":"e-20","type":"forward","key":"k","payload":{},"metadata":{"correlation_id":"c"}}"#
            .to_owned(),
    );
    site.append(&lines);
    let summaries = until_idle(&site);
    assert_eq!(summaries["first"]["acked"], 21, "{summaries:?}");
    assert_eq!(summaries["second"]["acked"], 42, "{summaries:?}");
    // What came through two handlers leads to nothing more; what ends there does no harm.
    let third = &summaries["third"];
    assert_eq!((&third["acked"], &third["dead_lettered"]), (&json!(21), &json!(21)), "{third}");
    assert!(events(&site, "v").is_empty());

    let digest = short_digest(&site);
    let sources = [events(&site, "s"), events(&site, "t")];
    for (stream, plugin, hops, sources) in
        [("t", "first", "1", &sources[0]), ("u", "second", "2", &sources[1])]
    {
        let derived = events(&site, stream);
        assert_eq!(derived.len(), 42, "{stream}");
        for event in &derived {
            let cause = field(event, "causation_id");
            let source = sources.iter().find(|source| source.id == cause).unwrap();
            let own = event.event_type.as_deref() == Some("ok");
            let inherited = source.metadata.text_field("correlation_id").unwrap_or_else(|| source.id.clone());
            assert_eq!(field(event, "correlation_id"), if own { "own".to_owned() } else { inherited });
            assert_eq!(field(event, "producer"), format!("{plugin}@{digest}"));
            assert_eq!(field(event, "hops"), hops);
            assert_eq!(event.key.as_deref(), Some("k"));
        }
        let ids: BTreeSet<_> = derived.iter().map(|event| &event.id).collect();
        assert_eq!(ids.len(), 42, "{stream}");
    }
    let correlated = events(&site, "u").iter().filter(|event| field(event, "correlation_id") == "c").count();
    assert_eq!(correlated, 1);
}

fn events_derived_again_have_the_same_ids(store: Store) {
    let site = Site::new(store);
    chain(&site, "", &[("first", "s", "t")]);
    site.append(&[event("a", "forward"), event("b", "forward")]);
    let ids = |skipped: usize| -> Vec<String> {
        let mut ids: Vec<_> = events(&site, "t").into_iter().skip(skipped).map(|event| event.id).collect();
        ids.sort();
        ids
    };
    until_idle(&site);
    let first = ids(0);
    assert_eq!(first.len(), 4);
    site.ok(&["group", "replay", "s", "g", "--from", "1", "--yes"]);
    until_idle(&site);
    // A replay is asked for: what is handled again has its effects again, and can be told by its ids.
    assert_eq!(ids(4), first);
}

fn a_cycle_ends_in_a_dead_letter(store: Store) {
    let site = Site::new(store);
    chain(&site, "max_hops = 5", &[("ring", "s", "s")]);
    site.append(&[event("a", "forward")]);
    let ring = until_idle(&site).remove("ring").unwrap();
    // The first one, and a pair of each lap.
    assert_eq!((&ring["acked"], &ring["dead_lettered"]), (&json!(10), &json!(1)), "{ring}");
    let dead = site.dead_letters().remove(0);
    assert_eq!((&dead["cause"], &dead["attempts"]), (&json!("too-many-hops"), &json!(1)), "{dead}");
    assert_eq!(dead["event"]["metadata"]["hops"], 5, "{dead}");
    assert!(dead["reason"].as_str().unwrap().contains("max_hops"), "{dead}");
    assert_eq!(events(&site, "s").len(), 11);
}

/// A pipeline whose handler counts in its state, and appends each count to `audit`.
fn counting(store: Store, pipeline_keys: &str) -> Site {
    let site = Site::new(store);
    site.pipeline("hostile", "allow_streams = [\"audit\"]\ntimeout = \"20s\"", pipeline_keys);
    site
}

fn count(site: &Site) -> Option<u64> {
    state(site, "p", "default", &["count".to_owned()]).remove(0)
}

/// The counts of the audit, sorted.
fn counted(site: &Site) -> Vec<u64> {
    let payload = |event: &Event| serde_json::from_str::<Value>(event.payload.as_str()).unwrap();
    let mut counts: Vec<_> =
        events(site, "audit").iter().map(|event| payload(event)["count"].as_u64().unwrap()).collect();
    counts.sort_unstable();
    counts
}

fn what_is_not_acked_leaves_nothing(store: Store) {
    let site = counting(store, "retry = { max_attempts = 2, initial = \"1ms\" }");
    let file = site.path().join("wasmill.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"20s\"", "\"500ms\"")).unwrap();
    let behaviours = ["trap", "loop", "reject", "retry"];
    site.append(&behaviours.map(|behaviour| event(behaviour, &format!("stage-then-{behaviour}"))));
    let summary = site.until_idle(&[]);
    assert_eq!((&summary["dead_lettered"], &summary["retried"]), (&json!(4), &json!(3)), "{summary}");
    assert_eq!((count(&site), counted(&site)), (None, vec![]));
    site.append(&[event("ok", "stage")]);
    site.until_idle(&[]);
    assert_eq!((count(&site), counted(&site)), (Some(1), vec![1]));
}

fn conflicts_burn_no_attempts(store: Store) {
    const EVENTS: u64 = 200;
    let site = counting(store, "concurrency = 2");
    site.append(&(0..EVENTS).map(|n| event(n, "stage")).collect::<Vec<_>>());
    let (status, stdout, log) = site.engine(&["--until-idle", "--log", "debug"]).end();
    assert!(status.success(), "{log}");
    let summary: Value = serde_json::from_str(stdout.lines().next().unwrap()).unwrap();
    assert!(log.contains("its state has changed meanwhile"), "no conflict: {summary}");
    assert_eq!((&summary["claimed"], &summary["acked"]), (&json!(EVENTS), &json!(EVENTS)), "{summary}");
    assert_eq!(count(&site), Some(EVENTS));
    assert!(counted(&site).into_iter().eq(1..=EVENTS));
}

fn sixteen_consumers_count_exactly(store: Store) {
    const EVENTS: u64 = 400;
    let site = counting(
        store,
        "concurrency = 4\nretry = { max_attempts = 1000, initial = \"10ms\", max = \"100ms\" }",
    );
    site.ok(&["stream", "create", "s", "--partitions", "4"]);
    let engines: Vec<_> = (0..4).map(|_| site.engine(&["--log", "info,guest=warn"])).collect();
    let engines = engines.into_iter().map(|mut engine| {
        engine.wait_for(&["running"]);
        engine
    });
    let engines: Vec<_> = engines.collect();
    let lines =
        (0..EVENTS).map(|n| json!({ "key": n.to_string(), "type": "stage", "payload": {} }).to_string());
    site.append(&lines.collect::<Vec<_>>());
    wait_until("all is settled", || {
        let group = site.group();
        (&group["lag"], &group["in_flight"], &group["parked"]) == (&json!(0), &json!(0), &json!(0))
    });
    let summaries: Vec<_> = engines.into_iter().map(support::program::Engine::drain).collect();
    let total =
        |field: &str| -> u64 { summaries.iter().map(|summary| summary[field].as_u64().unwrap()).sum() };
    assert_eq!((total("acked"), total("dead_lettered"), total("unknown")), (EVENTS, 0, 0), "{summaries:?}");
    // An attempt is burnt by a lost lease, or by the seventeenth conflict in a row; by nothing else.
    assert_eq!(total("claimed"), EVENTS + total("retried") + total("stale"), "{summaries:?}");
    assert_eq!(count(&site), Some(EVENTS));
    assert!(counted(&site).into_iter().eq(1..=EVENTS));
}

#[test]
fn a_flushed_redis_gets_back_the_streams_that_handlers_append_to() {
    let site = Site::new(Store::redis());
    chain(&site, "", &[("first", "s", "t")]);
    let mut engine = site.engine(&["--log", "debug"]);
    engine.wait_for(&["running"]);
    site.append(&[event("before", "forward")]);
    engine.wait_for(&["event=before", "acked"]);
    let Store::Redis(server) = &site.store else { unreachable!() };
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
    site.append(&[event("after", "forward")]);
    engine.wait_for(&["event=after", "acked"]);
    let summary = engine.drain();
    assert_eq!((&summary["acked"], &summary["retried"]), (&json!(2), &json!(0)), "{summary}");
    assert_eq!(events(&site, "t").len(), 2, "{summary}");
}
