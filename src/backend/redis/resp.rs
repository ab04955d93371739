//! The server's answers as bytes (RESP 2, <https://redis.io/docs/latest/develop/reference/protocol-spec/>),
//! read where they lie: an event under lease costs a handful of copies, and no tree of values.

use redis::Value;

use super::reply::unexpected;
use crate::backend::{Error, Result};

/// How deep arrays may lie in arrays; what we ask for needs four.
const DEPTH_MAX: usize = 16;

/// The longest line; what is longer is sent with its length.
const LINE_MAX: usize = 1 << 20;

/// An answer that does not follow the protocol.
fn malformed() -> Error {
    unexpected("not of the protocol")
}

/// One line of an answer: its kind, and the text up to its end.
struct Line<'a> {
    kind: u8,
    text: &'a [u8],
    /// Bytes of the line, with its end.
    size: usize,
}

/// The first line, where it is all there.
fn line(bytes: &[u8]) -> Option<Line<'_>> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    // A line ends with both; texts that may hold one of them are sent with their length.
    (bytes.len() > end + 1 && end > 0).then(|| Line { kind: bytes[0], text: &bytes[1..end], size: end + 2 })
}

fn integer(text: &[u8]) -> Result<i64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(malformed)
}

/// The length of a text or an array; `None` for nil.
fn length(text: &[u8]) -> Result<Option<usize>> {
    match integer(text)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| malformed()),
    }
}

/// Finds where answers end, in bytes that come piece by piece; goes on where it stopped.
#[derive(Debug)]
pub(super) struct Extent {
    /// Bytes that were looked at.
    at: usize,
    /// Values that are still to come.
    left: usize,
}

impl Extent {
    pub(super) fn new() -> Self {
        Self { at: 0, left: 1 }
    }

    /// The length of the answer that `bytes` begin with; `None` where more has to come. `bytes` are those
    /// of the call before, and more of them.
    ///
    /// # Errors
    /// Bytes that are no answer.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        while self.left > 0 {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(line) = line(rest) else {
                let no_line = rest.first() == Some(&b'\r') || rest.len() > LINE_MAX;
                return if no_line { Err(malformed()) } else { Ok(None) };
            };
            let mut size = line.size;
            match line.kind {
                b'+' | b'-' | b':' => {}
                b'$' => {
                    if let Some(length) = length(line.text)? {
                        size =
                            size.checked_add(length).and_then(|s| s.checked_add(2)).ok_or_else(malformed)?;
                        if rest.len() < size {
                            return Ok(None);
                        }
                    }
                }
                b'*' => {
                    let items = length(line.text)?.unwrap_or(0);
                    self.left = self.left.checked_add(items).ok_or_else(malformed)?;
                }
                _ => return Err(malformed()),
            }
            self.left -= 1;
            self.at += size;
        }
        let end = self.at;
        *self = Self::new();
        Ok(Some(end))
    }
}

/// One value, or the beginning of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node<'a> {
    Array(usize),
    Text(&'a [u8]),
    Number(i64),
    Status(&'a [u8]),
    /// An error of the server, as a line of its own.
    Error(&'a [u8]),
    Nil,
}

/// Goes through the bytes of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next value; of an array only its beginning, and its items are next.
    ///
    /// # Errors
    /// Bytes that are no answer, or an answer that ends before.
    pub(super) fn node(&mut self) -> Result<Node<'a>> {
        let whole = self.0;
        let line = line(whole).ok_or_else(malformed)?;
        self.0 = &whole[line.size..];
        Ok(match line.kind {
            b'$' => match length(line.text)? {
                Some(length) => {
                    let text = self.0.get(..length).ok_or_else(malformed)?;
                    self.0 = self.0.get(length + 2..).ok_or_else(malformed)?;
                    Node::Text(text)
                }
                None => Node::Nil,
            },
            b'*' => length(line.text)?.map_or(Node::Nil, Node::Array),
            b':' => Node::Number(integer(line.text)?),
            b'+' => Node::Status(line.text),
            b'-' => Node::Error(&whole[..line.size]),
            _ => return Err(malformed()),
        })
    }

    /// The number of items of an array that is next; none for nil.
    ///
    /// # Errors
    /// Anything else is next; an error of the server is reported as such.
    pub(super) fn array(&mut self) -> Result<usize> {
        match self.node()? {
            Node::Array(items) => Ok(items),
            Node::Nil => Ok(0),
            Node::Error(line) => Err(server_error(line)),
            _ => Err(unexpected("no array")),
        }
    }

    /// A text that is next; empty for nil.
    ///
    /// # Errors
    /// Anything else is next.
    pub(super) fn text(&mut self) -> Result<&'a [u8]> {
        match self.node()? {
            Node::Text(text) | Node::Status(text) => Ok(text),
            Node::Nil => Ok(b""),
            _ => Err(unexpected("no text")),
        }
    }

    /// The bytes of the next value, whatever it is.
    ///
    /// # Errors
    /// As [`Reader::node`].
    pub(super) fn part(&mut self) -> Result<&'a [u8]> {
        let end = Extent::new().end(self.0)?.ok_or_else(malformed)?;
        let (part, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(part)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        Ok(match self.node()? {
            Node::Array(_) if depth == 0 => return Err(malformed()),
            // Room is made as items come: what the server says of their number is not believed.
            Node::Array(items) => {
                Value::Array((0..items).map(|_| self.value(depth - 1)).collect::<Result<_>>()?)
            }
            Node::Text(text) => Value::BulkString(text.to_vec()),
            Node::Number(number) => Value::Int(number),
            Node::Status(b"OK") => Value::Okay,
            Node::Status(text) => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
            Node::Error(line) => error_value(line)?,
            Node::Nil => Value::Nil,
        })
    }
}

