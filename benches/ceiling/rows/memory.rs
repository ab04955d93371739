//! The memory of an engine: for each pipeline, and for each event in its hands.

use std::fmt::Write as _;
use std::time::Duration;

use crate::line::{self, Budget};
use crate::process;
use crate::support::program::{Engine, Site, Store, wait_until};

/// What a start leaves to do is over by then.
const SETTLED: Duration = Duration::from_secs(3);
const HANDLERS: usize = 1_000;

pub(crate) fn run() {
    for (name, store) in [("SQLite", Store::Sqlite), ("Redis", Store::redis())] {
        let site = Site::new(store);
        let one = engine(&site, 1);
        let (few, few_threads) = held(one);
        let many = engine(&site, 200);
        let (much, threads) = held(many);
        let what = |what: &str| format!("{name}: {what}");
        line::figure(&what("resident, 1 pipeline"), "MiB", few / 1024.0, Budget::None);
        line::figure(&what("resident, 200 pipelines"), "MiB", much / 1024.0, Budget::None);
        line::figure(&what("resident a pipeline"), "KiB", (much - few) / 199.0, Budget::None);
        line::figure(&what("threads a pipeline"), "", (threads - few_threads) / 199.0, Budget::None);
    }
    // Events whose handlers wait, each in an instance of its own; and events of which all but one wait for
    // their turn in the only instance.
    in_flight("an event in its handler, with an instance", "");
    in_flight("an event that waits for an instance", "max_instances = 1");
}

/// Writes a file of so many pipelines over one plugin, each with a stream of its own.
pub(crate) fn pipelines(site: &Site, number: usize, pipeline_keys: &str) {
    site.plugin("passthrough");
    let mut file = "[plugins.p]\npath = \"passthrough.wasm\"\n".to_owned();
    for n in 0..number {
        let keys = format!("name = \"p{n}\"\nstream = \"s{n}\"\ngroup = \"g\"\nplugin = \"p\"");
        writeln!(file, "[[pipeline]]\n{keys}\n{pipeline_keys}").unwrap();
    }
    site.write("wasmill.toml", file);
}

fn engine(site: &Site, number: usize) -> Engine {
    pipelines(site, number, "");
    let mut engine = site.engine(&[]);
    engine.wait_for(&["running"]);
    std::thread::sleep(SETTLED);
    engine
}

/// The memory, in KiB, and the threads of an engine, which ends.
fn held(engine: Engine) -> (f64, f64) {
    let held = (process::resident_kib(engine.pid()), process::threads(engine.pid()));
    engine.drain();
    held
}

fn in_flight(what: &str, plugin_keys: &str) {
    let site = Site::new(Store::Sqlite);
    let keys = format!("timeout = \"10m\"\n{plugin_keys}");
    site.pipeline("hostile", &keys, &format!("concurrency = {HANDLERS}\nmax_in_flight = {HANDLERS}"));
    let mut engine = site.engine(&[]);
    engine.wait_for(&["running"]);
    std::thread::sleep(SETTLED);
    let before = process::resident_kib(engine.pid());
    let text = "x".repeat(1000);
    let line = |n| format!("{{\"id\":\"{n}\",\"type\":\"sleep\",\"payload\":{{\"text\":\"{text}\"}}}}");
    site.append(&(0..HANDLERS).map(line).collect::<Vec<_>>());
    wait_until("all are in hand", || site.group()["in_flight"] == HANDLERS);
    std::thread::sleep(SETTLED);
    let each = (process::resident_kib(engine.pid()) - before) / HANDLERS as f64;
    line::figure(&format!("resident, {what}, 1 KiB"), "KiB", each, Budget::None);
    engine.kill9();
}
