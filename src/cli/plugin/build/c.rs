//! C: any clang that has WASI, else `zig cc`; the module is made a component.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::absolute;
use super::command::{ask, failed, run};
use super::tools::{self, Tools};
use crate::cli::exit::Exit;
use crate::cli::plugin::project::Project;

/// Names a clang that has a library for WASI; further words are its first arguments, such as a `--target`
/// of its own.
const COMPILER: &str = "WASMILL_CC";

/// Names the folder of a wasi-sdk, as other tools do.
const SDK: &str = "WASI_SDK_PATH";

pub(super) fn build(project: &Project, tools: &Tools) -> Result<Vec<u8>, Exit> {
    let dir = absolute(&project.dir)?;
    let module = project.scratch("module.wasm")?;
    let sources = sources(&dir)?;
    let mut command = compiler(tools, &dir)?;
    command.current_dir(&dir).args([
        "-mexec-model=reactor",
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Iwasmill",
    ]);
    command.arg("-Wl,-z,stack-size=1048576");
    run("compiling", command.args(sources).arg("-o").arg(&module))?;
    Ok(std::fs::read(module)?)
}

/// All C files of the project and of the SDK.
fn sources(dir: &Path) -> Result<Vec<PathBuf>, Exit> {
    let mut found = Vec::new();
    for folder in ["", "wasmill"] {
        for entry in std::fs::read_dir(dir.join(folder))? {
            let name = PathBuf::from(folder).join(entry?.file_name());
            if name.extension().is_some_and(|extension| extension == "c") {
                found.push(name);
            }
        }
    }
    found.sort();
    if found.iter().all(|file| file.parent() == Some(Path::new("wasmill"))) {
        return Err(failed("the handler handler.c is missing"));
    }
    Ok(found)
}

fn compiler(tools: &Tools, dir: &Path) -> Result<Command, Exit> {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let sdk = named(SDK).map(|sdk| format!("{}/bin/clang", sdk.trim_end_matches('/')));
    if let Some(compiler) = named(COMPILER).or(sdk) {
        let mut words = compiler.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        if !compiler.contains("-target") {
            command.arg("--target=wasm32-wasip1");
        }
        // A stack that overflows is to fault, and not to run over the data.
        command.args(words).arg("-Wl,--stack-first");
        return Ok(command);
    }
    let mut command = if ask(Command::new("zig").arg("version")).is_some() {
        Command::new("zig")
    } else {
        let env = tools.python("Zig", &dir.join("wasmill/requirements.txt"))?;
        Command::new(tools::package(&env, "ziglang")?.join("zig"))
    };
    command.args(["cc", "-target", "wasm32-wasi"]);
    Ok(command)
}
