//! `wasmill plugin new`: a project that builds, and passes its own test.

use std::path::{Path, PathBuf};

use clap::Args;

use super::project::{Language, MANIFEST, check_name};
use super::template;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::output;

#[derive(Debug, Args)]
pub(in crate::cli) struct NewArgs {
    /// The plugin's name: small letters, digits and `-`
    name: String,
    /// The language that its handler is written in
    #[arg(long, value_enum)]
    lang: Language,
    /// Where its folder is made [default: the name, in the working directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(context: &Context, args: &NewArgs) -> Result<(), Exit> {
    check_name(&args.name).map_err(Exit::usage)?;
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    make_folder(&dir)?;
    let manifest = format!("name = \"{}\"\nlanguage = \"{}\"\n", args.name, args.lang.as_str());
    write(&dir.join(MANIFEST), &manifest)?;
    let mut paths = vec![MANIFEST.to_owned()];
    for file in template::files(args.lang) {
        let text =
            file.text.replace("{{name}}", &args.name).replace("{{name_snake}}", &args.name.replace('-', "_"));
        write(&dir.join(file.path), &text)?;
        paths.push(file.path.to_owned());
    }
    if context.json() {
        return output::json_line(&serde_json::json!({ "project": dir, "files": paths }));
    }
    let shown = dir.display();
    output::line(&format!("{shown}: a {} handler in {} files", args.lang, paths.len()))?;
    output::note(&format!(
        "next:\n  cd {shown}\n  wasmill plugin build\n  wasmill plugin test {}.wasm --event events.jsonl\nREADME.md there goes on from here.",
        args.name
    ));
    Ok(())
}

/// Makes the project's folder; one that holds something is never touched.
fn make_folder(dir: &Path) -> Result<(), Exit> {
    let failed = |error: std::io::Error| Exit::Failed(anyhow::anyhow!("{}: {error}", dir.display()));
    match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Exit::usage(format!("{} exists and is not empty: nothing was written", dir.display())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(dir).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Exit> {
    let failed = |error: std::io::Error| Exit::Failed(anyhow::anyhow!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(failed)
}
