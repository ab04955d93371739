//! Runs the programs of a toolchain, and tells what they said where they fail.

use std::process::{Command, Stdio};

use crate::cli::exit::Exit;
use crate::cli::output;

/// Runs a program to its end and gives its stdout. What it writes is shown only if it fails.
///
/// # Errors
/// It cannot be started, or fails: the error names the step and the program.
pub(super) fn run(step: &str, command: &mut Command) -> Result<Vec<u8>, Exit> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(&format!("{step}: `{program}` cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        if !text.trim().is_empty() {
            output::note(text.trim_end());
        }
    }
    Err(failed(&format!("{step}: `{program}` failed ({}); its output is above", output.status)))
}

/// The same for a program that tells of its progress on stderr, which is shown as it comes.
///
/// # Errors
/// As [`run`].
pub(super) fn run_shown(step: &str, command: &mut Command) -> Result<Vec<u8>, Exit> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(&format!("{step}: `{program}` cannot be started: {error}")))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(failed(&format!("{step}: `{program}` failed ({}); its output is above", output.status))),
    }
}

/// The stdout of a program that is asked something about itself; `None` where it is missing or fails.
pub(super) fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A failed build.
pub(super) fn failed(message: &str) -> Exit {
    Exit::Failed(anyhow::anyhow!("{message}"))
}
