//! State that handlers keep: buckets of keys and values, versioned. Plain values without I/O.

use std::fmt;

use crate::event::{Name, NameError};

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// Longest value, in bytes (1 MiB).
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// A bucket as the store knows it: a pipeline's own one, or one that pipelines share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket(String);

impl Bucket {
    /// A bucket that only this pipeline reaches.
    ///
    /// # Errors
    /// The identifier is no portable name.
    pub fn own(pipeline: &str, identifier: &str) -> Result<Self, NameError> {
        // No name has a slash: an own bucket is never taken for a shared one.
        Ok(Self(format!("{pipeline}/{}", Name::new(identifier)?)))
    }

    /// A bucket that plugins share by its name.
    #[must_use]
    pub fn shared(name: &Name) -> Self {
        Self(name.to_string())
    }

    /// The name under which it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateValue {
    /// Another one for each commit that wrote the key; never 0, and never used twice for a key.
    pub version: u64,
    /// The value's bytes; at most [`VALUE_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

/// A page of a bucket's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateKeys {
    /// The keys, in no order. A key that is there all the while is listed once or more.
    pub keys: Vec<String>,
    /// Where to go on; `None` at the end.
    pub cursor: Option<u64>,
}

/// A key that a call read from the store: its effects are committed only if no one has written it
/// since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRead {
    /// The bucket.
    pub bucket: Bucket,
    /// The key; 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// The version that was read; 0 where the key had no value.
    pub version: u64,
}

/// A key that a call writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateWrite {
    /// The bucket.
    pub bucket: Bucket,
    /// The key; 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// Its new value, of at most [`VALUE_BYTES_MAX`] bytes; `None` removes the key.
    pub value: Option<Vec<u8>>,
}
