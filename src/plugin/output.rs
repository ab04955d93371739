//! What a guest writes, as events of the host's log: line by line and bounded.
//!
//! Lines are emitted in the current span, which the caller of a plugin has opened for the attempt.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::io::AsyncWrite;
use tracing::Level;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// The target of a guest's lines among the events of `tracing`.
pub const GUEST_TARGET: &str = "guest";

/// Longest line; what is above is cut off.
pub const LINE_BYTES_MAX: usize = 8 * 1024;

/// Lines of one call that are kept by default; of the others only the number is told.
pub const LINES_MAX: u32 = 1_000;

/// How much of a guest's last words goes into a fault's message. Shorter than a stored reason, so
/// that what follows it there is not cut off.
const TAIL_BYTES_MAX: usize = 640;

/// What one write may have; more is taken in parts.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// The output of one instance. Clones are handles to the same output.
#[derive(Clone)]
pub(super) struct Output(Arc<Mutex<Lines>>);

/// Which of the standard streams.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Default)]
struct Lines {
    count_max: u32,
    count: u32,
    dropped: u64,
    /// Lines whose end has not been written yet, at most one byte longer than a line may be.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The last lines of stderr and of messages that say that something failed.
    tail: String,
    /// Where lines go instead of the log, when someone asked for them.
    kept: Option<Vec<GuestLine>>,
}

/// A line that a guest wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLine {
    /// Its level; lines on stdout have `INFO`, on stderr `WARN`.
    pub level: Level,
    /// The line, safe to be shown.
    pub text: String,
}

impl Output {
    /// Output of which so many lines a call are kept.
    pub(super) fn new(count_max: u32) -> Self {
        Self(Arc::new(Mutex::new(Lines { count_max, ..Lines::default() })))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a call.
    pub(super) fn begin(&self) {
        let mut lines = self.lines();
        lines.count = 0;
        lines.dropped = 0;
        lines.tail.clear();
    }

    /// Keeps the lines that follow, instead of writing them to the log.
    pub(super) fn keep(&self) {
        self.lines().kept = Some(Vec::new());
    }

    /// The lines that were kept; those that follow go to the log again.
    pub(super) fn take(&self) -> Vec<GuestLine> {
        self.lines().kept.take().unwrap_or_default()
    }

    /// Ends a call: emits lines that have no end, and says how many were dropped.
    pub(super) fn finish(&self) {
        let mut lines = self.lines();
        for stream in [Stream::Stdout, Stream::Stderr] {
            if !lines.partial(stream).is_empty() {
                lines.end(stream);
            }
        }
        if lines.dropped > 0 {
            let dropped = lines.dropped;
            let max = lines.count_max;
            let text =
                format!("{dropped} more lines dropped: a call may log {max} (`max_log_lines` raises it)");
            lines.dropped = 0;
            lines.emit(Level::WARN, None, text);
        }
    }

    /// Takes a message; one that has several lines becomes several.
    pub(super) fn message(&self, level: Level, context: &str, text: &str) {
        let mut lines = self.lines();
        let context = (!context.is_empty()).then_some(context);
        for line in text.split('\n') {
            lines.line(level, context, line.as_bytes(), level == Level::ERROR);
        }
    }

    /// Takes bytes of a standard stream.
    pub(super) fn write(&self, stream: Stream, bytes: &[u8]) {
        let mut lines = self.lines();
        for (n, part) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if n > 0 {
                lines.end(stream);
            }
            let partial = lines.partial(stream);
            let room = (LINE_BYTES_MAX + 1).saturating_sub(partial.len());
            partial.extend_from_slice(part.get(..room).unwrap_or(part));
        }
    }

    /// The guest's last words in this call.
    pub(super) fn tail(&self) -> String {
        self.lines().tail.trim().to_owned()
    }
}

