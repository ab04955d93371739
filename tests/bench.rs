//! `wasmill bench` as a user runs it: every scenario, small, on both stores.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
#[macro_use]
mod support;

use serde_json::Value;
use support::program::{Site, Store};

/// Runs a scenario with few events, and gives its lines.
fn bench(store: Store, args: &[&str]) -> (Site, Vec<Value>) {
    let site = Site::new(store);
    let small = ["--rounds", "2", "--log", "warn"];
    let lines = site.json(&[&["bench"], args, &small].concat());
    (site, lines)
}

/// Nothing is left of it, neither in the store nor beside it.
fn nothing_left(site: &Site) {
    let files: Vec<_> = std::fs::read_dir(site.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.is_empty(), "{files:?}");
    if let Store::Redis(_) = &site.store {
        assert_eq!(site.contents(), Vec::<String>::new());
    }
}

/// The figures of a line are there, and can be.
fn plausible(line: &Value, site: &Site, events: u64) {
    assert_eq!(line["events"], events, "{line}");
    assert_eq!(line["rounds"], 2, "{line}");
    let figure = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"));
    let ascending = ["events_per_second_min", "events_per_second", "events_per_second_max"];
    let percentiles = ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"];
    for names in [&ascending[..], &percentiles] {
        assert!(figure(names[0]) > 0.0, "{line}");
        assert!(names.windows(2).all(|pair| figure(pair[0]) <= figure(pair[1])), "{line}");
    }
    for name in ["latency_of", "scenario"] {
        assert!(line[name].is_string(), "{line}");
    }
    let (store, server) = match &site.store {
        Store::Redis(_) => ("redis", figure("server_cpu_us_per_event") > 0.0),
        Store::Sqlite => ("sqlite", line["server_cpu_us_per_event"].is_null()),
    };
    assert_eq!(line["store"], store, "{line}");
    assert!(server, "{line}");
}

fn append(store: Store) {
    let (site, lines) = bench(store, &["append", "--events", "300", "--batch", "7", "--partitions", "3"]);
    assert_eq!(lines.len(), 1);
    plausible(&lines[0], &site, 300);
    assert_eq!((&lines[0]["batch"], &lines[0]["partitions"]), (&7.into(), &3.into()));
    nothing_left(&site);
}

fn claim_settle(store: Store) {
    let args =
        ["claim-settle", "--events", "300", "--batch", "16", "--concurrency", "2", "--partitions", "2"];
    let (site, lines) = bench(store, &args);
    assert_eq!(lines.len(), 1);
    plausible(&lines[0], &site, 300);
    nothing_left(&site);
}

fn engine(store: Store) {
    let (site, lines) = bench(store, &["engine", "--events", "300", "--payload", "100000"]);
    assert_eq!(lines.len(), 1);
    plausible(&lines[0], &site, 300);
    assert_eq!(lines[0]["variant"], "noop");
    nothing_left(&site);
}

fn engine_whose_handler_works(store: Store) {
    let site = Site::new(store);
    for (work, least_us) in [("300us", 300.0), ("5ms", 5000.0)] {
        let args = ["bench", "engine", "--work", work, "--events", "30", "--rounds", "1"];
        let line = site.json(&args).remove(0);
        assert!(line["p50_us"].as_f64().unwrap() >= least_us, "{line}");
    }
    nothing_left(&site);
}

fn effects(store: Store) {
    let (site, lines) = bench(store, &["effects", "--events", "300", "--partitions", "2"]);
    assert_eq!(lines.len(), 1);
    plausible(&lines[0], &site, 300);
    nothing_left(&site);
}

fn latency(store: Store) {
    let (site, lines) = bench(store, &["latency", "--rate", "500", "--events", "100", "--partitions", "2"]);
    assert_eq!(lines.len(), 1);
    plausible(&lines[0], &site, 100);
    assert_eq!(lines[0]["variant"], "500 events/s");
    // No faster than asked for; the first event comes an interval after the start.
    assert!(lines[0]["events_per_second_max"].as_f64().unwrap() <= 505.0, "{}", lines[0]);
    nothing_left(&site);
}

/// Appends one by one, far slower than they are to start: the wait for its append is part of an event's
/// latency.
fn latency_where_appends_fall_behind(store: Store) {
    let site = Site::new(store);
    let (events, rate) = (3000.0, 1e6);
    let args = ["bench", "latency", "--rate", "1000000", "--events", "3000", "--batch", "1", "--rounds", "1"];
    let line = site.json(&args).remove(0);
    let took_us = 1e6 * events / line["events_per_second"].as_f64().unwrap();
    let behind_us = took_us - 1e6 * events / rate;
    assert!(behind_us > 0.0 && line["max_us"].as_f64().unwrap() > behind_us / 2.0, "{line}");
    nothing_left(&site);
}

