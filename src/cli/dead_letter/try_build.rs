//! `wasmill dead-letter try`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::PAGE;
use super::select::SelectArgs;
use crate::backend::{DeadEvent, DeadLetter, Shared};
use crate::cli::context::{Context, group_key};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::trial::{Answer, Builds, Role, TrialArgs};

#[derive(Debug, Args)]
pub(in crate::cli) struct TryArgs {
    /// The stream
    stream: String,
    /// The group
    group: String,
    /// The build to try, a `.wasm` file
    #[arg(long, value_name = "NEW.wasm")]
    plugin: PathBuf,
    /// Try this build too, and show where the two differ
    #[arg(long, value_name = "OLD.wasm")]
    against: Option<PathBuf>,
    /// At most so many dead letters
    #[arg(long, default_value = "100", value_name = "N")]
    limit: NonZeroUsize,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    trial: TrialArgs,
}

/// One dead letter, and what came of it.
struct Tried {
    letter: DeadLetter,
    /// None for one that holds no event.
    new: Option<Answer>,
    old: Option<Answer>,
}

pub(super) async fn run(context: &Context, store: &Shared, args: &TryArgs) -> Result<(), Exit> {
    let key = group_key(&args.stream, &args.group)?;
    let selection = args.select.selection(jiff::Timestamp::now())?;
    let max_attempts = store.group_info(&key).await?.max_attempts;
    let role = Role::new(context, &args.trial, &key, max_attempts)?.with_store(store.clone());
    let builds = Builds::load(&role, &args.plugin, args.against.as_ref()).await?;
    let (mut cursor, mut tried) = (None, Vec::new());
    while tried.len() < args.limit.get() {
        let page = store.dead_letters(&key, cursor.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        cursor = Some(last.row.clone());
        for letter in page.into_iter().filter(|letter| selection.matches(letter)) {
            if tried.len() == args.limit.get() {
                break;
            }
            // As a redrive would deliver it: with its attempts afresh.
            let (mut new, mut old) = (None, None);
            if let DeadEvent::Event(event) = &letter.event {
                new = Some(role.ask(&builds.new, event, 1).await.0);
                if let Some(build) = &builds.old {
                    old = Some(role.ask(build, event, 1).await.0);
                }
            }
            tried.push(Tried { letter, new, old });
        }
    }
    show(context, &tried, builds.old.is_some())
}

fn show(context: &Context, tried: &[Tried], compared: bool) -> Result<(), Exit> {
    if context.json() {
        return tried.iter().try_for_each(|tried| {
            let mut line = serde_json::json!({
                "row": tried.letter.row, "event": super::event_id(&tried.letter),
                "cause": tried.letter.cause, "reason": tried.letter.reason, "answer": tried.new,
            });
            if compared {
                line["against"] = serde_json::to_value(&tried.old).map_err(anyhow::Error::from)?;
                line["differs"] = (tried.old != tried.new).into();
            }
            output::json_line(&line)
        });
    }
    let brief = |answer: &Option<Answer>| answer.as_ref().map_or("no event".to_owned(), Answer::brief);
    let rows: Vec<_> = tried
        .iter()
        .map(|tried| {
            let cause = tried.letter.cause.map(|cause| cause.to_string()).unwrap_or_default();
            let reason = tried.letter.reason.lines().next().unwrap_or_default();
            let was = if compared { brief(&tried.old) } else { format!("{cause}: {reason}") };
            let event = super::event_id(&tried.letter).unwrap_or_default().to_owned();
            [tried.letter.row.clone(), event, was, brief(&tried.new)]
        })
        .collect();
    output::table(["row", "event", if compared { "against" } else { "died of" }, "this build"], &rows)?;
    let acked = tried.iter().filter(|tried| tried.new.as_ref().is_some_and(|new| new.verdict == "ack"));
    output::note(&format!(
        "{} of {} would be acked; nothing was committed or redriven",
        acked.count(),
        output::count(tried.len() as u64, "dead letter")
    ));
    Ok(())
}
