//! Python: componentize-py.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::absolute;
use super::command::{failed, run};
use super::tools::Tools;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::plugin::project::{FOLDER, Project};

/// The file that holds the handler.
const HANDLER: &str = "handler.py";

/// The user's libraries.
const LIBRARIES: &str = "requirements.txt";

/// Runs the compiler without its own script, which names a folder by its full path.
const COMPILER: &str = "import sys; from componentize_py import script; sys.exit(script())";

/// The Python inside the component.
const GUEST_VERSION: &str = "3.14";

pub(super) fn build(project: &Project, tools: &Tools) -> Result<Vec<u8>, Exit> {
    let dir = absolute(&project.dir)?;
    if !dir.join(HANDLER).exists() {
        return Err(failed(&format!("{}: the handler {HANDLER} is missing", project.dir.display())));
    }
    let python = tools.python("componentize-py", &dir.join("wasmill/requirements.txt"))?.join("python");
    let packages = dir.join(FOLDER).join("packages");
    libraries(&python, &dir, &packages)?;
    let sdk = copy_sdk(&dir)?;
    let out = project.scratch("component.wasm")?;
    let mut command = Command::new(python);
    command.current_dir(&dir).args(["-c", COMPILER, "--quiet", "--wit-path", "wit", "--world", "handler"]);
    command.args(["componentize", "--python-path"]).arg(sdk).args(["--python-path", ".", "--output"]);
    command.arg(&out).arg("wasmill.component");
    // Else it takes in what the machine's own Python has installed.
    command.env("VIRTUAL_ENV", packages).env("RUST_BACKTRACE", "0");
    run("making a component of the Python code", &mut command)?;
    Ok(std::fs::read(out)?)
}

/// Installs the user's libraries, where their list has changed since.
fn libraries(python: &Path, dir: &Path, packages: &Path) -> Result<(), Exit> {
    let wanted = match std::fs::read_to_string(dir.join(LIBRARIES)) {
        Ok(wanted) => wanted,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(&format!("{LIBRARIES}: {error}"))),
    };
    let installed = packages.join(LIBRARIES);
    if std::fs::read_to_string(&installed).is_ok_and(|was| was == wanted) {
        return Ok(());
    }
    match std::fs::remove_dir_all(packages) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let site = packages.join("lib/site-packages");
    std::fs::create_dir_all(&site)?;
    if wanted.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
        output::note("installing what requirements.txt names (once)");
        let mut command = Command::new(python);
        command.current_dir(dir).args(["-m", "pip", "install", "--quiet", "--no-compile"]);
        command.args(["--disable-pip-version-check", "--no-input", "--only-binary", ":all:"]);
        command.args(["--platform", "any", "--implementation", "py", "--abi", "none"]);
        command.args(["--python-version", GUEST_VERSION, "--target"]).arg(&site);
        run("installing libraries from PyPI", command.args(["--requirement", LIBRARIES])).map_err(|exit| {
            exit.context("only packages of pure Python can be part of a component; \"No matching distribution\" often means that one is not")
        })?;
    }
    Ok(std::fs::write(installed, wanted)?)
}

/// A copy of the SDK: no link leads out of the folders that the compiler sees.
fn copy_sdk(dir: &Path) -> Result<PathBuf, Exit> {
    let sdk = dir.join(FOLDER).join("sdk");
    match std::fs::remove_dir_all(&sdk) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => std::fs::create_dir_all(sdk.join("wasmill"))?,
    }
    for entry in std::fs::read_dir(dir.join("wasmill"))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|e| e == "py")) {
            std::fs::copy(&path, sdk.join("wasmill").join(name))?;
        }
    }
    Ok(sdk)
}
