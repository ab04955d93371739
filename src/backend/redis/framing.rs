//! A connection whose answers the client does not take apart.
//!
//! The client's parser makes a tree of values of each answer, which took as long as all that the server
//! does. So texts and arrays are handed to it whole: as one text that holds the answer's bytes, for
//! [`super::resp`] to read. Everything else (that a command is done, numbers, errors) passes as it is, and
//! so the client still sees what it acts upon.

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::resp::Extent;

/// Room for what is read in one go.
const READ: usize = 16 * 1024;

/// Wraps answers into texts.
pub(super) struct Framing<S> {
    inner: S,
    /// What came and is no whole answer yet.
    pending: BytesMut,
    extent: Extent,
    /// What is to be handed on.
    ready: VecDeque<Bytes>,
}

impl<S> Framing<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, pending: BytesMut::new(), extent: Extent::new(), ready: VecDeque::new() }
    }

    /// Takes whole answers out of what came.
    fn frame(&mut self) -> io::Result<()> {
        while let Some(end) = self.extent.end(&self.pending).map_err(io::Error::other)? {
            let answer = self.pending.split_to(end).freeze();
            if matches!(answer.first(), Some(b'*' | b'$')) {
                self.ready.push_back(format!("${end}\r\n").into());
                self.ready.push_back(answer);
                self.ready.push_back(Bytes::from_static(b"\r\n"));
            } else {
                self.ready.push_back(answer);
            }
        }
        Ok(())
    }

    fn hand_on(&mut self, into: &mut ReadBuf<'_>) {
        while let Some(front) = self.ready.front_mut() {
            let size = front.len().min(into.remaining());
            into.put_slice(&front[..size]);
            front.advance(size);
            if front.has_remaining() {
                return;
            }
            self.ready.pop_front();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framing<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.ready.is_empty() {
            this.pending.reserve(READ);
            let read = pin!(this.inner.read_buf(&mut this.pending));
            if ready!(read.poll(context))? == 0 {
                return Poll::Ready(Ok(()));
            }
            this.frame()?;
        }
        this.hand_on(into);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framing<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// What the client gets of answers that come in pieces of so many bytes.
    async fn framed(answers: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let (ours, mut server) = tokio::io::duplex(piece);
        let send = async move { server.write_all(answers).await };
        let mut framing = Framing::new(ours);
        let mut got = Vec::new();
        let (sent, read) = tokio::join!(send, framing.read_to_end(&mut got));
        read?;
        sent?;
        Ok(got)
    }

    #[tokio::test]
    async fn texts_and_arrays_are_handed_on_whole_and_all_else_as_it_is() {
        let text = "x".repeat(100_000);
        let answers =
            format!("+OK\r\n*2\r\n:1\r\n$1\r\na\r\n-ERR no\r\n${}\r\n{text}\r\n:7\r\n$-1\r\n", text.len());
        let expected = format!(
            "+OK\r\n$15\r\n*2\r\n:1\r\n$1\r\na\r\n\r\n-ERR no\r\n$100011\r\n$100000\r\n{text}\r\n\r\n:7\r\n$5\r\n$-1\r\n\r\n"
        );
        for piece in [1, 2, 7, 4096, 1 << 20] {
            let got = framed(answers.as_bytes(), piece).await.unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), expected, "pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn what_is_cut_short_ends_and_what_is_no_answer_fails() {
        assert_eq!(framed(b":1\r\n*2\r\n:1\r\n", 64).await.unwrap(), b":1\r\n");
        assert!(framed(b"HTTP/1.1 400 Bad Request\r\n\r\n", 64).await.is_err());
    }
}
