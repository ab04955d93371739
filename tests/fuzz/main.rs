//! Fuzzing without a fuzzer: the targets of `fuzz/`, over the kept corpus and over mutations of it.
//!
//! A run of mutations prints its seed, and what it fails on; `WASMILL_FUZZ_SEED` repeats it, and
//! `WASMILL_FUZZ_CASES` makes it longer. How many cases are tried does not depend on the machine.

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod large;
mod mutate;
mod record;
#[path = "../support/redis.rs"]
mod server;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// A target by name.
type Target = fn(&[u8]);

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// The files of a folder, in the order of their names.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Runs a target; where it fails, says on what.
fn run(target: Target, what: &str, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        eprintln!("{what} fails on these {} bytes: {}", input.len(), input.escape_ascii());
        resume_unwind(panic);
    }
}

/// Runs a target over its corpus and `more`, then over `cases` mutations of them.
fn over(name: &str, target: Target, more: Vec<(String, Vec<u8>)>, cases: usize) {
    let mut corpus = files(&folder(name));
    corpus.extend(more);
    assert!(!corpus.is_empty(), "the corpus of {name} is empty");
    for (file, input) in &corpus {
        run(target, file, input);
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("WASMILL_FUZZ_SEED").unwrap_or_else(rand::random);
    let cases = number("WASMILL_FUZZ_CASES").map_or(cases, |cases| usize::try_from(cases).unwrap());
    println!("{name}: {cases} cases from WASMILL_FUZZ_SEED={seed}");
    let inputs: Vec<Vec<u8>> = corpus.into_iter().map(|(_, input)| input).collect();
    let mut random = StdRng::seed_from_u64(seed);
    for case in 0..cases {
        let first = random.random_range(0..inputs.len());
        let second = random.random_range(0..inputs.len());
        let input = mutate::mutate(&inputs[first], &inputs[second], &mut random);
        run(target, &format!("case {case} of WASMILL_FUZZ_SEED={seed}"), &input);
    }
}

#[test]
fn entries_of_other_writers() {
    over("entry", targets::entry, Vec::new(), 20_000);
}

#[test]
fn pipeline_files() {
    let mut more = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config"));
    more.retain(|(file, _)| file.ends_with(".toml"));
    over("config", targets::config, more, 5_000);
}

#[test]
fn lines_of_append() {
    over("line", targets::line, Vec::new(), 20_000);
}

#[test]
fn replies_of_any_server() {
    over("reply", targets::reply, Vec::new(), 3_000);
}

/// Each reply to each operation, also to those that it was not meant for.
#[test]
fn replies_to_another_question() {
    for (file, input) in files(&folder("reply")) {
        for n in 0..targets::OPERATIONS.len() {
            let mut input = input.clone();
            input[0] = b'A' + u8::try_from(n).unwrap();
            run(targets::reply, &file, &input);
        }
    }
}

#[test]
fn components() {
    over("component", targets::component, Vec::new(), 300);
}

#[test]
fn answers_of_guests() {
    over("answer", targets::answer, Vec::new(), 5_000);
}
