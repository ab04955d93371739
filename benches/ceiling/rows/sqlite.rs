//! The embedded store: append, claim and settle in batches of 64, against a bare loop that writes the same
//! rows in the same batches on the same file system, and the engine as a whole beside it.

use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;
use wasmill::backend::Synchronous;
use wasmill::plugin::Host;

use crate::bare_sqlite::Bare;
use crate::embedded::{self, Embedded};
use crate::line::{self, Budget};
use crate::own;
use crate::sides::{alternate, compare};

const ROUNDS: usize = 9;
const BATCH: usize = 64;
const BYTES: usize = 200;

/// What is timed of a round, how its seconds follow, and what they must be.
type Stage = (&'static str, fn(&Seconds) -> f64, Budget);

const STAGES: [Stage; 3] = [
    ("append", |seconds| seconds.append, Budget::None),
    ("claim + settle", |seconds| seconds.settle, Budget::None),
    ("append + claim + settle", |seconds| seconds.append + seconds.settle, Budget::AtLeast(0.5)),
];

/// What one round took.
struct Seconds {
    append: f64,
    settle: f64,
}

impl Seconds {
    fn of<T>(side: &mut T, append: impl Fn(&mut T), settle: impl Fn(&mut T)) -> Self {
        let began = Instant::now();
        append(side);
        let appended = Instant::now();
        settle(side);
        Self { append: (appended - began).as_secs_f64(), settle: appended.elapsed().as_secs_f64() }
    }
}

pub(crate) fn run() {
    let host = embedded::host();
    for (name, synchronous, events) in
        [("NORMAL", Synchronous::Normal, 600 * BATCH), ("FULL", Synchronous::Full, 150 * BATCH)]
    {
        let (mut own, mut bare, mut engine) = (Vec::new(), Vec::new(), Vec::new());
        alternate(
            ROUNDS,
            || {
                own.push(own_round(synchronous, events));
                engine.push(engine_round(&host, synchronous, events));
                0.0
            },
            || {
                bare.push(bare_round(synchronous, events));
                0.0
            },
        );
        // The first round of each does not count.
        for (what, seconds, budget) in STAGES {
            let rate = |round: &Seconds| events as f64 / seconds(round);
            let pairs: Vec<_> = own.iter().map(rate).zip(bare.iter().map(rate)).skip(1).collect();
            line::ratio(&format!("{what}, {name}, batch {BATCH}"), "events/s", &compare(&pairs), budget);
        }
        let rate = |round: &Seconds| events as f64 / round.settle;
        let pairs: Vec<_> = engine.iter().copied().zip(bare.iter().map(rate)).skip(1).collect();
        line::ratio(
            &format!("engine with a no-op handler, {name}"),
            "events/s",
            &compare(&pairs),
            Budget::None,
        );
    }
}

fn own_round(synchronous: Synchronous, events: usize) -> Seconds {
    let mut own = Embedded::open(synchronous);
    own.runtime.block_on(own::make(own.store.as_ref(), 1));
    Seconds::of(
        &mut own,
        |own| own.runtime.block_on(own::append(own.store.as_ref(), events, BATCH, BYTES)),
        |own| own.claim_ack(events, BATCH),
    )
}

fn engine_round(host: &Arc<Host>, synchronous: Synchronous, events: usize) -> f64 {
    let own = Embedded::open(synchronous);
    own.runtime.block_on(own::make(own.store.as_ref(), 1));
    own.runtime.block_on(own::append(own.store.as_ref(), events, BATCH, BYTES));
    own.engine(host)
}

fn bare_round(synchronous: Synchronous, events: usize) -> Seconds {
    let directory = TempDir::new().unwrap();
    let mut bare = Bare::open(directory.path(), synchronous);
    Seconds::of(&mut bare, |bare| bare.append(events, BATCH, BYTES), |bare| bare.claim_ack(events, BATCH))
}
