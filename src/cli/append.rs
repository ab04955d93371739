//! `wasmill append`.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _, Read};
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc;

use super::context::{Access, Context};
use super::exit::Exit;
use super::lines::{Defaults, Line, event, next_line};
use super::output;
use crate::backend::{Backend, Error};
use crate::event::{JsonObject, Name, NewEvent};

/// Events and bytes of one batch.
const BATCH_EVENTS_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// What an envelope may add to an event's own size: names, quotes, escapes. A line beyond event
/// size times this is not even read.
const LINE_FACTOR: usize = 2;

#[derive(Debug, Args)]
pub(super) struct AppendArgs {
    /// The stream; it is created with one partition if it is not there
    stream: String,
    /// Where the lines come from; `-` is stdin
    #[arg(long, default_value = "-", value_name = "FILE")]
    file: PathBuf,
    /// Take each whole line as payload
    #[arg(long)]
    raw: bool,
    /// Pass over lines that are no events, and count them
    #[arg(long)]
    skip_invalid: bool,
    /// Key of events that have none
    #[arg(long)]
    key: Option<String>,
    /// Type of events that have none
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Partition of events that name none
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Id of the event, where there is only one
    #[arg(long)]
    id: Option<String>,
    /// Metadata of events that have none, a JSON object
    #[arg(long, value_name = "JSON", value_parser = |text: &str| JsonObject::parse(text).map_err(|e| e.to_string()))]
    metadata: Option<JsonObject>,
}

/// A line with its number, from 1.
struct Numbered {
    number: u64,
    line: Line,
    /// Bytes of input up to its end.
    bytes: u64,
}

pub(super) async fn run(context: &Context, args: AppendArgs) -> Result<(), Exit> {
    let stream = Name::existing(&args.stream)?;
    let config = context.store()?;
    let (input, length) = open_input(&args.file)?;
    let backend = context.open(&config.backend, &config.engine, Access::Create).await?.backend;
    let declared = config.streams.iter().find(|declared| declared.name == stream);
    let partitions = ensure_stream(backend.as_ref(), &stream, declared.map_or(1, |s| s.partitions)).await?;

    let event_bytes_max = config.engine.max_event_bytes;
    let (sender, lines) = mpsc::channel(BATCH_EVENTS_MAX);
    let reader = tokio::task::spawn_blocking(move || read(input, event_bytes_max, &sender));
    let mut appender = Appender {
        backend: backend.as_ref(),
        stream: &stream,
        partitions,
        event_bytes_max,
        batch: Batch::default(),
        stored: 0,
        skipped: 0,
        progress: progress(length),
    };
    let done = appender.append_all(lines, &args).await;
    appender.progress.finish_and_clear();
    let (stored, skipped) = (appender.stored, appender.skipped);
    let so_far = output::count(stored, "event");
    done.map_err(|exit| exit.context(format!("stored {so_far}, then stopped")))?;
    reader.await.map_err(anyhow::Error::from)?.map_err(|error| {
        Exit::Failed(anyhow::anyhow!("stored {so_far}, then the input could not be read: {error}"))
    })?;
    if context.json() {
        return output::json_line(
            &serde_json::json!({ "stream": stream, "appended": stored, "skipped": skipped }),
        );
    }
    let skipped =
        if skipped > 0 { format!(", skipped {}", output::count(skipped, "line")) } else { String::new() };
    output::line(&format!("appended {so_far} to the stream `{stream}`{skipped}"))
}

fn open_input(file: &PathBuf) -> Result<(Box<dyn Read + Send>, Option<u64>), Exit> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let opened = File::open(file).and_then(|open| Ok((open.metadata()?, open)));
    let (metadata, open) = opened.map_err(|error| Exit::usage(format!("{}: {error}", file.display())))?;
    if metadata.is_dir() {
        return Err(Exit::usage(format!("{} is a folder, not a file of JSON lines", file.display())));
    }
    Ok((Box::new(open), metadata.is_file().then_some(metadata.len())))
}

