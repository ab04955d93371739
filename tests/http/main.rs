//! An engine that is asked how it is, over TCP: liveness, readiness, metrics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod client;
mod endpoint;
mod metrics;
mod readiness;
