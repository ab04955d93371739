//! Events of a stream.

use super::TestArgs;
use super::report::{Report, Tried};
use crate::backend::{self, Order, Query};
use crate::cli::context::{Access, Context, name};
use crate::cli::exit::Exit;
use crate::cli::trial::{Builds, Role};
use crate::event::{GroupKey, NUMBER_MAX, Name};
use crate::query::Cursor;

/// Events of one page.
const PAGE: usize = 200;

/// Events that are tried where no one says how many.
const LIMIT_DEFAULT: usize = 100;

pub(super) async fn run(
    context: &Context,
    args: &TestArgs,
    stream: &str,
    report: &mut Report,
) -> Result<(), Exit> {
    let key = GroupKey::new(name(stream)?, Name::existing(&args.group)?);
    let store = context.open_store(Access::Existing).await?;
    let role = Role::new(context, &args.trial, &key, args.attempt.max(5))?.with_store(store.clone());
    let builds = Builds::load(&role, &args.component, args.against.as_ref()).await?;
    let limit = args.limit.map_or(LIMIT_DEFAULT, usize::from);
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
    let mut tried = 0;
    loop {
        query.limit = (limit - tried).min(PAGE);
        let page = backend::query(store.as_ref(), &key.stream, &query).await?;
        for event in page.events {
            let (new, call) = role.ask(&builds.new, &event, args.attempt).await;
            let old = match &builds.old {
                Some(old) => Some(role.ask(old, &event, args.attempt).await.0),
                None => None,
            };
            let place = format!("{}/{}  {}", event.partition, event.sequence, event.id);
            // Of real events nothing is expected unless someone says so.
            let unexpected = args.expect.map(|_| args.expectation().differences(&new, &call.lines));
            let unexpected = unexpected.unwrap_or_default();
            report.add(&Tried { place, line: None, event: &event, new, old, call, unexpected })?;
            tried += 1;
        }
        match page.next {
            Some(next) if tried < limit => query.cursor = next,
            _ => return Ok(()),
        }
    }
}