/// Creates the stream if it is not there, and says so. Answers with its number of partitions.
async fn ensure_stream(backend: &dyn Backend, stream: &Name, partitions: u32) -> Result<u32, Exit> {
    match backend.stream_info(stream).await {
        Err(Error::StreamNotFound(_)) => {}
        other => return Ok(u32::try_from(other?.partitions.len()).unwrap_or(u32::MAX)),
    }
    match backend.create_stream(stream, partitions).await {
        Ok(()) => tracing::info!(%stream, partitions, "created the stream"),
        // Another program was faster.
        Err(Error::StreamExists(_)) => {
            let partitions = backend.stream_info(stream).await?.partitions.len();
            return Ok(u32::try_from(partitions).unwrap_or(u32::MAX));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(partitions)
}

/// Reads lines on a thread of its own, never more than the channel holds ahead.
fn read(
    input: Box<dyn Read + Send>,
    event_bytes_max: usize,
    lines: &mpsc::Sender<Numbered>,
) -> std::io::Result<()> {
    let mut input = BufReader::with_capacity(64 * 1024, input);
    let (mut number, mut bytes) = (0, 0);
    loop {
        let line = next_line(&mut input, event_bytes_max.saturating_mul(LINE_FACTOR))?;
        number += 1;
        bytes += match &line {
            Line::End => return Ok(()),
            Line::Text(text) => u64::try_from(text.len()).unwrap_or(0) + 1,
            Line::TooLong => 0,
        };
        if lines.blocking_send(Numbered { number, line, bytes }).is_err() {
            return Ok(());
        }
    }
}

fn progress(length: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (ProgressBar::new(length), "{msg} {wide_bar} {percent}% {eta}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[derive(Default)]
struct Batch {
    events: Vec<NewEvent>,
    bytes: usize,
    /// The first and the last line.
    lines: (u64, u64),
}

struct Appender<'a> {
    backend: &'a dyn Backend,
    stream: &'a Name,
    partitions: u32,
    event_bytes_max: usize,
    batch: Batch,
    stored: u64,
    skipped: u64,
    progress: ProgressBar,
}

impl Appender<'_> {
    async fn append_all(
        &mut self,
        mut lines: mpsc::Receiver<Numbered>,
        args: &AppendArgs,
    ) -> Result<(), Exit> {
        let defaults = Defaults {
            key: args.key.clone(),
            event_type: args.event_type.clone(),
            partition: args.partition,
            id: args.id.clone(),
            metadata: args.metadata.clone(),
        };
        // With `--id` the first event waits for the end of the input: a second one is refused.
        let single = args.id.is_some();
        loop {
            let next = match lines.try_recv() {
                Ok(line) => Some(line),
                // Nothing more is at hand: what there is must not wait for it.
                Err(_) => {
                    if !single {
                        self.flush().await?;
                    }
                    lines.recv().await
                }
            };
            let Some(numbered) = next else { break };
            let event = match self.parse(&numbered, args.raw, &defaults) {
                Ok(Some(event)) => event,
                Ok(None) => continue,
                Err(why) if args.skip_invalid => {
                    tracing::warn!(line = numbered.number, error = why, "skipped");
                    self.skipped += 1;
                    continue;
                }
                Err(why) => {
                    self.flush().await?;
                    let message =
                        format!("line {}: {why} (--skip-invalid passes over such lines)", numbered.number);
                    return Err(Exit::Failed(anyhow::anyhow!("{}", output::printable(&message))));
                }
            };
            if single && !self.batch.events.is_empty() {
                return Err(Exit::usage("--id is for a single event, but the input has more"));
            }
            self.push(event, &numbered);
            if self.batch.events.len() >= BATCH_EVENTS_MAX || self.batch.bytes >= BATCH_BYTES_MAX {
                self.flush().await?;
            }
        }
        self.flush().await
    }

    /// The line's event; nothing for an empty line.
    fn parse(&self, numbered: &Numbered, raw: bool, defaults: &Defaults) -> Result<Option<NewEvent>, String> {
        let text = match &numbered.line {
            Line::Text(text) if text.iter().all(u8::is_ascii_whitespace) => return Ok(None),
            Line::Text(text) => text,
            Line::TooLong | Line::End => {
                return Err(format!("the line is longer than {} bytes", self.event_bytes_max * LINE_FACTOR));
            }
        };
        let event = event(text, raw, defaults)?;
        event.check(self.event_bytes_max).map_err(|error| error.to_string())?;
        // The store would refuse it too, but with its whole batch.
        if let Some(partition) = event.partition.filter(|partition| *partition >= self.partitions) {
            return Err(format!(
                "there is no partition {partition}: the stream has {}, counted from 0",
                self.partitions
            ));
        }
        Ok(Some(event))
    }

    fn push(&mut self, event: NewEvent, numbered: &Numbered) {
        if self.batch.events.is_empty() {
            self.batch.lines.0 = numbered.number;
        }
        self.batch.lines.1 = numbered.number;
        self.batch.bytes += event.bytes();
        self.batch.events.push(event);
        self.progress.set_position(numbered.bytes);
    }

    async fn flush(&mut self) -> Result<(), Exit> {
        if self.batch.events.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let (first, last) = batch.lines;
        let appended = self.backend.append(self.stream, &batch.events).await.map_err(|error| {
            let what = match &error {
                Error::Ambiguous(_) => format!("lines {first} to {last} may be stored or not"),
                _ => format!("lines {first} to {last} were not stored"),
            };
            Exit::from(error).context(what)
        })?;
        self.stored += u64::try_from(appended.len()).unwrap_or(0);
        self.progress.set_message(format!("{} events", self.stored));
        Ok(())
    }
}
