//! The rows, one file a subject.

mod append;
mod call;
mod claim_settle;
mod engine;
mod flat;
mod idle;
mod latency;
mod memory;
mod peers;
mod reload;
mod scale;
mod size;
mod sqlite;
mod start;

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
    ("sqlite-flat", flat::sqlite),
    ("scale", scale::run),
    ("start", start::run),
    ("reload", reload::run),
    ("idle", idle::run),
    ("memory", memory::run),
    ("size", size::run),
];

/// What runs only when it is named.
pub(crate) const BY_NAME: &[(&str, fn())] = &[("peers-settings", peers::settings)];
