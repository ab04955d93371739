//! What the engine costs, held against what could at best be had: each row of the budget with its floor
//! or its peer in one run, in alternating rounds. `cargo bench --bench ceiling -- ROW...` prints the rows
//! named, without a name all of them; docs/performance.md explains them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

mod bare;
mod bare_sqlite;
mod embedded;
mod floor;
mod ground;
mod line;
mod own;
mod peers;
mod process;
mod rig;
mod rows;
mod sides;
#[path = "../../tests/support/mod.rs"]
mod support;

fn main() {
    // Cargo adds flags of its own, such as `--bench`.
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let known = || rows::ALL.iter().chain(rows::BY_NAME);
    if let Some(unknown) = named.iter().find(|name| known().all(|(row, _)| row != name)) {
        let known: Vec<&str> = known().map(|(row, _)| *row).collect();
        eprintln!("there is no row `{unknown}`; there are {}", known.join(", "));
        std::process::exit(2);
    }
    if named.is_empty() {
        rows::ALL.iter().for_each(|(_, run)| run());
    } else {
        known().filter(|(row, _)| named.iter().any(|name| name == row)).for_each(|(_, run)| run());
    }
}
