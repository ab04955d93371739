//! Fifty reloads under load: what they cost the events that are handled meanwhile. It runs the program on
//! an embedded store; its figures are those of docs/reload.md.

use std::time::Duration;

use crate::line::{self, Budget};
use crate::process::resident_kib;
use crate::support::program::{Site, Store, built_plugin};

const EVENTS: u32 = 300_000;
const RELOADS: usize = 50;
/// So long is looked at without a reload.
const QUIET: Duration = Duration::from_secs(4);

fn build(number: u8) -> Vec<u8> {
    let mut bytes = std::fs::read(built_plugin("passthrough")).unwrap();
    // A custom section, which changes nothing but the digest.
    bytes.extend([0, 3, 1, b'n', number]);
    bytes
}

/// When the handler was called, in microseconds, from the lines that it logs.
fn calls(log: &str) -> Vec<i64> {
    let lines = log.lines().filter(|line| line.contains(" guest: "));
    let at = |line: &str| line.split_whitespace().next()?.parse::<jiff::Timestamp>().ok();
    let mut calls: Vec<i64> = lines.filter_map(|line| Some(at(line)?.as_microsecond())).collect();
    calls.sort_unstable();
    calls
}

/// The longest time between two calls, in milliseconds.
fn pause(calls: &[i64]) -> f64 {
    calls.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap() as f64 / 1000.0
}

/// Calls a second.
fn rate(calls: &[i64]) -> f64 {
    calls.len() as f64 * 1e6 / (calls.last().unwrap() - calls.first().unwrap()).max(1) as f64
}

pub(crate) fn run() {
    let site = Site::new(Store::Sqlite);
    site.pipeline("passthrough", "", "");
    let path = site.path().join("passthrough.wasm");
    std::fs::write(&path, build(0)).unwrap();
    let lines: Vec<String> =
        (0..EVENTS).map(|n| format!("{{\"id\":\"{n}\",\"payload\":{{\"n\":{n}}}}}")).collect();
    site.append(&lines);

    let mut engine = site.engine(&["--watch"]);
    engine.wait_for(&["running"]);
    std::thread::sleep(QUIET);
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
    let all = engine.log();
    // Instances of builds that are gone are dropped with their last call.
    std::thread::sleep(Duration::from_secs(2));
    let after = resident_kib(engine.pid());
    let summary = engine.drain();
    let left = site.group()["lag"].as_u64().unwrap();
    assert!(left > 0, "the backlog was gone before the end: raise EVENTS");

    let (quiet, all) = (calls(&quiet), calls(&all));
    let busy = &all[quiet.len()..];
    line::figure("no reload", "events/s", rate(&quiet), Budget::None);
    line::figure("no reload: longest pause", "ms", pause(&quiet), Budget::None);
    line::figure(&format!("{RELOADS} reloads"), "events/s", rate(busy), Budget::None);
    line::figure(&format!("{RELOADS} reloads: longest pause"), "ms", pause(busy), Budget::AtMost(50.0));
    line::figure("resident memory before", "MiB", before / 1024.0, Budget::None);
    line::figure("resident memory after", "MiB", after / 1024.0, Budget::None);
    let acked = |summary: &serde_json::Value| summary["acked"].as_f64().unwrap();
    let lost = f64::from(EVENTS) - acked(&summary) - acked(&site.until_idle(&[]));
    line::figure("lost", "events", lost, Budget::AtMost(0.0));
    for field in ["retried", "dead_lettered", "stale", "unknown"] {
        line::figure(field, "events", summary[field].as_f64().unwrap(), Budget::AtMost(0.0));
    }
}
