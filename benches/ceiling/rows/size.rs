//! The size of the program.

use std::path::Path;
use std::process::Command;

use crate::line::{self, Budget};

pub(crate) fn run() {
    let built = Path::new(env!("CARGO_BIN_EXE_wasmill"));
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("wasmill");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(built).status();
    assert!(strip.expect("strip, of the binutils, is on the PATH").success());
    for (what, path) in [("as built", built), ("stripped", stripped.as_path())] {
        let bytes = std::fs::metadata(path).unwrap().len();
        line::figure(&format!("program, {what}"), "MiB", bytes as f64 / 1024.0 / 1024.0, Budget::None);
    }
}
