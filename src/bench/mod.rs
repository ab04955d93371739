//! Loads of a known shape over a store: what `wasmill bench` runs, and benches call.
//!
//! A scenario works on a [`Site`], a store that was made for it and is removed afterwards. It fills the
//! site, which is not measured, then does its work, and gives a [`Round`]: how long that took, how long
//! each step took, and what it cost this process and the server. [`Summary`] puts rounds together.
//! The engine's scenarios call a [`guest`] that is made here, without any toolchain.

use std::path::PathBuf;

use crate::backend;
use crate::plugin::{HostError, LoadError};

pub mod append;
pub mod backlog;
pub mod claim_settle;
pub mod crowd;
mod drive;
pub mod effects;
pub mod engine;
pub mod guest;
pub mod latency;
mod meter;
pub mod pending;
mod site;
mod summary;
mod turnover;

pub use drive::BATCH_MAX;
pub use meter::{Round, Spent};
pub use site::{NAMESPACE, Site};
pub use summary::{Percentiles, Spread, Summary};

/// Smallest payload: a JSON object with one text.
pub const PAYLOAD_BYTES_MIN: usize = "{\"text\":\"\"}".len();

/// What load is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Events of a round; at least 1.
    pub events: u64,
    /// Bytes of an event's payload; at least [`PAYLOAD_BYTES_MIN`].
    pub payload_bytes: usize,
    /// Events of one call of the store; 1 to [`BATCH_MAX`].
    pub batch: usize,
    /// Callers of the store, or handlers, at the same time; at least 1.
    pub concurrency: usize,
    /// Partitions of the stream; 1 to [`backend::PARTITIONS_MAX`].
    pub partitions: u32,
}

/// Why a benchmark has no figure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store does not do what is asked.
    #[error(transparent)]
    Store(#[from] backend::Error),
    /// The file in which the benchmark would make its store is there already.
    #[error(
        "{} is there already: a benchmark makes a store of its own and removes it; name a file that does not exist",
        .0.display()
    )]
    Occupied(PathBuf),
    /// The host of plugins does not start.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The guest cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A file of the benchmark's own cannot be written or removed.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// Something came out otherwise than it must: the figure would mean nothing.
    #[error("the benchmark does not count, since {0}")]
    Wrong(String),
    /// It was told to stop.
    #[error("the benchmark was interrupted")]
    Interrupted,
}

/// What a scenario gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;
