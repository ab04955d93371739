//! Fifty reloads under load: what they cost the events that are handled meanwhile. `cargo bench --bench
//! reload` prints the figures of docs/reload.md; it runs the program on an embedded store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use support::program::{Site, Store, built_plugin};

const EVENTS: u32 = 300_000;
const RELOADS: usize = 50;

fn build(number: u8) -> Vec<u8> {
    let mut bytes = std::fs::read(built_plugin("passthrough")).unwrap();
    // A custom section, which changes nothing but the digest.
    bytes.extend([0, 3, 1, b'n', number]);
    bytes
}

/// The resident memory of a process, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// When the handler was called, in microseconds, from the lines that it logs.
fn calls(log: &str) -> Vec<i64> {
    let lines = log.lines().filter(|line| line.contains(" guest: "));
    let at = |line: &str| line.split_whitespace().next()?.parse::<jiff::Timestamp>().ok();
    let mut calls: Vec<i64> = lines.filter_map(|line| Some(at(line)?.as_microsecond())).collect();
    calls.sort_unstable();
    calls
}

/// The longest times between two calls, in milliseconds, the longest first.
fn pauses(calls: &[i64]) -> Vec<f64> {
    let mut pauses: Vec<i64> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    pauses.sort_unstable_by(|a, b| b.cmp(a));
    pauses.into_iter().take(5).map(|us| us as f64 / 1000.0).collect()
}

fn main() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("passthrough", "", "");
    let path = site.path().join("passthrough.wasm");
    std::fs::write(&path, build(0)).unwrap();
    let lines: Vec<String> =
        (0..EVENTS).map(|n| format!("{{\"id\":\"{n}\",\"payload\":{{\"n\":{n}}}}}")).collect();
    site.append(&lines);

    let mut engine = site.engine(&["--watch"]);
    engine.wait_for(&["running"]);
    std::thread::sleep(Duration::from_secs(4));
    let (quiet, before) = (engine.log(), resident_kib(engine.pid()));
    let mut read = quiet.len();
    for reload in 1..=RELOADS {
        let beside = path.with_extension("new");
        std::fs::write(&beside, build((reload % 2) as u8)).unwrap();
        std::fs::rename(beside, &path).unwrap();
        // Only what is new is looked at: the log is long, and this machine is busy.
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let news = engine.log_from(read);
            read += news.len();
            if news.contains("a new build of the plugin is in use") {
                break;
            }
        }
    }
    let (all, lag) = (engine.log(), site.group()["lag"].as_u64().unwrap());
    // Instances of builds that are gone are dropped with their last call.
    std::thread::sleep(Duration::from_secs(2));
    let after = resident_kib(engine.pid());
    let summary = engine.drain();

    let (quiet, all) = (calls(&quiet), calls(&all));
    let busy = &all[quiet.len()..];
    let rate = |calls: &[i64]| {
        calls.len() as f64 * 1e6 / (calls.last().unwrap() - calls.first().unwrap()).max(1) as f64
    };
    println!("without reloads: {:.0} events/s, longest pauses {:?} ms", rate(&quiet), pauses(&quiet));
    println!("{RELOADS} reloads:      {:.0} events/s, longest pauses {:?} ms", rate(busy), pauses(busy));
    println!("resident memory: {} MiB before, {} MiB after", before / 1024, after / 1024);
    println!("left when the last reload was over: {lag} of {EVENTS} events; {summary}");
    assert!(lag > 0, "the backlog was gone before the last reload: raise EVENTS");
    for field in ["retried", "dead_lettered", "stale", "unknown"] {
        assert_eq!(summary[field], 0, "{field}");
    }
}