impl Lines {
    fn partial(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    fn end(&mut self, stream: Stream) {
        let bytes = std::mem::take(self.partial(stream));
        match stream {
            Stream::Stdout => self.line(Level::INFO, None, &bytes, false),
            Stream::Stderr => self.line(Level::WARN, None, &bytes, true),
        }
    }

    fn line(&mut self, level: Level, context: Option<&str>, bytes: &[u8], last_words: bool) {
        if !last_words && self.count >= self.count_max {
            self.dropped += 1;
            return;
        }
        let line = printable(bytes);
        if last_words {
            self.tail.push_str(&line);
            self.tail.push('\n');
            let surplus = self.tail.len().saturating_sub(TAIL_BYTES_MAX);
            self.tail.drain(..self.tail.ceil_char_boundary(surplus));
        }
        if self.count >= self.count_max {
            self.dropped += 1;
        } else {
            self.count += 1;
            self.emit(level, context, line);
        }
    }

    fn emit(&mut self, level: Level, context: Option<&str>, text: String) {
        match &mut self.kept {
            Some(kept) => kept.push(GuestLine { level, text }),
            None => emit(level, context, &text),
        }
    }
}

/// A guest's bytes as a line that is safe to show: no longer than allowed, and without the control
/// characters that a terminal would obey.
fn printable(bytes: &[u8]) -> String {
    let cut = bytes.len() > LINE_BYTES_MAX;
    let bytes = if cut { &bytes[..LINE_BYTES_MAX] } else { bytes };
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let mut line = String::from_utf8_lossy(bytes).into_owned();
    if line.contains(|c: char| c.is_control() && c != '\t') {
        line = line.replace(|c: char| c.is_control() && c != '\t', "\u{fffd}");
    }
    if cut {
        line.push_str(" … (cut)");
    }
    line
}

fn emit(level: Level, context: Option<&str>, line: &str) {
    match level {
        Level::ERROR => tracing::error!(target: GUEST_TARGET, context, "{line}"),
        Level::WARN => tracing::warn!(target: GUEST_TARGET, context, "{line}"),
        Level::INFO => tracing::info!(target: GUEST_TARGET, context, "{line}"),
        Level::DEBUG => tracing::debug!(target: GUEST_TARGET, context, "{line}"),
        Level::TRACE => tracing::trace!(target: GUEST_TARGET, context, "{line}"),
    }
}

/// One standard stream of a guest.
pub(super) struct GuestStream {
    pub(super) output: Output,
    pub(super) stream: Stream,
}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Only WASI 0.3 asks for this form, and that is not linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(Self { output: self.output.clone(), stream: self.stream })
    }
}

#[async_trait]
impl Pollable for GuestStream {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for GuestStream {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.output.write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_steer_a_terminal() {
        assert_eq!(printable(b"a\tb \x1b[2J\x07"), "a\tb \u{fffd}[2J\u{fffd}");
        assert_eq!(printable(b"from Windows\r"), "from Windows");
        assert_eq!(printable(b"half \xff a character \xc3"), "half \u{fffd} a character \u{fffd}");
    }

    #[test]
    fn a_line_is_cut_where_it_is_too_long() {
        assert_eq!(printable(&[b'x'; LINE_BYTES_MAX]).len(), LINE_BYTES_MAX);
        assert!(printable(&[b'x'; LINE_BYTES_MAX + 1]).ends_with("x … (cut)"));
    }

    #[test]
    fn the_last_words_are_the_last() {
        let output = Output::new(LINES_MAX);
        output.begin();
        for n in 0..5_000 {
            output.write(Stream::Stderr, format!("complaint {n}\n").as_bytes());
        }
        output.message(Level::ERROR, "", "wörter\nthe end");
        let tail = output.tail();
        assert!(tail.ends_with("complaint 4999\nwörter\nthe end"), "{tail}");
        assert!(tail.len() <= TAIL_BYTES_MAX);
        output.begin();
        assert_eq!(output.tail(), "");
    }
}
