//! `wasmill dead-letter redrive` and `purge`.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;

use clap::Args;
use indicatif::ProgressBar;

use super::select::{SelectArgs, Selection};
use super::{PAGE, event_id};
use crate::backend::{Backend, DeadLetter, Error, REDRIVE_BATCH_MAX};
use crate::cli::confirm::confirmed;
use crate::cli::context::{Context, group_key};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::redriven::Tally;
use crate::event::GroupKey;

#[derive(Debug, Args)]
pub(in crate::cli) struct ActArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// Rows, as `dead-letter list` shows them
    #[arg(value_name = "ROW", conflicts_with = "all")]
    rows: Vec<String>,
    /// All dead letters of the event with this id (repeatable)
    #[arg(long, value_name = "ID", conflicts_with = "all", allow_hyphen_values = true)]
    event: Vec<String>,
    /// All dead letters of the group
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    select: SelectArgs,
    /// Do it; without this, only say what would be touched
    #[arg(long)]
    yes: bool,
}

/// The dead letters that were asked for.
struct Wanted {
    rows: BTreeSet<String>,
    events: BTreeSet<String>,
    selection: Selection,
}

impl Wanted {
    fn new(args: &ActArgs) -> Result<Self, Exit> {
        let named = !args.rows.is_empty() || !args.event.is_empty();
        if !named && !args.all && args.select.is_empty() {
            return Err(Exit::usage("say which dead letters: rows, --event, --all, or conditions"));
        }
        Ok(Self {
            rows: args.rows.iter().cloned().collect(),
            events: args.event.iter().cloned().collect(),
            selection: args.select.selection(jiff::Timestamp::now())?,
        })
    }

    fn matches(&self, letter: &DeadLetter) -> bool {
        let named = self.rows.is_empty() && self.events.is_empty()
            || self.rows.contains(&letter.row)
            || event_id(letter).is_some_and(|id| self.events.contains(id));
        named && self.selection.matches(letter)
    }

    /// The rows beyond which nothing can match any more.
    fn only_rows(&self) -> Option<usize> {
        (self.events.is_empty() && !self.rows.is_empty()).then_some(self.rows.len())
    }
}

/// A way through a group's dead letters, oldest first, page by page.
struct Walk<'a> {
    backend: &'a dyn Backend,
    key: &'a GroupKey,
    after: Option<String>,
}

impl<'a> Walk<'a> {
    fn new(backend: &'a dyn Backend, key: &'a GroupKey) -> Self {
        Self { backend, key, after: None }
    }

    /// The next page; empty at the end.
    async fn next(&mut self) -> Result<Vec<DeadLetter>, Exit> {
        let page = self.backend.dead_letters(self.key, self.after.as_deref(), PAGE).await?;
        if let Some(last) = page.last() {
            self.after = Some(last.row.clone());
        }
        Ok(page)
    }
}

/// Counts what matches, and makes sure that everything that was named is there.
async fn count(backend: &dyn Backend, key: &GroupKey, wanted: &Wanted) -> Result<u64, Exit> {
    let mut missing: BTreeSet<&str> = wanted.rows.iter().chain(&wanted.events).map(String::as_str).collect();
    let (mut walk, mut found) = (Walk::new(backend, key), 0);
    loop {
        let page = walk.next().await?;
        if page.is_empty() || wanted.only_rows().is_some() && missing.is_empty() {
            break;
        }
        for letter in &page {
            missing.remove(letter.row.as_str());
            event_id(letter).map(|id| missing.remove(id));
            found += u64::from(wanted.matches(letter));
        }
    }
    match missing.first() {
        Some(row) => Err(Error::DeadLetterNotFound { group: key.clone(), row: (*row).to_owned() }.into()),
        None => Ok(found),
    }
}

/// What is done to a batch of rows.
#[derive(Clone, Copy)]
enum Act {
    Redrive,
    Purge,
}

pub(super) async fn redrive(context: &Context, backend: &dyn Backend, args: &ActArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let wanted = Wanted::new(args)?;
    let found = count(backend, &key, &wanted).await?;
    let letters = output::count(found, "dead letter");
    confirmed(args.yes, format!("this delivers the events of {letters} to the group `{}` again", key.group))?;
    let (tally, _) = act(backend, &key, &wanted, found, Act::Redrive).await?;
    if context.json() {
        return output::json_line(
            &serde_json::json!({ "stream": key.stream, "group": key.group, "events": tally }),
        );
    }
    output::line(&tally.said())
}

pub(super) async fn purge(context: &Context, backend: &dyn Backend, args: &ActArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let wanted = Wanted::new(args)?;
    let found = count(backend, &key, &wanted).await?;
    let letters = output::count(found, "dead letter");
    confirmed(args.yes, format!("this removes {letters} of the group `{}` for good", key.group))?;
    let (_, purged) = act(backend, &key, &wanted, found, Act::Purge).await?;
    if context.json() {
        return output::json_line(
            &serde_json::json!({ "stream": key.stream, "group": key.group, "purged": purged }),
        );
    }
    output::line(&format!("removed {} of the group `{}`", output::count(purged, "dead letter"), key.group))
}

/// Acts on what matches, batch by batch: on no more than was counted, so that an event that dies again
/// meanwhile does not make this go on for ever.
async fn act(
    backend: &dyn Backend,
    key: &GroupKey,
    wanted: &Wanted,
    counted: u64,
    act: Act,
) -> Result<(Tally, u64), Exit> {
    let progress =
        if std::io::stderr().is_terminal() { ProgressBar::new(counted) } else { ProgressBar::hidden() };
    let (mut walk, mut left) = (Walk::new(backend, key), counted);
    let (mut tally, mut purged) = (Tally::default(), 0);
    while left > 0 {
        let page = walk.next().await?;
        if page.is_empty() {
            break;
        }
        let matching = page.iter().filter(|letter| wanted.matches(letter)).map(|letter| letter.row.clone());
        let rows: Vec<String> = matching.take(usize::try_from(left).unwrap_or(usize::MAX)).collect();
        for batch in rows.chunks(REDRIVE_BATCH_MAX) {
            match act {
                Act::Redrive => tally.add(&backend.redrive(key, batch).await?),
                Act::Purge => purged += backend.purge(key, batch).await?,
            }
            progress.inc(batch.len() as u64);
        }
        left -= rows.len() as u64;
    }
    progress.finish_and_clear();
    Ok((tally, purged))
}
