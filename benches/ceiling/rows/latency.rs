//! From an event's append until its handler is called, in a system that is idle in between: in round trips
//! to the server, which are measured in turn with it, at the same pace and by the same kind of thread.

use wasmill::bench::guest::{Guest, Work};
use wasmill::bench::{Shape, latency};

use crate::ground::{Ground, Kind};
use crate::line::{self, Budget};
use crate::sides::alternate;

const ROUNDS: usize = 9;
const EVENTS: u64 = 200;
/// So few a second that each event finds the engine asleep.
const RATE: f64 = 100.0;
const SHAPE: Shape = Shape { events: EVENTS, payload_bytes: 200, batch: 64, concurrency: 8, partitions: 1 };

pub(crate) fn run() {
    let ground = Ground::new(Kind::Redis);
    let guest = ground.run(Guest::load(&Work::Nothing));
    let own = || {
        let round = ground.on_site(async |site| latency::round(site, &SHAPE, &guest, RATE).await);
        us(round.latency.value_at_quantile(0.5))
    };
    let ping = || {
        us(ground.on_site(async |site| latency::round_trips(site, EVENTS, RATE).await).value_at_quantile(0.5))
    };
    let compared = alternate(ROUNDS, own, ping);
    line::ratio("append → handler called, idle: a PING", "µs", &compared, Budget::AtMost(3.0));
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
