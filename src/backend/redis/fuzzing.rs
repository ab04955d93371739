//! Doors for fuzzing: what takes apart bytes that other programs wrote, without a server. Not part of
//! the library's interface.

use super::codec;
use super::reply::Entry;
use crate::backend::DeadLetter;
use crate::event::{Event, Name};

/// Names and values as an entry has them.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The event that an entry of a stream holds.
///
/// # Errors
/// What is wrong with it, in words.
pub fn event(stream: &Name, partition: u32, fields: &Fields) -> Result<Event, String> {
    codec::decode(stream, partition, codec::borrowed(fields))
}

/// The dead letter that a row holds, and where its event stood.
#[must_use]
pub fn dead_letter(stream: &Name, row: &str, fields: Fields) -> (DeadLetter, Option<(u32, String)>) {
    let row = Entry { id: row.to_owned(), fields };
    let receipt = codec::dead_receipt(&row);
    (codec::decode_dead(stream, row), receipt)
}

/// The fields in the copy of a redriven event; `None` for what is no copy.
#[must_use]
pub fn copy(bytes: &[u8]) -> Option<Fields> {
    codec::decode_copy(bytes)
}
