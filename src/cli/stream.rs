//! `wasmill stream`.

use clap::Subcommand;

use super::context::{Access, Context, name};
use super::exit::Exit;
use super::output;
use crate::event::Name;

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
    /// Show a stream's partitions
    Info {
        /// The stream
        stream: String,
    },
}

pub(super) async fn run(context: &Context, command: StreamCommand) -> Result<(), Exit> {
    let access = match command {
        StreamCommand::Create { .. } => Access::Create,
        StreamCommand::List | StreamCommand::Info { .. } => Access::Existing,
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
        StreamCommand::Info { stream } => {
            let info = backend.stream_info(&name(&stream)?).await?;
            if context.json() {
                return output::json_line(&info);
            }
            let created = info.created_at.as_deref().unwrap_or("at an unknown time");
            output::line(&format!("stream {}, created {}", info.stream, output::printable(created)))?;
            let row = |p: &crate::backend::PartitionInfo| {
                [p.partition.to_string(), p.high_watermark.to_string(), p.length.to_string()]
            };
            let rows: Vec<_> = info.partitions.iter().map(row).collect();
            output::table([">partition", ">high watermark", ">entries"], &rows)
        }
    }
}
