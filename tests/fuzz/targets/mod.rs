//! What is fuzzed, one function a target: it takes any bytes, and panics where a promise is broken.
//!
//! The promise is always the same: an error or a value, never a panic, and memory and time bounded by
//! what was given. These bodies are called by `tests/fuzz` over a kept corpus and over mutations of it,
//! and by libFuzzer through the crate in `fuzz/`.

mod answer;
mod component;
mod config;
mod entry;
mod line;
pub(crate) mod operations;
mod reply;
pub(crate) mod resp;

pub(crate) use answer::answer;
pub(crate) use component::component;
pub(crate) use config::config;
pub(crate) use entry::entry;
pub(crate) use line::line;
pub(crate) use operations::OPERATIONS;
pub(crate) use reply::{reply, url};

/// The runtime on which a target does what is asynchronous.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: std::sync::OnceLock<tokio::runtime::Runtime> = std::sync::OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Runtime::new().unwrap())
}

/// How long anything may take before it counts as hanging, on a machine however busy.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// Runs to the end, or fails where that does not come.
fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    runtime().block_on(async {
        let done = tokio::time::timeout(PATIENCE, future).await;
        done.unwrap_or_else(|_| panic!("{what} hangs"))
    })
}
