//! The program's edge: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = wasmill::cli::Cli::parse();
    wasmill::cli::run(cli)
}
