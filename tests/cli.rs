//! The command line as a user sees it: commands and their exact output, in `tests/cli`.
//!
//! `TRYCMD=overwrite` writes the files anew from what the program says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

#[test]
fn commands_answer_as_written() {
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    // The commands leave stores behind: they run in a copy.
    let copy = tempfile::tempdir().unwrap();
    copy_folder(&written, copy.path());
    for case in cases(copy.path()) {
        std::fs::create_dir_all(case.with_extension("in")).unwrap();
    }
    let run = std::panic::catch_unwind(|| {
        // Nothing of the caller's environment is to change an answer.
        let runner = trycmd::TestCases::new();
        runner.env("WASMILL_LOG", "warn").env("NO_COLOR", "1").case(copy.path().join("*.trycmd")).run();
    });
    if std::env::var("TRYCMD").is_ok_and(|mode| mode == "overwrite") {
        for case in cases(copy.path()) {
            std::fs::copy(&case, written.join(case.file_name().unwrap())).unwrap();
        }
    }
    run.unwrap();
}

fn cases(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "trycmd")).collect();
    assert!(!cases.is_empty());
    cases
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}
