//! Faults, on purpose: what is recorded while engines and stores are broken in every way that we know,
//! and a checker that proves over the whole of it that the promises held (docs/chaos.md).

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checker;
mod history;
mod proxy;
mod run;
mod self_test;
#[path = "../support/redis.rs"]
mod server;

use std::time::Duration;

use run::{Settings, StoreKind, run};

/// The seed of the runs that are made without being asked for another one.
const SEED: u64 = 7;

/// A run as the environment asks for it: `WASMILL_CHAOS_SEED`, and `WASMILL_CHAOS_MINUTES` for more
/// than one round.
fn chaos(store: StoreKind) {
    let number = |name: &str| {
        std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let seed = number("WASMILL_CHAOS_SEED").unwrap_or(SEED);
    let time = number("WASMILL_CHAOS_MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    run(&Settings { store, seed, time });
}

#[test]
fn promises_hold_on_redis() {
    chaos(StoreKind::Redis);
}

#[test]
fn promises_hold_on_sqlite() {
    chaos(StoreKind::Sqlite);
}
