//! What an event costs, appended, claimed and acked, while much else stands in its group, against little: a
//! backlog, leases of another consumer, parked events. Each side has a store of its own; they take turns,
//! and each round leaves as much as it found. On Redis the server's time counts, on SQLite this process's.

use wasmill::bench::backlog::Backlog;
use wasmill::bench::pending::{Held, Pending};
use wasmill::bench::{Result, Round, Shape, Site};

use crate::ground::{Ground, Kind};
use crate::line::{self, Budget};
use crate::sides::alternate;

const ROUNDS: usize = 9;
const SHAPE: Shape = Shape { events: 9_600, payload_bytes: 64, batch: 64, concurrency: 1, partitions: 1 };
/// How a side is filled.
const FILLING: Shape = Shape { batch: 256, ..SHAPE };

pub(crate) fn run() {
    rows(Kind::Redis);
}

pub(crate) fn sqlite() {
    rows(Kind::Sqlite);
}

fn rows(kind: Kind) {
    let fill = async |site: &Site, size| Backlog::fill(site, &FILLING, size).await;
    let (much, little) = (Side::new(kind, 1_000_000, fill), Side::new(kind, 10_000, fill));
    compare("1,000,000 waiting against 10,000", &much, &little, async |backlog, site| {
        backlog.round(site, &SHAPE).await
    });
    for (held, what) in
        [(Held::Leased, "100,000 leased against 1,000"), (Held::Parked, "100,000 parked against 1,000")]
    {
        let fill = async |site: &Site, size| Pending::fill(site, &FILLING, held, size).await;
        let (much, little) = (Side::new(kind, 100_000, fill), Side::new(kind, 1_000, fill));
        compare(what, &much, &little, async |pending, site| pending.round(site, &SHAPE).await);
    }
}

/// A store that was filled.
struct Side<T> {
    ground: Ground,
    site: Site,
    filled: T,
}

impl<T> Side<T> {
    fn new(kind: Kind, size: u64, fill: impl AsyncFn(&Site, u64) -> Result<T>) -> Self {
        let ground = Ground::new(kind);
        let site = ground.open();
        let filled = ground.run(fill(&site, size));
        Self { ground, site, filled }
    }
}

/// Prints the cost of an event on the large side against that on the small one.
fn compare<T>(what: &str, much: &Side<T>, little: &Side<T>, round: impl AsyncFn(&T, &Site) -> Result<Round>) {
    let us = |side: &Side<T>| cost(&side.ground.run(round(&side.filled, &side.site)));
    let compared = alternate(ROUNDS, || us(much), || us(little));
    let what = format!("{what}: {} an event", much.ground.cpu());
    line::ratio(&what, "µs", &compared, Budget::AtMost(1.2));
}

/// Microseconds an event, of the server where there is one.
fn cost(round: &Round) -> f64 {
    round.server_us().unwrap_or_else(|| round.client_us())
}
