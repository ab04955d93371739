//! The plugin host with real components: calls, faults, loading.

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod effects;
mod faults;
mod fuzz;
mod grants;
mod limits;
mod load;
mod support;
