//! What is scraped is what was done.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wasmill::metrics::names;

use crate::client::{Scrape, engine};
use crate::support::program::{Site, Store, wait_until};

on_every_store!(counters_are_what_was_done);

fn events(count: usize, event_type: &'static str) -> impl Iterator<Item = String> {
    (0..count).map(move |n| json!({ "id": format!("{event_type}-{n}"), "type": event_type, "payload": {} }).to_string())
}

/// Each fault costs two attempts, as many as there are; each retry waits a millisecond.
fn counters_are_what_was_done(store: Store) {
    let site = Site::new(store);
    let plugin_keys = "allow_streams = [\"audit\"]\ntimeout = \"1s\"\nmax_memory = \"8MiB\"";
    site.pipeline("hostile", plugin_keys, "retry = { max_attempts = 2, initial = \"1ms\", max = \"1ms\" }");
    let lines = [events(30, "ok"), events(4, "stage"), events(5, "echo"), events(3, "retry")];
    let lines = lines.into_iter().flatten();
    let lines = lines.chain(events(2, "panic")).chain(events(1, "loop")).chain(events(1, "eat-memory"));
    site.append(&lines.collect::<Vec<_>>());
    let (mut engine, at) = engine(&site, &["--log", "info,guest=off"]);
    engine.wait_for(&["running"]);
    let mut scrape = Scrape::of(at);
    wait_until("all is settled, and the store was looked at since", || {
        scrape = Scrape::of(at);
        let settled = |outcome: &str| {
            scrape.of_p("wasmill_events_settled_total", &format!(",outcome=\"{outcome}\"")).unwrap_or_default()
        };
        settled("ack") + settled("dead-letter") >= 46.0
            && scrape.of_p("wasmill_group_lag_events", "") == Some(0.0)
            && scrape.row("wasmill_group_dead_letters{stream=\"s\",group=\"g\"}") == Some(12.0)
    });
    for (name, more, expected) in [
        ("wasmill_events_claimed_total", "", 53.0),
        ("wasmill_events_redelivered_total", "", 7.0),
        ("wasmill_events_settled_total", ",outcome=\"ack\"", 34.0),
        ("wasmill_events_settled_total", ",outcome=\"retry\"", 7.0),
        ("wasmill_events_settled_total", ",outcome=\"dead-letter\"", 12.0),
        ("wasmill_events_settled_total", ",outcome=\"release\"", 0.0),
        ("wasmill_settlements_stale_total", "", 0.0),
        ("wasmill_settlements_unknown_total", "", 0.0),
        ("wasmill_faults_total", ",plugin=\"hostile\",kind=\"trap\"", 4.0),
        ("wasmill_faults_total", ",plugin=\"hostile\",kind=\"timeout\"", 2.0),
        ("wasmill_faults_total", ",plugin=\"hostile\",kind=\"memory\"", 2.0),
        ("wasmill_event_attempts_count", "", 46.0),
        ("wasmill_event_attempts_sum", "", 53.0),
        ("wasmill_queue_wait_seconds_count", "", 46.0),
        ("wasmill_events_in_flight", "", 0.0),
        ("wasmill_group_parked_events", "", 0.0),
        ("wasmill_group_oldest_unsettled_seconds", "", 0.0),
        ("wasmill_pipeline_ready", "", 1.0),
    ] {
        assert_eq!(scrape.of_p(name, more), Some(expected), "{name}{more} in\n{}", scrape.text);
    }
    let staged = scrape.of_p("wasmill_events_appended_total", "").unwrap();
    let calls = scrape.of_p("wasmill_handler_seconds_count", ",plugin=\"hostile\"").unwrap();
    // Handlers that were in each other's way ran again under the same lease.
    assert!(calls >= 53.0, "{calls}");
    let seconds = scrape.of_p("wasmill_handler_seconds_sum", ",plugin=\"hostile\"").unwrap();
    assert!(seconds >= 2.0, "two calls ran into their timeout of a second: {seconds}");
    for name in ["wasmill_claim_seconds_count", "wasmill_settle_seconds_count"] {
        assert!(scrape.of_p(name, "").unwrap() >= 1.0, "{name}");
    }
    let warm = scrape.row("wasmill_plugin_instances{plugin=\"hostile\",state=\"warm\"}").unwrap();
    let memory = scrape.row("wasmill_plugin_memory_bytes{plugin=\"hostile\"}").unwrap();
    assert!(warm >= 1.0 && memory >= warm * 65_536.0, "{warm} instances have {memory} bytes");
    assert_eq!(scrape.row("wasmill_plugin_instances{plugin=\"hostile\",state=\"busy\"}"), Some(0.0));
    let audit: Vec<Value> = site.json(&["query", "audit", "--limit", "100"]);
    assert_eq!(staged, audit.len() as f64, "appended by effects");
    assert_listed(&scrape.text);
    let summary = engine.drain();
    for (field, expected) in [("claimed", 53), ("acked", 34), ("retried", 7), ("dead_lettered", 12)] {
        assert_eq!(summary[field], expected, "{field} of {summary}");
    }
}

