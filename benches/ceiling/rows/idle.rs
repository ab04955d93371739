//! An engine that has nothing to do: the share of one core that it takes, and its memory.

use std::time::{Duration, Instant};

use crate::line::{self, Budget};
use crate::process;
use crate::support::program::{Site, Store};

/// What a start leaves to do is over by then.
const SETTLED: Duration = Duration::from_secs(5);
/// So long is looked at. The system counts in steps of 10 ms: here 0.03 % of a core.
const WINDOW: Duration = Duration::from_secs(30);

pub(crate) fn run() {
    for (name, store) in [("SQLite", Store::Sqlite), ("Redis", Store::redis())] {
        let site = Site::new(store);
        site.pipeline("passthrough", "", "");
        look(name, &site, "", (Budget::AtMost(1.0), Budget::AtMost(80.0)));
    }
    for (name, store) in [("SQLite", Store::Sqlite), ("Redis", Store::redis())] {
        let site = Site::new(store);
        super::memory::pipelines(&site, 200, "");
        look(name, &site, ", 200 pipelines", (Budget::None, Budget::None));
    }
}

fn look(name: &str, site: &Site, with: &str, (share, memory): (Budget, Budget)) {
    let mut engine = site.engine(&[]);
    engine.wait_for(&["running"]);
    std::thread::sleep(SETTLED);
    let server = match &site.store {
        Store::Redis(server) => server.pid(),
        Store::Sqlite => None,
    };
    let processes = || [Some(engine.pid()), server].map(|pid| pid.map_or(0.0, process::cpu_seconds));
    let (before, began) = (processes(), Instant::now());
    std::thread::sleep(WINDOW);
    let (after, took) = (processes(), began.elapsed().as_secs_f64());
    let shares = [0, 1].map(|of| (after[of] - before[of]) / took * 100.0);
    line::figure(&format!("idle, {name}{with}: of a core"), "%", shares[0], share);
    if server.is_some() {
        line::figure(&format!("idle, {name}{with}: of a core, the server"), "%", shares[1], Budget::None);
    }
    let resident = process::resident_kib(engine.pid()) / 1024.0;
    line::figure(&format!("idle, {name}{with}: resident memory"), "MiB", resident, memory);
    engine.drain();
}
