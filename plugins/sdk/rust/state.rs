//! State that outlives a call, in named buckets of keys and values.
//!
//! Writes are committed with the acknowledgement of the handled event, in the same atomic step, or not
//! at all; reads see the call's own writes. If what a call has read was changed by another commit
//! meanwhile, the host runs the handler again on fresh state: so reading, computing and writing back
//! is safe.
//!
//! ```no_run
//! use wasmill_handler::{Delivery, Event, Result, state::Bucket};
//!
//! fn handle(event: Event, _delivery: Delivery) -> Result {
//!     let seen = Bucket::open("seen")?;
//!     if seen.exists(&event.id)? {
//!         return Ok(());
//!     }
//!     seen.set(&event.id, event.timestamp)?;
//!     seen.increment("count", 1)?;
//!     Ok(())
//! }
//! ```

use crate::bindings::wasi::keyvalue::{atomics, batch, store as raw};
use crate::{Failure, HOSTED};

pub use raw::{Error, KeyResponse as Keys};

/// An open bucket: one of the pipeline's own, or one that the operator maps to a shared one
/// (`buckets`).
#[derive(Debug)]
pub struct Bucket(raw::Bucket);

impl Bucket {
    /// Opens the bucket of this name: letters, digits, `.`, `_` and `-`.
    ///
    /// # Errors
    /// The text is no such name.
    pub fn open(name: &str) -> Result<Self, Error> {
        if !HOSTED {
            return Err(Error::Other("there is no state without a host".to_owned()));
        }
        raw::open(name).map(Self)
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// The store did not answer, the key is empty or longer than 1,024 bytes, or the call has touched
    /// too much state.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(key)
    }

    /// The values of keys, in the order asked for: one question to the store for all of them.
    ///
    /// # Errors
    /// As [`Bucket::get`].
    pub fn get_many<K: Into<String>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        let values = batch::get_many(&self.0, &keys)?;
        Ok(values.into_iter().map(|value| value.map(|(_, value)| value)).collect())
    }

    /// Whether a key has a value.
    ///
    /// # Errors
    /// As [`Bucket::get`].
    pub fn exists(&self, key: &str) -> Result<bool, Error> {
        self.0.exists(key)
    }

    /// Sets the value of a key; at most 1 MiB.
    ///
    /// # Errors
    /// Key or value are too long, or the call has touched too much state.
    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.0.set(key, value.as_ref())
    }

    /// Sets the values of keys.
    ///
    /// # Errors
    /// As [`Bucket::set`]; what stands before the one that failed is set.
    pub fn set_many(&self, values: &[(String, Vec<u8>)]) -> Result<(), Error> {
        batch::set_many(&self.0, values)
    }

    /// Removes a key; one that is not there is no error.
    ///
    /// # Errors
    /// As [`Bucket::set`].
    pub fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.delete(key)
    }

    /// Adds to a number, and gives the sum. A key without a value counts as zero; the number is kept as
    /// decimal text.
    ///
    /// # Errors
    /// As [`Bucket::get`]; or the value is no number, or would exceed 64 bits.
    pub fn increment(&self, key: &str, delta: u64) -> Result<u64, Error> {
        atomics::increment(&self.0, key, delta)
    }

    /// A page of the bucket's keys, as the store has them: the call's own writes are not among them, and
    /// the list is not checked again when the call commits. Begin without a cursor, and go on with that
    /// of the page before, until there is none.
    ///
    /// # Errors
    /// The store did not answer.
    pub fn keys(&self, cursor: Option<u64>) -> Result<Keys, Error> {
        self.0.list_keys(cursor)
    }
}

/// Trouble with state may pass: the event is tried again.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::retry(match error {
            Error::NoSuchStore => "there is no such bucket".to_owned(),
            Error::AccessDenied => "the bucket is not granted".to_owned(),
            Error::Other(text) => text,
        })
    }
}
