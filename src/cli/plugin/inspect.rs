//! `wasmill plugin inspect`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::context::{Context, plugin_host};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::plugin::{Inspection, grant_of};

#[derive(Debug, Args)]
pub(in crate::cli) struct InspectArgs {
    /// The component, a `.wasm` file
    component: PathBuf,
}

pub(super) async fn run(context: &Context, args: &InspectArgs) -> Result<(), Exit> {
    let component = &args.component;
    std::fs::File::open(component)
        .map_err(|error| Exit::usage(format!("{}: {error}", component.display())))?;
    let inspection = plugin_host()?.inspect(component).await;
    let inspection = inspection.map_err(|error| Exit::Usage(error.into()))?;
    if context.json() {
        output::json_line(&inspection)?;
    } else {
        show(component, &inspection)?;
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
    let world = inspection.contract.as_ref().map(|version| format!("wasmill:handler/handler@{version}"));
    row("world", world.as_deref().unwrap_or("none that is known"))?;
    for import in &inspection.imports {
        match grant_of(import) {
            Some(grant) => row("import", &format!("{import}  ({grant})"))?,
            None => row("import", import)?,
        }
    }
    inspection.needs.iter().try_for_each(|need| row("needs", &need.to_string()))?;
    inspection.exports.iter().try_for_each(|export| row("export", export))?;
    for producer in &inspection.producers {
        row("producer", &format!("{}: {} {}", producer.field, producer.name, producer.version))?;
    }
    row(
        "verdict",
        &inspection.refusal.as_ref().map_or("can be loaded".to_owned(), |why| format!("refused: {why}")),
    )
}
