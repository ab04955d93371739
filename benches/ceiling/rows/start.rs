//! From the program's start until the first event is settled, with a plugin of 18 MB in Python, whose
//! compiled form is in the cache.

use crate::line::{self, Budget};
use crate::sides::median;
use crate::support::program::{Site, Store};

const ROUNDS: usize = 9;

/// An order that the handler accepts.
const ORDER: &str = r#"{"type":"order.placed","payload":{"order_id":"o-1","customer":"Hana","currency":"EUR","items":[{"sku":"cup","quantity":2,"unit_price_cents":1250}],"total_cents":2500,"payment":"authorized"}}"#;

pub(crate) fn run() {
    for (name, store) in [("SQLite", Store::Sqlite), ("Redis", Store::redis())] {
        let site = Site::new(store);
        site.pipeline("orders-python", "config = { currencies = \"EUR\" }", "");
        // The first one compiles, where no one has yet.
        let took: Vec<f64> = (0..=ROUNDS).map(|_| first_event(&site)).skip(1).collect();
        let what = format!("start with a cached 18 MB plugin, {name}");
        line::figure(&what, "ms", median(took.iter().copied()), Budget::AtMost(200.0));
        line::figure(
            &format!("{what}: the longest"),
            "ms",
            took.into_iter().fold(0.0, f64::max),
            Budget::None,
        );
    }
}

/// The milliseconds from a start until the first event is acked, by the log's own times.
fn first_event(site: &Site) -> f64 {
    site.append(&[ORDER.to_owned()]);
    let began = jiff::Timestamp::now();
    let mut engine = site.engine(&["--log", "info,wasmill::telemetry=debug"]);
    engine.wait_for(&["acked"]);
    let log = engine.log();
    let line = log.lines().find(|line| line.contains("acked")).unwrap();
    let acked: jiff::Timestamp = line.split_whitespace().next().unwrap().parse().unwrap();
    engine.drain();
    acked.duration_since(began).as_secs_f64() * 1e3
}
