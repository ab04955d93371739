//! Entries that a claim has read, where they lie in the answer's bytes.

use redis::Value;

use super::codec::Field;
use super::errors::{ServerCode, code_of, server_error};
use super::reply::unexpected;
use super::resp::{self, Node, Reader};
use crate::backend::Result;

/// One entry of a stream.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) id: &'a str,
    pub(super) fields: Fields<'a>,
}

/// An entry's fields in order; none where it was deleted.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    left: usize,
    texts: Reader<'a>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        self.left = self.left.checked_sub(1)?;
        // All of them were read once, when the row was.
        Some((self.texts.text().ok()?, self.texts.text().ok()?))
    }
}

/// Entries as XREADGROUP answers them for a single stream; none where the group is not there: it was
/// just restored, or never made, and the next claim reads there.
///
/// # Errors
/// An error of the server, and an answer of another form.
pub(super) fn read(answer: &[u8]) -> Result<Vec<Row<'_>>> {
    let mut reader = Reader::new(answer);
    match reader.node()? {
        Node::Nil | Node::Array(0) => return Ok(Vec::new()),
        Node::Array(1) => {}
        Node::Error(_) => {
            return match resp::value(answer)? {
                Value::ServerError(error) if code_of(&error) == ServerCode::NoGroup => Ok(Vec::new()),
                Value::ServerError(error) => Err(server_error(&error)),
                _ => Err(unexpected("no entries")),
            };
        }
        _ => return Err(unexpected("no entries")),
    }
    if reader.array()? != 2 {
        return Err(unexpected("no entries"));
    }
    // The stream's name.
    reader.part()?;
    (0..reader.array()?).map(|_| row(&mut reader)).collect()
}

fn row<'a>(reader: &mut Reader<'a>) -> Result<Row<'a>> {
    if reader.array()? != 2 {
        return Err(unexpected("no entry"));
    }
    let id = std::str::from_utf8(reader.text()?).map_err(|_| unexpected("no entry id"))?;
    let texts = reader.array()?;
    let fields = Fields { left: texts / 2, texts: *reader };
    for _ in 0..texts {
        reader.text()?;
    }
    Ok(Row { id, fields })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Error;

    #[test]
    fn entries_are_read_where_they_lie() {
        let answer = b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n*2\r\n$3\r\n1-1\r\n*4\r\n$2\r\nid\r\n$1\r\na\r\n$1\r\nn\r\n$0\r\n\r\n*2\r\n$3\r\n1-2\r\n*-1\r\n";
        let rows = read(answer).unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), ["1-1", "1-2"]);
        let fields: Vec<Field<'_>> = rows[0].fields.clone().collect();
        assert_eq!(fields, [(&b"id"[..], &b"a"[..]), (b"n", b"")]);
        assert_eq!(rows[1].fields.clone().count(), 0);
        assert!(read(b"*-1\r\n").unwrap().is_empty());
    }

    #[test]
    fn a_group_that_is_not_there_has_none() {
        assert!(read(b"-NOGROUP No such key\r\n").unwrap().is_empty());
        assert!(matches!(read(b"-OOM no memory\r\n"), Err(Error::Busy(_))));
    }

    #[test]
    fn what_is_no_list_of_entries_is_an_error() {
        for wrong in [
            &b":1\r\n"[..],
            b"*1\r\n:1\r\n",
            b"*2\r\n:1\r\n:1\r\n",
            b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*1\r\n:1\r\n",
            b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n*0\r\n*0\r\n",
            b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$1\r\n\xff\r\n*0\r\n",
            b"*1\r\n*2\r\n$1\r\ns\r\n*9000000000000000000\r\n",
        ] {
            assert!(matches!(read(wrong), Err(Error::Corrupt(_))), "{}", wrong.escape_ascii());
        }
    }
}
