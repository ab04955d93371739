//! Rust: cargo, for whichever WebAssembly target the compiler has a standard library for.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::command::{ask, failed, run_shown};
use crate::cli::exit::Exit;
use crate::cli::plugin::project::Project;

/// Names a compiler with a library for WebAssembly, where the one on the PATH has none.
const COMPILER: &str = "WASMILL_RUSTC";

/// The targets that a component can be made from, the better one first.
const TARGETS: [&str; 2] = ["wasm32-wasip2", "wasm32-unknown-unknown"];

pub(super) fn build(project: &Project) -> Result<Vec<u8>, Exit> {
    let (compiler, target) = find_target(&project.dir)?;
    let mut command = Command::new("cargo");
    command.current_dir(&project.dir).args(["build", "--release", "--target", target]);
    command.arg("--message-format=json-render-diagnostics");
    for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(flags);
    }
    if let Some(compiler) = compiler {
        command.env("RUSTC", compiler);
        if let Some(linker) = linker(&project.dir).filter(|_| target == TARGETS[1]) {
            command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        }
    }
    // cargo tells of its progress on stderr: the first build takes a minute.
    let said = run_shown("compiling", &mut command)?;
    let path = artifact(&said).ok_or_else(|| {
        failed("cargo made no .wasm file: `crate-type = [\"cdylib\"]` is missing below [lib] in Cargo.toml")
    })?;
    std::fs::read(&path).map_err(|error| failed(&format!("{}: {error}", path.display())))
}

/// The compiler to name to cargo, where it is not its own, and the target.
fn find_target(dir: &Path) -> Result<(Option<PathBuf>, &'static str), Exit> {
    if ask(Command::new("cargo").arg("--version")).is_none() {
        return Err(failed("cargo is missing: install Rust (https://rustup.rs)"));
    }
    if let Some(target) = target_of(Path::new("rustc"), dir) {
        return Ok((None, target));
    }
    let Some(compiler) = std::env::var_os(COMPILER).filter(|compiler| !compiler.is_empty()) else {
        return Err(failed(&format!(
            "Rust has no library for WebAssembly here: rustup target add {} ({COMPILER} names a compiler that has one)",
            TARGETS[0]
        )));
    };
    let compiler = PathBuf::from(compiler);
    match target_of(&compiler, dir) {
        Some(target) => Ok((Some(compiler), target)),
        None => Err(failed(&format!("{COMPILER}: {} has no library for WebAssembly", compiler.display()))),
    }
}

/// Asked in the project's folder, which may name a toolchain of its own.
fn target_of(compiler: &Path, dir: &Path) -> Option<&'static str> {
    let sysroot = ask(Command::new(compiler).current_dir(dir).args(["--print", "sysroot"]))?;
    let libraries = Path::new(&sysroot).join("lib/rustlib");
    TARGETS.into_iter().find(|target| libraries.join(target).join("lib").is_dir())
}

/// A compiler that is not rustup's may have no linker: rustup's own does for it.
fn linker(dir: &Path) -> Option<PathBuf> {
    let rustc = |print: &str| ask(Command::new("rustc").current_dir(dir).args(["--print", print]));
    let tools = Path::new(&rustc("sysroot")?).join("lib/rustlib").join(rustc("host-tuple")?).join("bin");
    Some(tools.join("rust-lld")).filter(|linker| linker.exists())
}

/// What cargo says of a file that it made.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

/// The module among the files that cargo made.
fn artifact(said: &[u8]) -> Option<PathBuf> {
    let lines = said.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice::<Message>(line).ok());
    let mut files = messages.flat_map(|message| message.filenames);
    files.rfind(|file| file.extension().is_some_and(|extension| extension == "wasm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_in_what_cargo_says() {
        let said = br#"{"reason":"compiler-artifact","filenames":["/a/libx.rlib"]}
not json
{"reason":"compiler-artifact","filenames":["/a/x.wasm"]}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(artifact(said), Some("/a/x.wasm".into()));
        assert_eq!(artifact(b""), None);
    }
}
