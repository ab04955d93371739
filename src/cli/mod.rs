//! The command line: one file a family of commands.
//!
//! Data goes to stdout (JSON lines with `--json`), everything else to stderr. Exit 0 done, 1
//! failed, 2 wrong usage or configuration, 130 a second signal.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod append;
mod bench;
mod check;
mod confirm;
mod context;
mod dead_letter;
mod exit;
mod filter;
mod group;
mod lines;
mod logs;
mod output;
mod plugin;
mod query;
mod redriven;
mod run;
mod signals;
mod stream;
mod trial;

use context::Context;
use exit::Exit;

/// An event-processing engine that people script with WebAssembly.
#[derive(Debug, Parser)]
#[command(name = "wasmill", version, about, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Pipeline file to take backend and namespace from [default: ./wasmill.toml if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store: sqlite:FILE, memory:, redis://…, rediss://…, redis+unix://… [default: the file's, else sqlite:wasmill.db]
    #[arg(long, global = true, value_name = "URL", env = "WASMILL_BACKEND", hide_env_values = true)]
    backend: Option<String>,
    /// With rediss://: PEM file of the authorities that may have signed the server's certificate [default: the file's, else the system's]
    #[arg(long, global = true, value_name = "FILE", env = "WASMILL_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// With rediss://: PEM file of our own certificate, where the server asks for one [default: the file's]
    #[arg(long, global = true, value_name = "FILE", env = "WASMILL_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the private key of --tls-cert
    #[arg(long, global = true, value_name = "FILE", env = "WASMILL_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// Prefix of all keys in the store (Rheo's handle) [default: the file's, else Rheo.Redis]
    #[arg(long, global = true, value_name = "NAME")]
    namespace: Option<String>,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
    /// What to log: error, warn, info, debug, trace, or per part (`info,guest=warn`)
    #[arg(long, global = true, value_name = "FILTER", env = "WASMILL_LOG", default_value = "info")]
    log: String,
    /// How to log
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the pipelines of a file
    Run(run::RunArgs),
    /// Check a file, its plugins and its backend, without running or creating anything
    Check(check::CheckArgs),
    /// Append events to a stream: JSON lines from a file or stdin
    Append(append::AppendArgs),
    /// Read a stream's history
    Query(query::QueryArgs),
    /// Create, list, show and trim streams
    #[command(subcommand)]
    Stream(stream::StreamCommand),
    /// Create, list, show, explain, replay, reset and delete consumer groups
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// List, show, redrive and purge dead letters
    #[command(subcommand)]
    DeadLetter(dead_letter::DeadLetterCommand),
    /// Look at plugins
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Measure: load of a known shape on a store of its own, which is removed afterwards
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print the JSON Schema of the pipeline file
    Schema,
}

/// A line of `append`, for fuzzing: not part of the library's interface.
///
/// # Errors
/// What is wrong with it, in words.
#[doc(hidden)]
pub fn line(line: &[u8], raw: bool) -> Result<crate::event::NewEvent, String> {
    lines::event(line, raw, &lines::Defaults::default())
}

/// Runs one command to its end.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    match try_run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => exit.report(),
    }
}

fn try_run(cli: Cli) -> Result<(), Exit> {
    logs::init(&cli.global.log, cli.global.log_format)?;
    // Both redis and wasi:http pick the process's provider; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let context = Context::new(cli.global);
    // The store's side of the work; handlers get a runtime of their own where they run.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(&context, args).await,
            Command::Check(args) => check::run(&context, args).await,
            Command::Append(args) => append::run(&context, args).await,
            Command::Query(args) => query::run(&context, args).await,
            Command::Stream(command) => stream::run(&context, command).await,
            Command::Group(command) => group::run(&context, command).await,
            Command::DeadLetter(command) => dead_letter::run(&context, command).await,
            Command::Plugin(command) => plugin::run(&context, command).await,
            Command::Bench(command) => bench::run(&context, command).await,
            Command::Schema => output::json_pretty(&crate::config::schema()),
        }
    });
    // A guest or a read of stdin that still blocks a thread must not hold up the end.
    runtime.shutdown_background();
    done
}
