//! What is particular to the Redis backend, against real servers. What it shares with the others is in
//! the conformance suite.

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod counted;
mod effects;
mod explain;
mod faults;
mod group_control;
mod healing;
mod kit;
mod leasing;
mod lost_groups;
mod peers;
mod redrive;
mod scan;
#[path = "../support/redis.rs"]
mod server;
mod start;
mod trim;
