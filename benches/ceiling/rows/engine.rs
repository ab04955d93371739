//! The engine drains a backlog from end to end, with a handler that does nothing. Only shown: what it is
//! held against are its peers.

use wasmill::bench::guest::{Guest, Work};
use wasmill::bench::{Shape, engine};

use crate::ground::{Ground, Kind};
use crate::line::{self, Budget};
use crate::sides::median;

const ROUNDS: usize = 7;
const SHAPE: Shape = Shape { events: 50_000, payload_bytes: 200, batch: 64, concurrency: 8, partitions: 1 };

pub(crate) fn run() {
    for (name, kind) in [("Redis", Kind::Redis), ("SQLite, FULL", Kind::Sqlite)] {
        let ground = Ground::new(kind);
        let guest = ground.run(Guest::load(&Work::Nothing));
        let round = || {
            let round = ground.on_site(async |site| engine::round(site, &SHAPE, &guest).await);
            round.events_per_second()
        };
        // The first one does not count.
        round();
        let rate = median((0..ROUNDS).map(|_| round()));
        line::figure(&format!("engine, no-op handler, {name}"), "events/s", rate, Budget::None);
    }
}
