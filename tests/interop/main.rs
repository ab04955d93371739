//! Side by side with Rheo: on data that it left, on what it does meanwhile, and against each of the
//! faults of its Redis backend.

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checker;
mod engines;
mod faults;
mod fixture;
mod fixture_commands;
mod fixture_leases;
mod fixture_queries;
mod gaps;
#[path = "../redis/kit.rs"]
#[allow(dead_code, reason = "made for the tests of the backend, of which this uses a part")]
mod kit;
mod mixed;
mod mixed_program;
mod peer;
mod readback;
mod recorded;
#[path = "../support/mod.rs"]
mod support;

use support::redis as server;
