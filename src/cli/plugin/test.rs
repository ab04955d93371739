//! `wasmill plugin test`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::backend::{self, Order, Query};
use crate::cli::context::{Access, Context, name};
use crate::cli::exit::Exit;
use crate::cli::filter::FieldArgs;
use crate::cli::output;
use crate::cli::trial::{Answer, Builds, Role, TrialArgs};
use crate::event::{Event, GroupKey, NUMBER_MAX, Name};
use crate::query::Cursor;

/// Events of one page.
const PAGE: usize = 200;

#[derive(Debug, Args)]
pub(in crate::cli) struct TestArgs {
    /// The component, a `.wasm` file
    component: PathBuf,
    /// Call it with events of this stream
    #[arg(long, value_name = "STREAM")]
    stream: String,
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
    /// At most so many events
    #[arg(long, default_value = "100", value_name = "N")]
    limit: NonZeroUsize,
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

pub(super) async fn run(context: &Context, args: TestArgs) -> Result<(), Exit> {
    let key = GroupKey::new(name(&args.stream)?, Name::existing(&args.group)?);
    let store = context.open_store(Access::Existing).await?;
    let role = Role::new(context, &args.trial, &key, args.attempt.max(5), store.clone())?;
    let builds = Builds::load(&role, &args.component, args.against.as_ref()).await?;
    let mut query = Query {
        filter: args.fields.filter()?,
        partition: args.partition,
        after: args.after,
        until: NUMBER_MAX,
        order: if args.desc { Order::Descending } else { Order::Ascending },
        sort: Vec::new(),
        limit: PAGE,
        cursor: Cursor::default(),
    };
    let mut tried = Vec::new();
    loop {
        query.limit = (args.limit.get() - tried.len()).min(PAGE);
        let page = backend::query(store.as_ref(), &key.stream, &query).await?;
        for event in page.events {
            let (new, took_ms) = role.ask(&builds.new, &event, args.attempt).await;
            let old = match &builds.old {
                Some(old) => Some(role.ask(old, &event, args.attempt).await.0),
                None => None,
            };
            tried.push(Tried { event, new, old, took_ms });
        }
        match page.next {
            Some(next) if tried.len() < args.limit.get() => query.cursor = next,
            _ => break,
        }
    }
    show(context, &tried, builds.old.is_some())
}

/// One event, and what came of it.
struct Tried {
    event: Event,
    new: Answer,
    old: Option<Answer>,
    took_ms: f64,
}

impl Tried {
    fn differs(&self) -> bool {
        self.old.as_ref().is_some_and(|old| *old != self.new)
    }
}

fn show(context: &Context, tried: &[Tried], compared: bool) -> Result<(), Exit> {
    if context.json() {
        return tried.iter().try_for_each(|tried| {
            let mut line = serde_json::json!({
                "event": tried.event.id, "partition": tried.event.partition,
                "sequence": tried.event.sequence, "answer": tried.new,
                "ms": (tried.took_ms * 1000.0).round() / 1000.0,
            });
            if let Some(old) = &tried.old {
                line["against"] = serde_json::to_value(old).map_err(anyhow::Error::from)?;
                line["differs"] = tried.differs().into();
            }
            output::json_line(&line)
        });
    }
    let place = |tried: &Tried| [tried.event.partition.to_string(), tried.event.sequence.to_string()];
    if compared {
        let rows: Vec<_> = tried
            .iter()
            .filter(|tried| tried.differs())
            .map(|tried| {
                let [partition, sequence] = place(tried);
                let old = tried.old.as_ref().map(Answer::brief).unwrap_or_default();
                [partition, sequence, tried.event.id.clone(), old, tried.new.brief()]
            })
            .collect();
        output::table([">partition", ">sequence", "event", "against", "this build"], &rows)?;
        let differ = rows.len() as u64;
        output::note(&format!("{} of {} differ", differ, output::count(tried.len() as u64, "answer")));
        return Ok(());
    }
    let rows: Vec<_> = tried
        .iter()
        .map(|tried| {
            let [partition, sequence] = place(tried);
            [partition, sequence, tried.event.id.clone(), format!("{:.1}", tried.took_ms), tried.new.brief()]
        })
        .collect();
    output::table([">partition", ">sequence", "event", ">ms", "answer"], &rows)?;
    output::note(&summary(tried));
    Ok(())
}

fn summary(tried: &[Tried]) -> String {
    let of = |verdict: &str| tried.iter().filter(|tried| tried.new.verdict == verdict).count();
    let verdicts = ["ack", "retry", "reject", "fault"];
    let parts: Vec<_> = verdicts.iter().map(|verdict| format!("{verdict} {}", of(verdict))).collect();
    format!("{}: {}; nothing was committed", output::count(tried.len() as u64, "event"), parts.join(", "))
}
