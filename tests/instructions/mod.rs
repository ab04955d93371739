//! How many instructions the pure parts of an event's way take. Counted by valgrind and not timed: the same
//! on any machine, however busy. Built as tests are, without optimisation, so they tell of steps that came
//! to do more, and not how fast they are.
//!
//! A workload is a test that [`repeat`]s its work: once when it runs by itself, and here as often as it is
//! told. It belongs to the library's own tests, since some of the parts are private.

use std::process::Command;

mod workloads;

/// How often a workload is to do its work.
const ROUNDS: &str = "WASMILL_WORKLOAD_ROUNDS";

/// Each workload by its test's name, and the instructions that a round was measured to take. A lower figure
/// is a reason to lower it here.
const MEASURED: &[(&str, f64)] = &[
    ("backend::redis::codec::tests::workload_of_an_entry", 16_246.0),
    ("cli::lines::tests::workload_of_an_envelope", 21_097.0),
    ("instructions::workloads::decide_ack", 452.0),
    ("instructions::workloads::decide_retry", 7_870.0),
    ("instructions::workloads::event_to_handler", 15_284.0),
    ("instructions::workloads::partition_of_key", 2_486.0),
];

/// How much more a round may take. Runs differ by less than 0.2 %; the rest is for another processor's
/// versions of libc's functions.
const MARGIN: f64 = 1.05;

/// Does the work of a workload.
pub(crate) fn repeat(mut work: impl FnMut()) {
    let rounds = std::env::var(ROUNDS).map_or(1, |rounds| rounds.parse().unwrap());
    for _ in 0..rounds {
        work();
    }
}

/// All instructions of a process that runs one workload.
fn counted(workload: &str, rounds: u32) -> f64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", workload, "--test-threads=1"]);
    let output = command.env(ROUNDS, rounds.to_string()).output().expect("valgrind is on the PATH");
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{workload}: {said}\n{log}");
    let line = log.lines().find_map(|line| line.split_once("Collected : "));
    line.unwrap_or_else(|| panic!("{workload}: no count in\n{log}")).1.trim().parse().unwrap()
}

#[test]
fn instructions_of_the_pure_parts() {
    let mut over = Vec::new();
    for (workload, measured) in MEASURED {
        let rounds = 1000;
        // A slope: what is done once is not in it.
        let each = (counted(workload, 2 * rounds) - counted(workload, rounds)) / f64::from(rounds);
        assert!(each > 10.0, "{workload}: nothing was counted");
        println!("{workload}: {each:.1}, measured before: {measured}");
        if each > measured * MARGIN {
            over.push(format!("{workload}: {each:.1} instructions a round, where {measured} were measured"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}
