//! `wasmill plugin test`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use self::expect::{Expectation, Verdict};
use self::report::Report;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::filter::FieldArgs;
use crate::cli::trial::TrialArgs;

mod case;
mod expect;
mod file;
mod report;
mod stream;

#[derive(Debug, Args)]
pub(in crate::cli) struct TestArgs {
    /// The component, a `.wasm` file
    component: PathBuf,
    /// Call it with events of a file, one JSON object a line, as `append` takes them: they may say what
    /// is expected of the answer (docs/handlers.md). `-` is stdin
    #[arg(long, value_name = "FILE", required_unless_present = "stream", conflicts_with_all = ["stream", "event_type", "key", "conditions", "partition", "after", "desc"])]
    event: Option<PathBuf>,
    /// Call it with events of this stream
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
    /// Fail unless it answers so, where a line of the file does not say what it expects
    #[arg(long, value_name = "VERDICT")]
    expect: Option<Verdict>,
    /// Call this build too, and show where the two differ
    #[arg(long, value_name = "OLD.wasm")]
    against: Option<PathBuf>,
    #[command(flatten)]
    fields: FieldArgs,
    /// Only events of this partition
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Only sequences above this one
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: u64,
    /// At most so many events [default: 100 of a stream, all of a file]
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// The newest first
    #[arg(long)]
    desc: bool,
    /// The group whose handler it plays: where the pipeline file has a pipeline for it, it gets that
    /// one's settings and state
    #[arg(long, default_value = "test", value_name = "GROUP")]
    group: String,
    /// The attempt that it is told
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: u32,
    #[command(flatten)]
    trial: TrialArgs,
}

impl TestArgs {
    /// What is expected where nothing else says so.
    fn expectation(&self) -> Expectation {
        Expectation { verdict: self.expect, ..Expectation::default() }
    }
}

pub(super) async fn run(context: &Context, args: TestArgs) -> Result<(), Exit> {
    let mut report = Report::new(context.json(), args.against.is_some());
    match (&args.event, &args.stream) {
        (Some(file), _) => file::run(context, &args, file, &mut report).await?,
        (None, Some(stream)) => stream::run(context, &args, stream, &mut report).await?,
        (None, None) => return Err(Exit::usage("name events: --event FILE, or --stream STREAM")),
    }
    report.finish()
}
