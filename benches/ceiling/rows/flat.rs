//! What an event costs Redis, appended, claimed and acked, while much else stands in its group, against
//! little: a backlog, leases of another consumer, parked events. Both sides stand in one server and take
//! turns; each round leaves as much as it found.

use wasmill::bench::backlog::Backlog;
use wasmill::bench::pending::{Held, Pending};
use wasmill::bench::{Round, Shape, Site};

use crate::ground::{Ground, Kind};
use crate::line::{self, Budget};
use crate::sides::alternate;

const ROUNDS: usize = 9;
const SHAPE: Shape = Shape { events: 9_600, payload_bytes: 64, batch: 64, concurrency: 1, partitions: 1 };

pub(crate) fn run() {
    let ground = Ground::new(Kind::Redis);
    let site = ground.open();
    let fill = |size| ground.run(Backlog::fill(&site, &SHAPE, size));
    let (much, little) = (fill(1_000_000), fill(10_000));
    compare("1,000,000 waiting against 10,000", |large| {
        us(ground.run((if large { &much } else { &little }).round(&site, &SHAPE)))
    });
    ground.run(site.close());
    held(&ground, Held::Leased, "100,000 leased against 1,000");
    held(&ground, Held::Parked, "100,000 parked against 1,000");
}

fn held(ground: &Ground, held: Held, what: &str) {
    let site: Site = ground.open();
    let fill = |size| ground.run(Pending::fill(&site, &SHAPE, held, size));
    let (much, little) = (fill(100_000), fill(1_000));
    compare(what, |large| us(ground.run((if large { &much } else { &little }).round(&site, &SHAPE))));
    ground.run(site.close());
}

/// Prints the cost of an event on the large side against that on the small one.
fn compare(what: &str, side: impl Fn(bool) -> f64) {
    let compared = alternate(ROUNDS, || side(true), || side(false));
    line::ratio(&format!("{what}: Redis CPU an event"), "µs", &compared, Budget::AtMost(1.2));
}

fn us(round: Round) -> f64 {
    round.server_us().expect("the server says what it used")
}
