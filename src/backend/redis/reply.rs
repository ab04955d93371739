//! What the server answers, taken apart.

use redis::Value;

use super::errors::server_error;
use crate::backend::{Error, Result};

/// 2^53: up to here a double, which is what sorted sets count with, holds every whole number.
const NUMBER_BOUND: i64 = 1 << 53;

/// Answers to the commands of a pipeline, in order; what is missing is nil.
pub(super) struct Answers(std::vec::IntoIter<Value>);

impl Answers {
    pub(super) fn new(answers: Vec<Value>) -> Self {
        Self(answers.into_iter())
    }

    /// The next answer, unless it is an error of the server.
    pub(super) fn next(&mut self) -> Result<Value> {
        checked(self.raw())
    }

    /// The next answer, whatever it is.
    pub(super) fn raw(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Nil)
    }
}

/// The answer, unless it is an error of the server.
pub(super) fn checked(value: Value) -> Result<Value> {
    match value {
        Value::ServerError(error) => Err(server_error(&error)),
        value => Ok(value),
    }
}

/// Milliseconds since 1970, as TIME answers them.
pub(super) fn time_ms(value: Value) -> Result<i64> {
    let mut parts = array(value)?.into_iter();
    let mut next = || number_or_zero(parts.next().unwrap_or(Value::Nil));
    Ok(next()? * 1000 + next()? / 1000)
}

/// One entry of a stream: its id and its fields in order.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An answer of another shape than the command promises.
pub(super) fn unexpected(what: &str) -> Error {
    Error::Corrupt(format!("an answer of the server has an unexpected form ({what})"))
}

/// The items of an array; none for nil.
pub(super) fn array(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Nil => Ok(Vec::new()),
        _ => Err(unexpected("no array")),
    }
}

/// The bytes of a string; `None` for nil.
pub(super) fn bytes(value: Value) -> Result<Option<Vec<u8>>> {
    match value {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        Value::Okay => Ok(Some(b"OK".to_vec())),
        Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
        Value::Nil => Ok(None),
        _ => Err(unexpected("no text")),
    }
}

/// The text of a string, with bytes that are no UTF-8 replaced; `None` for nil.
pub(super) fn text(value: Value) -> Result<Option<String>> {
    Ok(bytes(value)?.map(lossy))
}

/// The text of a string; empty for nil.
pub(super) fn text_or_empty(value: Value) -> Result<String> {
    Ok(text(value)?.unwrap_or_default())
}

/// A whole number, however it is written; `None` for nil and for other texts.
///
/// All that is counted here stays within 2^53. What a server says beyond that is taken for that much, so
/// that no sum or difference of two numbers overflows.
pub(super) fn number(value: Value) -> Result<Option<i64>> {
    let number = match value {
        Value::Int(number) => Some(number),
        other => text(other)?.and_then(|text| parse_number(&text)),
    };
    Ok(number.map(|number| number.clamp(-NUMBER_BOUND, NUMBER_BOUND)))
}

/// A whole number; zero for nil and for what is none.
pub(super) fn number_or_zero(value: Value) -> Result<i64> {
    Ok(number(value)?.unwrap_or(0))
}

/// A count; zero for nil and for what is none.
pub(super) fn count(value: Value) -> Result<u64> {
    Ok(u64::try_from(number_or_zero(value)?).unwrap_or(0))
}

/// The number of a delivery: from 1, whatever the server says.
pub(super) fn attempt_number(value: Value) -> Result<u32> {
    Ok(u32::try_from(number_or_zero(value)?.max(1)).unwrap_or(u32::MAX))
}

/// A score or counter as a number; scores can be written with an exponent.
pub(super) fn parse_number(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().or_else(|| {
        let double = text.parse::<f64>().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 2^53")]
        (double.fract() == 0.0 && double.abs() <= 9_007_199_254_740_992.0).then_some(double as i64)
    })
}

/// Pairs of a flat array.
pub(super) fn pairs(value: Value) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let items = array(value)?;
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        pairs.push((bytes(name)?.unwrap_or_default(), bytes(value)?.unwrap_or_default()));
    }
    Ok(pairs)
}

/// Entries as XRANGE answers them. One that was deleted from under a pending list has no fields.
pub(super) fn entries(value: Value) -> Result<Vec<Entry>> {
    array(value)?
        .into_iter()
        .map(|item| {
            let mut parts = array(item)?.into_iter();
            let id = text_or_empty(parts.next().unwrap_or(Value::Nil))?;
            let fields = pairs(parts.next().unwrap_or(Value::Nil))?;
            Ok(Entry { id, fields })
        })
        .collect()
}

/// Bytes as text, what is no UTF-8 replaced.
pub(super) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The two numbers of an entry id; `None` for a text that is none.
pub(super) fn parse_id(text: &str) -> Option<(u64, u64)> {
    let (ms, low) = text.split_once('-').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(ms) || !digits(low) {
        return None;
    }
    Some((ms.parse().ok()?, low.parse().ok()?))
}

/// Whether this entry id by itself proves the sequence: our own appends choose it so, and no id that
/// the server made can meet it by chance (its low part is below the sequence).
pub(super) fn proves(receipt: &str, sequence: u64, partitions: u32, partition: u32) -> bool {
    let low = u128::from(sequence) * u128::from(partitions) + u128::from(partition);
    sequence > 0 && parse_id(receipt).is_some_and(|(_, found)| u128::from(found) == low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_every_form() {
        assert_eq!(parse_number("42"), Some(42));
        assert_eq!(parse_number("1e+15"), Some(1_000_000_000_000_000));
        assert_eq!(parse_number("1.5"), None);
        assert_eq!(parse_number("x"), None);
        assert_eq!(parse_number("inf"), None);
    }

    #[test]
    fn ids() {
        assert_eq!(parse_id("5-7"), Some((5, 7)));
        assert_eq!(parse_id("5"), Some((5, 0)));
        for wrong in ["", "-", "5-", "+5-1", "x", "5-7-9", "99999999999999999999-0"] {
            assert_eq!(parse_id(wrong), None, "{wrong}");
        }
        assert!(proves("1700000000000-14", 3, 4, 2));
        assert!(!proves("1700000000000-14", 3, 4, 1));
        assert!(!proves("1700000000000-0", 0, 4, 0));
    }
}