/// Pairs of lines, much before little, and then a ratio for each pair.
fn compared(site: &Site, lines: &[Value], variants: &[&str]) {
    assert_eq!(lines.len(), variants.len() / 2 * 3);
    let (sides, ratios) = lines.split_at(variants.len());
    for (line, variant) in sides.iter().zip(variants) {
        plausible(line, site, 100);
        assert_eq!(line["variant"], *variant);
    }
    for (line, variants) in ratios.iter().zip(variants.chunks(2)) {
        assert_eq!((&line["variant"], &line["against"]), (&variants[0].into(), &variants[1].into()));
        let [min, median, max] = ["min", "median", "max"].map(|name| line[name].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{line}");
        let of = if matches!(site.store, Store::Sqlite) { "time" } else { "server CPU" };
        assert_eq!(line["of"], of);
    }
}

fn backlog(store: Store) {
    let (site, lines) = bench(store, &["backlog", "--backlog", "500", "--events", "100"]);
    compared(&site, &lines, &["500 waiting", "5 waiting"]);
    nothing_left(&site);
}

fn pending(store: Store) {
    let args = ["pending", "--pending", "500", "--events", "100", "--partitions", "2"];
    let (site, lines) = bench(store, &args);
    compared(&site, &lines, &["500 leased", "5 leased", "500 parked", "5 parked"]);
    nothing_left(&site);
}

on_every_store!(
    append,
    backlog,
    claim_settle,
    effects,
    engine,
    engine_whose_handler_works,
    latency,
    latency_where_appends_fall_behind,
    pending,
);

#[test]
fn the_table_names_what_it_shows() {
    let site = Site::new(Store::Sqlite);
    let table = site.ok(&["bench", "append", "--events", "10", "--rounds", "1"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    for heading in ["events/s", "p50", "p99.9", "max", "client CPU", "server CPU"] {
        assert!(lines[0].contains(heading), "{table}");
    }
    assert!(lines[1].starts_with("append "), "{table}");
    assert!(lines[2].starts_with("1 round of 10 events on sqlite; "), "{table}");
}

/// Keys that stand in the server stay, those of another namespace with a name that begins alike too.
#[test]
fn what_others_have_is_left_alone() {
    let site = Site::new(Store::redis());
    site.ok(&["stream", "create", "theirs"]);
    site.ok(&["stream", "create", "theirs", "--namespace", "Wasmill.Bench"]);
    let before = site.contents();
    assert!(!before.is_empty());
    site.ok(&["bench", "claim-settle", "--events", "50", "--rounds", "1"]);
    assert_eq!(site.contents(), before);
}

/// A file that is there is none of the benchmark's.
#[test]
fn a_store_that_is_there_is_refused() {
    let site = Site::new(Store::Sqlite);
    site.ok(&["stream", "create", "theirs"]);
    let before = site.contents();
    let refused = site.run(&["bench", "append", "--events", "50", "--rounds", "1"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("wasmill.db is there already"), "{said}");
    assert_eq!(site.contents(), before);
}

/// A signal in the middle of it: what was made goes, and that is no success.
fn interrupted(store: Store) {
    let site = Site::new(store);
    let mut command = site.command(&["bench", "engine", "--work", "5ms", "--events", "100000"]);
    // Where the guest's file is for a moment: it goes too.
    command.env("TMPDIR", site.path());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The warm-up's handlers have work for many seconds.
    let url = match &site.store {
        Store::Redis(server) => Some(server.url()),
        Store::Sqlite => None,
    };
    support::program::wait_until("it has made its store", || match &url {
        Some(url) => {
            let mut connection = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
            redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap() > 3
        }
        None => {
            let mut names = std::fs::read_dir(site.path()).unwrap().map(|entry| entry.unwrap().file_name());
            names.any(|name| name.to_str().unwrap().ends_with(".db"))
        }
    });
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the benchmark was interrupted"), "{said}");
    nothing_left(&site);
}

mod a_signal {
    use super::*;

    #[test]
    fn on_sqlite() {
        interrupted(Store::Sqlite);
    }

    #[test]
    fn on_redis() {
        interrupted(Store::redis());
    }
}
