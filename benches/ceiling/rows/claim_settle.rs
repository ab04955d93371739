//! Claims and settlements out of order, 95 % ack, 4 % retry, 1 % dead letter, against XREADGROUP with
//! one XACK a batch.

use crate::line::{self, Budget};
use crate::rig::Rig;
use crate::sides::alternate;
use crate::{floor, own};

const ROUNDS: usize = 9;
const EVENTS: usize = 19_200;
const BYTES: usize = 200;

pub(crate) fn run() {
    let rig = Rig::start();
    for (batch, budget) in [(64, 3.9), (16, 4.5)] {
        let own = || {
            rig.clear();
            rig.run(own::make(&rig.store, 1));
            rig.run(own::append(&rig.store, EVENTS, 64, BYTES));
            rig.server_us(own::claim_settle(&rig.store, EVENTS, batch)) / EVENTS as f64
        };
        let floor = || {
            rig.clear();
            rig.run(floor::make_group(&rig));
            rig.run(floor::append(&rig, EVENTS, 64, BYTES));
            rig.server_us(floor::read_ack(&rig, EVENTS, batch)) / EVENTS as f64
        };
        let compared = alternate(ROUNDS, own, floor);
        let what = format!("claim + settle, batch {batch}: Redis CPU an event");
        line::ratio(&what, "µs", &compared, Budget::AtMost(budget));
    }
}
