//! The log on stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::LogFormat;
use super::exit::Exit;

/// Starts logging.
///
/// # Errors
/// The filter cannot be read.
pub(super) fn init(filter: &str, format: LogFormat) -> Result<(), Exit> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Exit::usage(format!("`--log {filter}` is no filter: {error}; try `info` or `debug`"))
    })?;
    let registry = tracing_subscriber::registry().with(filter);
    let started = match format {
        LogFormat::Text => {
            let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
            registry.with(layer).try_init()
        }
        LogFormat::Json => {
            let layer = fmt::layer()
                .json()
                .with_writer(std::io::stderr)
                .with_current_span(true)
                .with_span_list(false);
            registry.with(layer).try_init()
        }
    };
    // Only a second start in one process fails, and then the first one's log goes on.
    started.or(Ok(()))
}
