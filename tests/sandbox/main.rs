//! The sandbox around whole pipelines: what a bad plugin costs the others, pauses for faults, and what
//! an operator sees of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod fairness;
mod kit;
mod pause;
mod program;
#[path = "../support/mod.rs"]
mod support;
