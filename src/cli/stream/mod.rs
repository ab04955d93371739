//! `wasmill stream`.

use clap::Subcommand;

use super::context::{Access, Context, name};
use super::exit::Exit;
use super::output;
use crate::backend::{Backend, Error, GroupInfo, PartitionInfo};
use crate::event::{GroupKey, Name};

mod trim;

#[derive(Debug, Subcommand)]
pub(super) enum StreamCommand {
    /// Create a stream
    Create {
        /// Its name: letters, digits, `.`, `_` and `-`
        stream: String,
        /// How many partitions it has; this never changes
        #[arg(long, default_value_t = 1, value_name = "N")]
        partitions: u32,
    },
    /// List all streams
    List,
    /// Show a stream's partitions and groups
    Info {
        /// The stream
        stream: String,
    },
    /// Remove old events
    Trim(trim::TrimArgs),
}

pub(super) async fn run(context: &Context, command: StreamCommand) -> Result<(), Exit> {
    let access = match command {
        StreamCommand::Create { .. } => Access::Create,
        _ => Access::Existing,
    };
    let backend = context.open_store(access).await?;
    match command {
        StreamCommand::Create { stream, partitions } => {
            let stream = Name::new(&stream)?;
            backend.create_stream(&stream, partitions).await?;
            if context.json() {
                return output::json_line(&serde_json::json!({ "stream": stream, "partitions": partitions }));
            }
            let partitions = output::count(partitions.into(), "partition");
            output::line(&format!("created the stream `{stream}` with {partitions}"))
        }
        StreamCommand::List => {
            let streams = backend.streams().await?;
            if context.json() {
                return streams.iter().try_for_each(output::json_line);
            }
            let rows: Vec<_> =
                streams.iter().map(|s| [s.stream.to_string(), s.partitions.to_string()]).collect();
            output::table(["stream", ">partitions"], &rows)
        }
        StreamCommand::Info { stream } => info(context, backend.as_ref(), &name(&stream)?).await,
        StreamCommand::Trim(args) => trim::run(context, backend.as_ref(), &args).await,
    }
}

async fn info(context: &Context, backend: &dyn Backend, stream: &Name) -> Result<(), Exit> {
    let info = backend.stream_info(stream).await?;
    let mut groups = Vec::new();
    for group in backend.groups(stream).await? {
        match backend.group_info(&GroupKey::new(stream.clone(), group.clone())).await {
            Ok(info) => groups.push((group, info)),
            // Deleted between the two questions.
            Err(Error::GroupNotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if context.json() {
        let groups: Vec<_> = groups.iter().map(|(group, info)| group_json(group, info)).collect();
        return output::json_line(&serde_json::json!({
            "stream": info.stream, "created_at": info.created_at, "partitions": info.partitions, "groups": groups,
        }));
    }
    let created = info.created_at.as_deref().unwrap_or("at an unknown time");
    output::line(&format!("stream {}, created {}", info.stream, output::printable(created)))?;
    let row = |p: &PartitionInfo| {
        let first = p.first.map(|first| first.to_string()).unwrap_or_default();
        [p.partition.to_string(), first, p.high_watermark.to_string(), p.length.to_string()]
    };
    let rows: Vec<_> = info.partitions.iter().map(row).collect();
    output::table([">partition", ">first", ">high watermark", ">entries"], &rows)?;
    if groups.is_empty() {
        return output::line("no groups");
    }
    let row = |(group, info): &(Name, GroupInfo)| {
        [group.to_string(), info.lag(|_| true).to_string(), info.dead_letters.to_string()]
    };
    let rows: Vec<_> = groups.iter().map(row).collect();
    output::table(["group", ">lag", ">dead letters"], &rows)
}

fn group_json(group: &Name, info: &GroupInfo) -> serde_json::Value {
    serde_json::json!({ "group": group, "lag": info.lag(|_| true), "dead_letters": info.dead_letters })
}