/// An answer as the client's values.
///
/// # Errors
/// Bytes that are no answer.
pub(super) fn value(bytes: &[u8]) -> Result<Value> {
    Reader::new(bytes).value(DEPTH_MAX)
}

/// An error's line as the client's value, by the client's own reading of it.
fn error_value(line: &[u8]) -> Result<Value> {
    let whole = [String::from_utf8_lossy(line).trim_end().as_bytes(), b"\r\n"].concat();
    redis::parse_redis_value(&whole).map_err(|_| malformed())
}

fn server_error(line: &[u8]) -> Error {
    match error_value(line) {
        Ok(Value::ServerError(error)) => super::errors::server_error(&error),
        Ok(_) => malformed(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANSWER: &[u8] = b"*5\r\n$2\r\na\r\r\n:-7\r\n*2\r\n+OK\r\n*-1\r\n-NOGROUP no\r\n$-1\r\n";

    #[test]
    fn an_answer_is_read_as_the_client_reads_it() {
        for answer in
            [ANSWER, b"+OK\r\n", b"+PONG\r\n", b":3\r\n", b"*0\r\n", b"*-1\r\n", b"$0\r\n\r\n", b"-ERR x\r\n"]
        {
            assert_eq!(value(answer).unwrap(), redis::parse_redis_value(answer).unwrap());
        }
    }

    #[test]
    fn an_end_is_found_wherever_the_pieces_are_cut() {
        let two = [ANSWER, b":1\r\n"].concat();
        for first in 0..two.len() {
            let mut extent = Extent::new();
            let (mut end, mut upto) = (extent.end(&two[..first]).unwrap(), first);
            while end.is_none() {
                upto += 1;
                end = extent.end(&two[..upto]).unwrap();
            }
            assert_eq!(end, Some(ANSWER.len()), "cut at {first}");
            assert_eq!(extent.end(&two[ANSWER.len()..]).unwrap(), Some(4));
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for wrong in [
            &b"x\r\n"[..],
            b"\r\n",
            b"$-2\r\n",
            b"*-2\r\n",
            b":x\r\n",
            b"$x\r\n",
            b"*99999999999999999999\r\n",
            b"$5\r\nab\r\n",
            b"*2\r\n:1\r\n",
            b"",
        ] {
            assert!(value(wrong).is_err(), "{}", wrong.escape_ascii());
        }
        let deep = [b"*1\r\n".repeat(100_000).as_slice(), b":1\r\n"].concat();
        assert!(value(&deep).is_err());
        let many = b"*9000000000000000000\r\n:1\r\n";
        assert!(value(many).is_err());
        assert!(
            Extent::new()
                .end(b"*9000000000000000000\r\n*9223372036854775807\r\n*9223372036854775807\r\n")
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_are_read_to_an_end(bytes in proptest::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b':'), Just(b'-'), any::<u8>()], 0..64,
        )) {
            let read = value(&bytes);
            if let Ok(Some(end)) = Extent::new().end(&bytes) {
                prop_assert!(end <= bytes.len());
                prop_assert!(value(&bytes[..end]).is_ok() == read.is_ok());
            }
        }
    }
}
