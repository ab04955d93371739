//! `wasmill dead-letter`.

use clap::Subcommand;

use super::context::{Access, Context, group_key};
use super::exit::Exit;
use crate::backend::{DeadEvent, DeadLetter};

mod act;
mod list;
mod select;
mod show;
mod try_build;

/// How many rows one call to the store asks for.
const PAGE: usize = 200;

#[derive(Debug, Subcommand)]
pub(super) enum DeadLetterCommand {
    /// List a group's dead letters, oldest first
    List(list::ListArgs),
    /// Show one dead letter with its whole event
    Show {
        /// The stream
        stream: String,
        /// The group
        group: String,
        /// The event's id, or the row's
        id: String,
    },
    /// Deliver the events of dead letters to their group again, with their attempts afresh
    Redrive(act::ActArgs),
    /// Remove dead letters for good
    Purge(act::ActArgs),
    /// Run dead letters through a build of the plugin, and show what would come of them: nothing is
    /// committed or settled
    Try(try_build::TryArgs),
}

pub(super) async fn run(context: &Context, command: DeadLetterCommand) -> Result<(), Exit> {
    let store = context.open_store(Access::Existing).await?;
    let backend = store.as_ref();
    match command {
        DeadLetterCommand::List(args) => list::run(context, backend, &args).await,
        DeadLetterCommand::Show { stream, group, id } => {
            show::run(context, backend, &group_key(&stream, &group)?, &id).await
        }
        DeadLetterCommand::Redrive(args) => act::redrive(context, backend, &args).await,
        DeadLetterCommand::Purge(args) => act::purge(context, backend, &args).await,
        DeadLetterCommand::Try(args) => try_build::run(context, &store, &args).await,
    }
}

fn event_id(letter: &DeadLetter) -> Option<&str> {
    match &letter.event {
        DeadEvent::Event(event) => Some(&event.id),
        DeadEvent::Raw(fields) => fields.iter().find(|(name, _)| name == "id").map(|(_, id)| id.as_str()),
    }
}
