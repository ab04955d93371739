//! The rows, one file a subject.

mod append;
mod call;
mod claim_settle;
mod engine;
mod flat;
mod latency;
mod peers;
mod sqlite;

/// Each row's name, and what prints it.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("append", append::run),
    ("claim-settle", claim_settle::run),
    ("call", call::run),
    ("sqlite", sqlite::run),
    ("peers", peers::run),
    ("engine", engine::run),
    ("latency", latency::run),
    ("flat", flat::run),
];

/// What runs only when it is named.
pub(crate) const BY_NAME: &[(&str, fn())] = &[("peers-settings", peers::settings)];
