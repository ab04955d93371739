//! `wasmill plugin`.

use std::path::{Path, PathBuf};

use clap::Subcommand;

mod test;

use super::context::{Context, plugin_host};
use super::exit::Exit;
use super::output;
use crate::plugin::Inspection;

#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Show what a component imports and exports, and whether it can be a plugin
    Inspect {
        /// The component, a `.wasm` file
        component: PathBuf,
    },
    /// Call a component with events of a stream, and show its answers: nothing is committed or settled
    Test(Box<test::TestArgs>),
}

pub(super) async fn run(context: &Context, command: PluginCommand) -> Result<(), Exit> {
    let component = match command {
        PluginCommand::Inspect { component } => component,
        PluginCommand::Test(args) => return test::run(context, *args).await,
    };
    std::fs::File::open(&component)
        .map_err(|error| Exit::usage(format!("{}: {error}", component.display())))?;
    let inspection = plugin_host()?.inspect(&component).await;
    let inspection = inspection.map_err(|error| Exit::Usage(error.into()))?;
    if context.json() {
        output::json_line(&inspection)?;
    } else {
        show(&component, &inspection)?;
    }
    match inspection.refusal {
        None => Ok(()),
        Some(_) => Err(Exit::usage(format!("{} cannot be loaded", component.display()))),
    }
}

fn show(component: &Path, inspection: &Inspection) -> Result<(), Exit> {
    let row = |name: &str, text: &str| output::line(&format!("{name:<9} {}", output::printable(text)));
    row("file", &component.display().to_string())?;
    row("digest", &format!("sha256 {}", inspection.digest))?;
    row("size", &format!("{} bytes", inspection.bytes))?;
    row("contract", inspection.contract.as_deref().unwrap_or("none"))?;
    inspection.imports.iter().try_for_each(|import| row("import", import))?;
    inspection.needs.iter().try_for_each(|need| row("needs", &need.to_string()))?;
    inspection.exports.iter().try_for_each(|export| row("export", export))?;
    row(
        "verdict",
        &inspection.refusal.as_ref().map_or("can be loaded".to_owned(), |why| format!("refused: {why}")),
    )
}
