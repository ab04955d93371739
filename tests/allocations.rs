//! How often an event asks for memory on its way. Counted, not timed: what comes to copy more or to box
//! more is found here on any machine, however busy. What SQLite asks for in C is not counted.
//!
//! Each figure is a slope: the work is done on some events and on twice as many, and what the second half
//! took is divided by its events. So nothing that is asked for once is in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "allocations/kit.rs"]
mod kit;
mod support;

use std::alloc::System;

use kit::{Bench, call, host};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Times that memory was asked for by the whole process so far, whichever thread it was.
fn asked() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// The most times that an event may ask for memory at a store: what was measured, and a margin. A lower
/// figure is a reason to lower the bound.
///
/// The first two are the same in every run to a hundredth: 2 % more is allowed. The engine chooses its
/// batches by what its handlers keep up with, and what a batch asks for is shared by its events: 15 % more
/// than the middle is allowed. In twenty rounds, ten of them beside eight busy loops, it was 18.9 to 20.2
/// on SQLite and 29.9 to 34.9 on Redis.
struct Bound {
    append: f64,
    claim_ack: f64,
    engine: f64,
}

/// Measured: 5.344, 14.859 and 19.6.
const SQLITE: Bound = Bound { append: 5.45, claim_ack: 15.16, engine: 22.5 };
/// Measured: 1.766, 27.395 and 32.
const REDIS: Bound = Bound { append: 1.80, claim_ack: 27.94, engine: 36.8 };
/// A warm call of a handler. Measured: 4, in every run.
const CALL: f64 = 4.0;

/// An engine gets so many tries; the first one within its bound will do.
const TRIES: usize = 5;

/// How often an event asks for memory in `work`, which is told on how many events to work, and says what it
/// counted.
fn slope(events: usize, work: impl Fn(usize) -> usize) -> f64 {
    let (some, twice) = (work(events), work(2 * events));
    assert!(twice > some, "the count stood still: {some} for {events} events, {twice} for twice as many");
    (twice - some) as f64 / events as f64
}

fn within(what: &str, most: f64, tries: usize, figure: impl Fn() -> f64) {
    let mut lowest = f64::INFINITY;
    for _ in 0..tries {
        lowest = lowest.min(figure());
        if lowest <= most {
            println!("{what}: {lowest:.3} of {most}");
            return;
        }
    }
    panic!("{what}: an event asks for memory {lowest:.3} times, at most {most} are allowed");
}

// One test: the count is that of the whole process.
#[test]
fn memory_asked_for_by_an_event() {
    let host = host();
    within("call", CALL, 1, || slope(1000, |events| call(&host, events)));
    for (name, bench, bound) in [("SQLite", Bench::sqlite(), SQLITE), ("Redis", Bench::redis(), REDIS)] {
        let what = |step: &str| format!("{step}, {name}");
        within(&what("append"), bound.append, 1, || slope(3200, |events| bench.append(events)));
        within(&what("claim + ack"), bound.claim_ack, 1, || slope(3200, |events| bench.claim_ack(events)));
        within(&what("engine"), bound.engine, TRIES, || slope(3200, |events| bench.engine(&host, events)));
    }
}
