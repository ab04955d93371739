//! The Redis backend against real servers: the conformance suite, and what is particular to it.

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod faults;
mod kit;
mod lost_groups;
mod peers;