/// What a pipeline leaves parked, and how old it is, is read from the store.
#[test]
fn what_waits_is_told_with_its_age() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "retry = { initial = \"1h\", max = \"1h\" }");
    let line = json!({ "type": "retry", "payload": {}, "timestamp": "2020-01-15T12:00:00Z" }).to_string();
    site.append(&[line]);
    let (engine, at) = engine(&site, &[]);
    let mut scrape = Scrape::of(at);
    wait_until("it is parked", || {
        scrape = Scrape::of(at);
        scrape.of_p("wasmill_group_parked_events", "") == Some(1.0)
    });
    assert_eq!(scrape.of_p("wasmill_group_lag_events", ""), Some(1.0));
    let age = scrape.of_p("wasmill_group_oldest_unsettled_seconds", "").unwrap();
    assert!(age > 6.0 * 365.0 * 86_400.0, "{age}");
    engine.drain();
}

#[test]
fn reloads_are_counted() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("hostile", "", "");
    let (mut engine, at) = engine(&site, &[]);
    engine.wait_for(&["running"]);
    let good = std::fs::read_to_string(site.path().join("wasmill.toml")).unwrap();
    let reloads = |outcome: &str| {
        Scrape::of(at).row(&format!("wasmill_reloads_total{{outcome=\"{outcome}\"}}")).unwrap()
    };
    assert_eq!((reloads("ok"), reloads("refused")), (0.0, 0.0));
    site.write("wasmill.toml", format!("[http]\nlisten = \"127.0.0.1:1\"\n{good}"));
    engine.signal("-HUP");
    engine.wait_for(&["not reloaded", "`[http]` cannot change"]);
    wait_until("it is counted", || reloads("refused") == 1.0);
    site.write("wasmill.toml", format!("{good}concurrency = 2\n"));
    engine.signal("-HUP");
    wait_until("it is counted", || reloads("ok") == 1.0);
    assert_eq!(reloads("refused"), 1.0);
    engine.drain();
}

/// `docs/metrics.md`, the constants and a scrape name the same metrics, with the same types and labels.
fn assert_listed(scrape: &str) {
    let expected: BTreeMap<_, _> = names::ALL
        .iter()
        .map(|metric| (metric.name.to_owned(), (metric.kind.as_str().to_owned(), metric.labels.join(", "))))
        .collect();
    assert_eq!(documented(), expected, "docs/metrics.md");
    assert_eq!(scraped(scrape), expected, "a scrape:\n{scrape}");
}

/// The rows of the tables of `docs/metrics.md`.
fn documented() -> BTreeMap<String, (String, String)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `wasmill_"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[2].replace('`', "");
        (cells[0].trim_matches('`').to_owned(), (cells[1].to_owned(), labels))
    })
    .collect()
}

/// The families of a scrape, by the names that a query uses, with the labels of their rows.
fn scraped(text: &str) -> BTreeMap<String, (String, String)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let families = types.map(|(family, kind)| {
        let name = match kind {
            "counter" => format!("{family}_total"),
            "info" => format!("{family}_info"),
            _ => family.to_owned(),
        };
        let sample = if kind == "histogram" { format!("{family}_count") } else { name.clone() };
        let row = text.lines().find(|line| {
            line.strip_prefix(&sample).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        let row = row.unwrap_or_else(|| panic!("{family} has no row in\n{text}"));
        let labels = row.split_once('{').map(|(_, rest)| rest.rsplit_once('}').unwrap().0).unwrap_or_default();
        let labels: Vec<_> =
            labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect();
        (name, (kind.to_owned(), labels.join(", ")))
    });
    families.collect()
}
