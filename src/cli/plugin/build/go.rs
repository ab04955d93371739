//! Go: the standard compiler, whose WASI module is made a component.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::absolute;
use super::command::{ask, failed, run};
use super::tools::{Tools, parse};
use crate::cli::exit::Exit;
use crate::cli::plugin::project::Project;

/// Names a `go` command, where it is not the one on the PATH.
const GO: &str = "WASMILL_GO";

/// The oldest Go that exports functions as the SDK does.
const GO_MIN: (u32, u32) = (1, 24);

pub(super) fn build(project: &Project, tools: &Tools) -> Result<Vec<u8>, Exit> {
    let dir = absolute(&project.dir)?;
    let go = find(tools, &dir)?;
    let module = project.scratch("module.wasm")?;
    let mut command = Command::new(go);
    command.current_dir(&dir).env_remove("GOFLAGS").env("GOOS", "wasip1").env("GOARCH", "wasm");
    command.env("GOWORK", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    command.args(["build", "-buildmode=c-shared", "-trimpath", "-ldflags=-checklinkname=0 -w", "-o"]);
    run("compiling", command.arg(&module).arg("."))?;
    Ok(std::fs::read(module)?)
}

fn find(tools: &Tools, dir: &Path) -> Result<PathBuf, Exit> {
    let (major, minor) = GO_MIN;
    let version = |go: &Path| parse(&ask(Command::new(go).args(["env", "GOVERSION"]))?);
    if let Some(named) = std::env::var_os(GO).filter(|named| !named.is_empty()) {
        let go = PathBuf::from(named);
        return match version(&go) {
            Some(found) if found >= GO_MIN => Ok(go),
            _ => Err(failed(&format!("{GO}: {} is no Go from {major}.{minor} on", go.display()))),
        };
    }
    let go = PathBuf::from("go");
    if version(&go).is_some_and(|found| found >= GO_MIN) {
        return Ok(go);
    }
    let bin = tools.python("Go", &dir.join("wasmill/requirements.txt"))?;
    Ok(bin.join("go"))
}
