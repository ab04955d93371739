//! `wasmill dead-letter list`.

use std::num::NonZeroUsize;

use clap::Args;

use super::select::SelectArgs;
use super::show::to_json;
use super::{PAGE, event_id};
use crate::backend::{Backend, DeadLetter};
use crate::cli::context::{Context, group_key};
use crate::cli::exit::Exit;
use crate::cli::output;

#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// At most so many
    #[arg(long, default_value = "100", value_name = "N")]
    limit: NonZeroUsize,
    /// Go on after this row
    #[arg(long, value_name = "ROW")]
    after: Option<String>,
    #[command(flatten)]
    select: SelectArgs,
}

pub(super) async fn run(context: &Context, backend: &dyn Backend, args: &ListArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let selection = args.select.selection(jiff::Timestamp::now())?;
    let (mut cursor, mut rows) = (args.after.clone(), Vec::new());
    let (mut shown, mut last_shown, mut more) = (0, None, false);
    while !more {
        let page = backend.dead_letters(&key, cursor.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        cursor = Some(last.row.clone());
        for letter in page.iter().filter(|letter| selection.matches(letter)) {
            more = shown == args.limit.get();
            if more {
                break;
            }
            shown += 1;
            last_shown = Some(letter.row.clone());
            if context.json() {
                output::json_line(&to_json(letter))?;
            } else {
                rows.push(row(letter));
            }
        }
    }
    if !context.json() {
        output::table(["row", "event", ">attempts", "cause", "failure", "when", "reason"], &rows)?;
    }
    if let Some(after) = last_shown.filter(|_| more) {
        output::note(&format!("shown are {shown}; `--after {after}` goes on"));
    }
    Ok(())
}

fn row(letter: &DeadLetter) -> [String; 7] {
    [
        letter.row.clone(),
        event_id(letter).unwrap_or_default().to_owned(),
        letter.attempts.map(|n| n.to_string()).unwrap_or_default(),
        letter.cause.map(|cause| cause.to_string()).unwrap_or_default(),
        letter.failure.map(|failure| failure.as_str().to_owned()).unwrap_or_default(),
        letter.dead_lettered_at.clone().unwrap_or_default(),
        letter.reason.lines().next().unwrap_or_default().to_owned(),
    ]
}
