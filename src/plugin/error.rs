//! Why the host or a plugin cannot be had.

use std::path::PathBuf;

use super::bindings::CONTRACT_VERSION;
use super::state::OFFER;

/// Why the plugin host cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The folder for compiled plugins cannot be used.
    #[error("the folder {} for compiled plugins cannot be used: {reason}", dir.display())]
    CacheDir {
        /// The folder.
        dir: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The WebAssembly engine does not start on this machine.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
}

/// Why a plugin cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("plugin `{plugin}` ({}) cannot be loaded: {refusal}", path.display())]
pub struct LoadError {
    /// The plugin's name.
    pub plugin: String,
    /// Its file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub refusal: Refusal,
}

/// What is wrong with a file that should be a plugin. Each text ends with the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The file cannot be read.
    #[error("{0}; check the plugin's `path`")]
    Read(std::io::Error),
    /// The file is too large to be a component.
    #[error("the file has more than {bytes_max} bytes; check the plugin's `path`")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The file is no WebAssembly.
    #[error("it is not WebAssembly but {found}; `path` must name a built component (.wasm)")]
    NotWasm {
        /// What stands at its beginning.
        found: String,
    },
    /// The file is a core module.
    #[error(
        "it is a core module, not a component; build it for wasm32-wasip2, or wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    /// The component is not valid, or uses what the compiler does not know.
    #[error("it does not compile: {reason}; build it again with current tools")]
    Compile {
        /// The compiler's words.
        reason: String,
    },
    /// No function `handle` is exported.
    #[error(
        "it exports no function `handle` but {}; build it for the world `handler` of wasmill:handler@{CONTRACT_VERSION}",
        listed(found)
    )]
    NoHandler {
        /// What it exports.
        found: Vec<String>,
    },
    /// It was built for another version of the contract.
    #[error(
        "it is built for wasmill:handler@{found}, this host serves {CONTRACT_VERSION}; build it for that version"
    )]
    Contract {
        /// The version that it names.
        found: String,
    },
    /// It imports what the host does not offer.
    #[error("{reason}; this host offers {OFFER}")]
    Import {
        /// Which import, and why it does not fit.
        reason: String,
        /// All that it imports.
        found: Vec<String>,
    },
    /// `handle` is exported with another type.
    #[error(
        "its export `handle` has another type than wasmill:handler@{CONTRACT_VERSION} says: {reason} (found: {found}); build it for that world"
    )]
    HandlerType {
        /// Where the types differ.
        reason: String,
        /// The type that it has.
        found: String,
    },
    /// A first instance could not be made.
    #[error("it does not start: {reason}")]
    Start {
        /// What happened.
        reason: String,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// A wasmtime error with all that led to it, on one line.
pub(super) fn chain(error: &wasmtime::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}
