//! Faults, on purpose: what is recorded while engines and stores are broken in every way that we know,
//! and a checker that proves over the whole of it that the promises held (docs/chaos.md).

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod checker;
mod history;
mod proxy;
mod self_test;
#[path = "../support/redis.rs"]
mod server;
