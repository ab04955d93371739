//! `wasmill plugin build`: runs a language's own toolchain, and ends with a component that is known to fit.

use std::path::{Path, PathBuf};

use clap::Args;

use self::command::failed;
use self::tools::Tools;
use super::project::{Language, Project};
use crate::cli::context::{Context, plugin_host};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::engine::{Mark, Watch};
use crate::plugin::{Host, Inspection};

mod c;
mod command;
mod component;
mod go;
mod js;
mod python;
mod rust;
mod sources;
mod tools;

#[derive(Debug, Args)]
pub(in crate::cli) struct BuildArgs {
    /// The project's folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Build again whenever a source changes
    #[arg(long)]
    watch: bool,
}

pub(super) async fn run(context: &Context, args: &BuildArgs) -> Result<(), Exit> {
    let host = plugin_host()?;
    if !args.watch {
        return build(context, &host, &args.dir).await;
    }
    let mut watch = Watch::new();
    loop {
        if let Err(exit) = build(context, &host, &args.dir).await {
            // A mistake in the sources is what the next change mends.
            exit.report();
        }
        let files = sources::of(&args.dir).into_iter().map(|file| (file.clone(), Mark::of(&file)));
        watch.set_files(files.collect());
        output::note("waiting for changes");
        watch.changed().await;
    }
}

async fn build(context: &Context, host: &std::sync::Arc<Host>, dir: &Path) -> Result<(), Exit> {
    let project = Project::open(dir)?;
    let tools = Tools::of(dir);
    let made = match project.language {
        Language::Rust => rust::build(&project)?,
        Language::Python => python::build(&project, &tools)?,
        Language::Js => js::build(&project, &tools)?,
        Language::Go => go::build(&project, &tools)?,
        Language::C => c::build(&project, &tools)?,
    };
    let made = component::component(made, &dir.join("wit"))?;
    let target = project.component();
    // A running host may have the old one open: it is replaced whole, and only by one that fits.
    let part = dir.join(format!(".{}.wasm.part", project.name));
    std::fs::write(&part, made)?;
    let inspection = host.inspect(&part).await;
    let inspection = inspection.map_err(|error| Exit::Failed(error.into())).and_then(accepted);
    let inspection = match inspection {
        Ok(inspection) => inspection,
        Err(exit) => {
            let _ = std::fs::remove_file(&part);
            return Err(exit);
        }
    };
    std::fs::rename(&part, &target)?;
    show(context, &target, &inspection)
}

fn accepted(inspection: Inspection) -> Result<Inspection, Exit> {
    match &inspection.refusal {
        None => Ok(inspection),
        Some(why) => Err(failed(&format!("what the toolchain made cannot be a plugin: {why}"))),
    }
}

fn show(context: &Context, target: &Path, inspection: &Inspection) -> Result<(), Exit> {
    if context.json() {
        return output::json_line(&serde_json::json!({
            "component": target, "bytes": inspection.bytes, "digest": inspection.digest,
            "imports": inspection.imports,
        }));
    }
    let imports = output::count(inspection.imports.len() as u64, "import");
    output::line(&format!(
        "{}  {} KiB  {imports}  sha256 {}",
        target.display(),
        inspection.bytes.div_ceil(1024),
        inspection.digest
    ))
}

/// The project's folder as an absolute path, for programs that work in another one.
fn absolute(dir: &Path) -> Result<PathBuf, Exit> {
    dir.canonicalize().map_err(|error| failed(&format!("{}: {error}", dir.display())))
}
