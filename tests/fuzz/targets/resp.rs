//! As much of Redis' protocol as it takes to play a server: where a value ends, and what a command is
//! called.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes that are read at a time.
const PIECE: usize = 16 * 1024;

/// Where the value ends that `bytes` begin with; `None` where they end before it does, or where they
/// begin with no value.
pub(crate) fn value_end(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut left) = (0, 1_usize);
    while left > 0 {
        let line = bytes[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let head = &bytes[at..at + line];
        at += line + 2;
        left -= 1;
        let kind = *head.first()?;
        if !b"+-:$*_#,(!=%~>|".contains(&kind) {
            return None;
        }
        let number = std::str::from_utf8(&head[1..]).ok().and_then(|text| text.trim().parse::<i64>().ok());
        let length = usize::try_from(number.unwrap_or(-1)).ok();
        match (kind, length) {
            (b'$' | b'!' | b'=', Some(length)) => {
                at = at.checked_add(length)?.checked_add(2)?;
                if at > bytes.len() {
                    return None;
                }
            }
            (b'*' | b'~' | b'>', Some(length)) => left = left.checked_add(length)?,
            (b'%', Some(length)) => left = left.checked_add(length.checked_mul(2)?)?,
            (b'|', Some(length)) => left = left.checked_add(length.checked_mul(2)?)?.checked_add(1)?,
            _ => {}
        }
    }
    Some(at)
}

/// Values that come over a connection, one after the other.
pub(crate) struct Values<R> {
    from: R,
    read: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Values<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, read: Vec::new() }
    }

    /// The next value's bytes; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = value_end(&self.read) {
                return Some(self.read.drain(..end).collect());
            }
            let before = self.read.len();
            self.read.resize(before + PIECE, 0);
            let count = self.from.read(&mut self.read[before..]).await.unwrap_or(0);
            self.read.truncate(before + count);
            if count == 0 {
                return None;
            }
        }
    }
}

/// What a connection has said so far: what the server says to a command by itself, and what a script
/// of replies has to say.
#[derive(Default)]
pub(crate) struct Talk {
    transaction: bool,
}

/// Who answers a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is part of setting up, or of a transaction: the answer is always this.
    Always(&'static [u8]),
    /// It asks for something.
    Scripted,
}

impl Talk {
    /// Takes in a command.
    pub(crate) fn hear(&mut self, command: &[u8]) -> Answer {
        let name = command.split(|&byte| byte == b'\n').nth(2).unwrap_or_default();
        let name = String::from_utf8_lossy(name).trim().to_ascii_uppercase();
        match name.as_str() {
            "CLIENT" | "SCRIPT" | "SELECT" | "AUTH" => Answer::Always(b"+OK\r\n"),
            "MULTI" => {
                self.transaction = true;
                Answer::Always(b"+OK\r\n")
            }
            "EXEC" => {
                self.transaction = false;
                Answer::Scripted
            }
            _ if self.transaction => Answer::Always(b"+QUEUED\r\n"),
            _ => Answer::Scripted,
        }
    }
}
