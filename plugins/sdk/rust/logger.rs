//! The crate `log` as a way to the host's log.

use log::{LevelFilter, Log, Metadata, Record};

use crate::bindings::wasi::logging::logging;

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            log::Level::Error => logging::Level::Error,
            log::Level::Warn => logging::Level::Warn,
            log::Level::Info => logging::Level::Info,
            log::Level::Debug => logging::Level::Debug,
            log::Level::Trace => logging::Level::Trace,
        };
        logging::log(level, record.target(), &record.args().to_string());
    }

    fn flush(&self) {}
}

/// A handler that has a logger of its own keeps it. The host leaves out levels that nobody wants to see.
pub(crate) fn install() {
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(LevelFilter::Trace);
    }
}
