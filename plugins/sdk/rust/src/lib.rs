//! Write an event handler for Wasmill in Rust.
//!
//! A handler is a function from an [`Event`] to `Ok(())`, which acknowledges the event, or to a
//! [`Failure`]. [`export!`] makes a component of it; the crate's type is `cdylib`:
//!
//! ```ignore
//! use wasmill_handler::{Delivery, Event, Failure};
//!
//! fn handle(event: Event, _delivery: Delivery) -> Result<(), Failure> {
//!     let text = std::str::from_utf8(&event.payload).map_err(|e| Failure::reject(e.to_string()))?;
//!     wasmill_handler::info!("{}: {text}", event.id);
//!     Ok(())
//! }
//! wasmill_handler::export!(handle);
//! ```
//!
//! What a handler changes goes through [`outbox`] (events that it appends) and [`state`] (keys and values
//! that it keeps): committed with the acknowledgement, or not at all.

pub mod outbox;
pub mod state;

use std::fmt;
use std::sync::Once;
use std::time::Duration;

/// The generated side of the handler world. [`export!`] needs it; handlers do not.
#[doc(hidden)]
#[allow(missing_docs)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "handler",
        pub_export_macro: true,
        export_macro_name: "export_bindings",
        default_bindings_module: "wasmill_handler::bindings",
        generate_all,
    });
}

pub use bindings::wasi::logging::logging::Level;
pub use bindings::wasmill::handler::types::{Delivery, Event, Failure, Retry};

use bindings::wasi::{config::store, logging::logging};

impl Failure {
    /// Try again, when the pipeline's backoff says so.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry(Retry { reason: reason.into(), delay_ms: None })
    }

    /// Try again, but not before `delay`, which is cut to whole milliseconds and to 49 days.
    pub fn retry_after(reason: impl Into<String>, delay: Duration) -> Self {
        let delay_ms = u32::try_from(delay.as_millis()).unwrap_or(u32::MAX);
        Self::Retry(Retry { reason: reason.into(), delay_ms: Some(delay_ms) })
    }

    /// Never try again: make the event a dead letter.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject(reason.into())
    }
}

/// The operator's setting `key`, or `None` where it is not set or cannot be read.
pub fn config(key: &str) -> Option<String> {
    store::get(key).ok().flatten()
}

/// Writes one message to the host's log. The macros, such as [`info!`], read better.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    logging::log(level, "", &message.to_string());
}

/// Logs at the level `debug`; takes what `format!` takes.
#[macro_export]
macro_rules! debug { ($($t:tt)*) => { $crate::log($crate::Level::Debug, format_args!($($t)*)) } }
/// Logs at the level `info`; takes what `format!` takes.
#[macro_export]
macro_rules! info { ($($t:tt)*) => { $crate::log($crate::Level::Info, format_args!($($t)*)) } }
/// Logs at the level `warn`; takes what `format!` takes.
#[macro_export]
macro_rules! warn { ($($t:tt)*) => { $crate::log($crate::Level::Warn, format_args!($($t)*)) } }
/// Logs at the level `error`; takes what `format!` takes.
#[macro_export]
macro_rules! error { ($($t:tt)*) => { $crate::log($crate::Level::Error, format_args!($($t)*)) } }

/// Makes `handle` the component's handler: a `fn(Event, Delivery) -> Result<(), Failure>`.
#[macro_export]
macro_rules! export {
    ($handle:path) => {
        const _: () = {
            struct Handler;
            impl $crate::bindings::Guest for Handler {
                fn handle(event: $crate::Event, delivery: $crate::Delivery) -> Result<(), $crate::Failure> {
                    $crate::report_panics();
                    $handle(event, delivery)
                }
            }
    $crate::bindings::export_bindings!(Handler with_types_in $crate::bindings);
        };
    };
}

/// Sends the text of a panic to the host's log, where the host takes it from for the fault's
/// message: not every target has a standard error stream.
#[doc(hidden)]
pub fn report_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            logging::log(Level::Critical, "panic", &panic.to_string());
        }));
    });
}
