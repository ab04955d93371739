//! Appends in batches of 64, against pipelines of as many plain XADDs.

use crate::line::{self, Budget};
use crate::rig::Rig;
use crate::sides::alternate;
use crate::{floor, own};

const ROUNDS: usize = 9;
const BATCH: usize = 64;
const EVENTS: usize = 300 * BATCH;

pub(crate) fn run() {
    let rig = Rig::start();
    for (bytes, budget) in [(200, 2.2), (1024, 2.4)] {
        let own = || {
            rig.clear();
            rig.run(own::make(&rig.store, 1));
            rig.server_us(own::append(&rig.store, EVENTS, BATCH, bytes)) / EVENTS as f64
        };
        let floor = || {
            rig.clear();
            rig.server_us(floor::append(&rig, EVENTS, BATCH, bytes)) / EVENTS as f64
        };
        let compared = alternate(ROUNDS, own, floor);
        let what = format!("append, {bytes} B, batch {BATCH}: Redis CPU an event");
        line::ratio(&what, "µs", &compared, Budget::AtMost(budget));
    }
}
