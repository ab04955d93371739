//! `wasmill plugin`: from a new project to a component that is tested.

use clap::Subcommand;

mod build;
mod inspect;
mod new;
mod project;
mod template;
mod test;

use super::context::Context;
use super::exit::Exit;

#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Make a project for a handler: it builds, and passes its own test
    New(new::NewArgs),
    /// Build a project's component with its language's own toolchain
    Build(build::BuildArgs),
    /// Show what a component imports and exports, and whether it can be a plugin
    Inspect(inspect::InspectArgs),
    /// Call a component with events of a file or a stream, and show its answers: nothing is committed or
    /// settled
    Test(Box<test::TestArgs>),
}

pub(super) async fn run(context: &Context, command: PluginCommand) -> Result<(), Exit> {
    match command {
        PluginCommand::New(args) => new::run(context, &args),
        PluginCommand::Build(args) => build::run(context, &args).await,
        PluginCommand::Inspect(args) => inspect::run(context, &args).await,
        PluginCommand::Test(args) => test::run(context, *args).await,
    }
}
