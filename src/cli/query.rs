//! `wasmill query`.

use std::num::NonZeroUsize;

use clap::Args;
use jiff::Timestamp;

use super::context::{Access, Context, name};
use super::exit::Exit;
use super::filter::{FieldArgs, time};
use super::output;
use crate::backend::{self, Error, Order, Query, SORTED_LIMIT_MAX};
use crate::event::{Event, NUMBER_MAX};
use crate::query::{Cursor, SortKey};

/// Events of one page, which are held at the same time.
const PAGE: usize = 500;

/// Characters of a payload in a table.
const PAYLOAD_CHARS_MAX: usize = 72;

#[derive(Debug, Args)]
pub(super) struct QueryArgs {
    /// The stream
    stream: String,
    #[command(flatten)]
    fields: FieldArgs,
    /// Only events of this partition
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
    /// Only sequences above this one
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: u64,
    /// Only sequences up to this one
    #[arg(long, default_value_t = NUMBER_MAX, hide_default_value = true, value_name = "SEQ")]
    until: u64,
    /// Only events of this time and later; an event whose timestamp is no time is left out
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Only events up to this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Timestamp>,
    /// At most so many events
    #[arg(long, default_value = "100", value_name = "N")]
    limit: NonZeroUsize,
    /// The newest first
    #[arg(long)]
    desc: bool,
    /// Another order than that of sequence and partition (repeatable): sequence, partition, timestamp,
    /// type, key or id, with `:desc` for the largest first; looks at all that is in range
    #[arg(long, value_name = "FIELD[:desc]", conflicts_with_all = ["desc", "cursor"])]
    order_by: Vec<SortKey>,
    /// Go on where an earlier page of the same query ended: what that one printed, as in 0:12,3:4
    #[arg(long, value_name = "C")]
    cursor: Option<String>,
}

pub(super) async fn run(context: &Context, args: QueryArgs) -> Result<(), Exit> {
    let stream = name(&args.stream)?;
    let mut query = to_query(&args)?;
    let backend = context.open_store(Access::Existing).await?;
    let mut left = args.limit.get();
    let mut first = true;
    loop {
        query.limit = if query.sort.is_empty() { left.min(PAGE) } else { left };
        let page = backend::query(backend.as_ref(), &stream, &query).await?;
        left -= page.events.len().min(left);
        show(context, &page.events, std::mem::replace(&mut first, false))?;
        let Some(next) = page.next else { return Ok(()) };
        if left == 0 {
            output::note(&format!("there may be more: --cursor {next} goes on"));
            return Ok(());
        }
        query.cursor = next;
    }
}

fn to_query(args: &QueryArgs) -> Result<Query, Exit> {
    if !args.order_by.is_empty() && args.limit.get() > SORTED_LIMIT_MAX {
        return Err(Exit::usage(format!("with --order-by, --limit is at most {SORTED_LIMIT_MAX}")));
    }
    let mut filter = args.fields.filter()?;
    (filter.from, filter.to) = (args.from, args.to);
    let cursor = match &args.cursor {
        Some(text) => text.parse::<Cursor>().map_err(|_| Error::CursorNotFound(text.clone()))?,
        None => Cursor::default(),
    };
    Ok(Query {
        filter,
        partition: args.partition,
        after: args.after,
        until: args.until.min(NUMBER_MAX),
        order: if args.desc { Order::Descending } else { Order::Ascending },
        sort: args.order_by.clone(),
        limit: PAGE,
        cursor,
    })
}

fn show(context: &Context, events: &[Event], first: bool) -> Result<(), Exit> {
    if context.json() {
        return output::json_lines(events);
    }
    // A query without an answer shows the headings alone; a page behind the first one its rows.
    if events.is_empty() && !first {
        return Ok(());
    }
    let rows: Vec<_> = events.iter().map(row).collect();
    output::table([">partition", ">sequence", "time", "type", "key", "event", "payload"], &rows)
}

fn row(event: &Event) -> [String; 7] {
    [
        event.partition.to_string(),
        event.sequence.to_string(),
        event.timestamp.clone(),
        event.event_type.clone().unwrap_or_default(),
        event.key.clone().unwrap_or_default(),
        event.id.clone(),
        output::shortened(event.payload.as_str(), PAYLOAD_CHARS_MAX),
    ]
}
