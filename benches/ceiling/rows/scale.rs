//! What an event costs, appended, claimed and acked, in a house with much in it, against one with little:
//! many streams and groups, many partitions, many pipelines in one engine. On Redis the server's time
//! counts, on SQLite this process's; with an engine both.

use wasmill::backend::Synchronous;
use wasmill::bench::backlog::Backlog;
use wasmill::bench::guest::{Guest, Work};
use wasmill::bench::{Round, Shape, crowd};
use wasmill::event::GroupKey;

use crate::embedded::Embedded;
use crate::ground::{Ground, Kind};
use crate::line::{self, Budget};
use crate::rig::Rig;
use crate::sides::alternate;
use crate::{own, process};

const ROUNDS: usize = 7;
const BATCH: usize = 64;
const BYTES: usize = 64;

const STREAMS: usize = 1_000;
const GROUPS: usize = 10;
/// Batches of a round over streams.
const BATCHES: usize = 150;

const PARTITIONS: u32 = 64;
const SHAPE: Shape =
    Shape { events: 9_600, payload_bytes: BYTES, batch: BATCH, concurrency: 1, partitions: 1 };

const PIPELINES: u64 = 200;
const CROWD: Shape = Shape { events: 100_000, concurrency: 8, ..SHAPE };

pub(crate) fn run() {
    streams_on_redis();
    streams_on_sqlite();
    for kind in [Kind::Redis, Kind::Sqlite] {
        partitions(kind);
    }
    for kind in [Kind::Redis, Kind::Sqlite] {
        pipelines(kind);
    }
}

/// A group of each of a round's streams, which begin where the last round ended; of each stream another
/// group than in its last turn, as far as there are others.
fn turn<'a>(made: &'a [Vec<GroupKey>], round: &mut usize) -> impl Iterator<Item = &'a GroupKey> {
    let from = *round * BATCHES;
    *round += 1;
    (from..from + BATCHES).map(|n| &made[n % made.len()][(n / made.len()) % made[0].len()])
}

fn streams_on_redis() {
    let side = |streams, groups| {
        let rig = Rig::start();
        let made = rig.run(own::make_many(&rig.store, streams, groups));
        let mut round = 0;
        move || rig.server_us(own::go_round(&rig.store, turn(&made, &mut round), BATCH, BYTES)) / events()
    };
    say_streams("Redis CPU", side(STREAMS, GROUPS), side(1, 1));
}

fn streams_on_sqlite() {
    let side = |streams, groups| {
        let own = Embedded::open(Synchronous::Full);
        let made = own.runtime.block_on(own::make_many(own.store.as_ref(), streams, groups));
        let mut round = 0;
        move || {
            let before = process::own_cpu_us();
            let store = own.store.as_ref();
            own.runtime.block_on(own::go_round(store, turn(&made, &mut round), BATCH, BYTES));
            (process::own_cpu_us() - before) / events()
        }
    };
    say_streams("CPU with SQLite", side(STREAMS, GROUPS), side(1, 1));
}

fn say_streams(cpu: &str, many: impl FnMut() -> f64, one: impl FnMut() -> f64) {
    let compared = alternate(ROUNDS, many, one);
    let what = format!("{STREAMS} streams with {GROUPS} groups each against 1: {cpu} an event");
    line::ratio(&what, "µs", &compared, Budget::None);
}

fn events() -> f64 {
    (BATCHES * BATCH) as f64
}

fn partitions(kind: Kind) {
    let side = |partitions| {
        let ground = Ground::new(kind);
        let shape = Shape { partitions, ..SHAPE };
        let site = ground.open();
        let empty = ground.run(Backlog::fill(&site, &shape, 0));
        let what = ground.cpu();
        (what, move || {
            let round = ground.run(empty.round(&site, &shape));
            round.server_us().unwrap_or_else(|| round.client_us())
        })
    };
    let ((cpu, many), (_, one)) = (side(PARTITIONS), side(1));
    let compared = alternate(ROUNDS, many, one);
    line::ratio(&format!("{PARTITIONS} partitions against 1: {cpu} an event"), "µs", &compared, Budget::None);
}

fn pipelines(kind: Kind) {
    let ground = Ground::new(kind);
    let guest = ground.run(Guest::load(&Work::Nothing));
    let round = |pipelines| ground.on_site(async |site| crowd::round(site, &CROWD, &guest, pipelines).await);
    let both = |round: &Round| round.client_us() + round.server_us().unwrap_or(0.0);
    let compared = alternate(ROUNDS, || both(&round(PIPELINES)), || both(&round(1)));
    let cpu = match kind {
        Kind::Redis => "CPU, that of Redis too,",
        Kind::Sqlite => "CPU with SQLite",
    };
    line::ratio(&format!("{PIPELINES} pipelines against 1: {cpu} an event"), "µs", &compared, Budget::None);
}
