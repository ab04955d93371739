//! `wasmill group`.

use clap::{Args, Subcommand};

use super::context::{Access, Context, group_key, name};
use super::exit::Exit;
use super::output;
use crate::backend::{Backend, GroupInfo, GroupPartition, NewGroup};
use crate::event::{GroupKey, Name};

mod explain;
mod pending;
mod rewind;
mod settle;
mod start;

#[derive(Debug, Subcommand)]
pub(super) enum GroupCommand {
    /// Create a group
    Create(CreateArgs),
    /// List a stream's groups
    List {
        /// The stream
        stream: String,
    },
    /// Show a group's state
    Info {
        /// The stream
        stream: String,
        /// The group
        group: String,
    },
    /// List what was delivered and is not settled: who holds it, or when it comes back
    Pending(pending::PendingArgs),
    /// Show which event holds a group's frontier, why, and what would release it
    Explain(explain::ExplainArgs),
    /// Deliver events again: all from a place in the log on, or chosen ones
    ///
    /// With --type, --key and --where: in each partition from the earliest event that matches on; a
    /// partition without one is not touched. Attempts begin afresh, leases behind the place are stale
    /// from then on, and dead letters stay.
    Replay(rewind::ReplayArgs),
    /// Let a group stand as if it had been created at a place in the log
    Reset(rewind::ResetArgs),
    /// Delete a group with its dead letters
    Delete(rewind::DeleteArgs),
    /// Settle an event by hand, under a lease that is known (`group pending` shows receipts)
    Settle(settle::SettleArgs),
}

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// The stream
    stream: String,
    /// The group's name: letters, digits, `.`, `_` and `-`
    group: String,
    #[command(flatten)]
    start: start::StartArgs,
    /// Deliveries after which a failure is a dead letter
    #[arg(long, default_value_t = 5, value_name = "N")]
    max_attempts: u32,
}

pub(super) async fn run(context: &Context, command: GroupCommand) -> Result<(), Exit> {
    let access = if matches!(command, GroupCommand::Create(_)) { Access::Create } else { Access::Existing };
    let backend = context.open_store(access).await?;
    let backend = backend.as_ref();
    match command {
        GroupCommand::Create(args) => create(context, backend, &args).await,
        GroupCommand::List { stream } => list(context, backend, &name(&stream)?).await,
        GroupCommand::Info { stream, group } => {
            let key = group_key(&stream, &group)?;
            info(context, &key, &backend.group_info(&key).await?)
        }
        GroupCommand::Pending(args) => pending::run(context, backend, &args).await,
        GroupCommand::Explain(args) => explain::run(context, backend, &args).await,
        GroupCommand::Replay(args) => rewind::replay(context, backend, &args).await,
        GroupCommand::Reset(args) => rewind::reset(context, backend, &args).await,
        GroupCommand::Delete(args) => rewind::delete(context, backend, &args).await,
        GroupCommand::Settle(args) => settle::run(context, backend, &args).await,
    }
}

async fn create(context: &Context, backend: &dyn Backend, args: &CreateArgs) -> Result<(), Exit> {
    let key = GroupKey::new(name(&args.stream)?, Name::new(&args.group)?);
    let start = args.start.start(backend, &key.stream).await?;
    backend.create_group(&key, NewGroup { max_attempts: args.max_attempts, start }).await?;
    if context.json() {
        return output::json_line(&serde_json::json!({
            "stream": key.stream, "group": key.group, "max_attempts": args.max_attempts
        }));
    }
    output::line(&format!("created the group `{}` of the stream `{}`", key.group, key.stream))
}

async fn list(context: &Context, backend: &dyn Backend, stream: &Name) -> Result<(), Exit> {
    let groups = backend.groups(stream).await?;
    if context.json() {
        let row = |group| output::json_line(&serde_json::json!({ "stream": stream, "group": group }));
        return groups.iter().try_for_each(row);
    }
    let rows: Vec<_> = groups.iter().map(|group| [group.to_string()]).collect();
    output::table(["group"], &rows)
}

fn info(context: &Context, key: &GroupKey, info: &GroupInfo) -> Result<(), Exit> {
    let sum = |of: fn(&GroupPartition) -> u64| info.partitions.iter().map(of).sum::<u64>();
    let (in_flight, parked) = (sum(|p| p.in_flight), sum(|p| p.parked));
    let (redriven, missing) = (sum(|p| p.redriven), sum(|p| p.missing));
    let lag = info.lag(|_| true);
    if context.json() {
        return output::json_line(&serde_json::json!({
            "stream": key.stream,
            "group": key.group,
            "max_attempts": info.max_attempts,
            "lag": lag,
            "in_flight": in_flight,
            "parked": parked,
            "redriven": redriven,
            "missing": missing,
            "frontier": info.partitions.iter().map(|p| p.frontier).collect::<Vec<_>>(),
            "dead_letters": info.dead_letters,
            "rewind": info.rewind,
        }));
    }
    let rewind = info.rewind.map_or_else(String::new, |kind| format!(", a {kind} is under way"));
    output::line(&format!(
        "group {} of the stream {}: lag {lag}, in flight {in_flight}, parked {parked}, redriven {redriven}, \
         dead letters {}, missing {missing}, max attempts {}{rewind}",
        key.group, key.stream, info.dead_letters, info.max_attempts
    ))?;
    let row = |p: &GroupPartition| {
        let place = [p.partition.into(), p.frontier, p.high_watermark, p.lag()];
        let [partition, frontier, high_watermark, lag] = place.map(|n| n.to_string());
        let [in_flight, parked, redriven, missing] =
            [p.in_flight, p.parked, p.redriven, p.missing].map(|n| n.to_string());
        [partition, frontier, high_watermark, lag, in_flight, parked, redriven, missing]
    };
    let headings = [
        ">partition",
        ">frontier",
        ">high watermark",
        ">lag",
        ">in flight",
        ">parked",
        ">redriven",
        ">missing",
    ];
    output::table(headings, &info.partitions.iter().map(row).collect::<Vec<_>>())
}
