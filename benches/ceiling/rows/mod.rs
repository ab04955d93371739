//! The rows, one file a subject.

mod append;
mod call;
mod claim_settle;
mod sqlite;

/// Each row's name, and what prints it.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("append", append::run),
    ("claim-settle", claim_settle::run),
    ("call", call::run),
    ("sqlite", sqlite::run),
];
