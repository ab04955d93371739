//! What SECURITY.md promises of connections and secrets, seen from outside the program.

// Helpers of tests are tests too, which clippy does not see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod certificates;
mod tls;
