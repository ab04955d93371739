//! Write an event handler for Wasmill in Rust.
//!
//! A handler is a function from an [`Event`] to a [`Result`]: `Ok(())` acknowledges the event, and a
//! [`Failure`] says whether to retry it or to reject it. `?` works on every error: see [`Error`].
//! [`export!`] makes a component of the function; the crate's type is `cdylib`:
//!
//! ```ignore
//! use wasmill_handler::{Delivery, Event, Failure, Result, info};
//!
//! fn handle(event: Event, delivery: Delivery) -> Result {
//!     let text = std::str::from_utf8(&event.payload)?;
//!     if text == "{}" {
//!         return Err(Failure::reject("the payload is empty").into());
//!     }
//!     info!("{}, attempt {}: {text}", event.id, delivery.attempt);
//!     Ok(())
//! }
//!
//! wasmill_handler::export!(handle);
//! ```
//!
//! What a handler changes goes through [`outbox`] (events that it appends) and [`state`] (keys and values
//! that it keeps): committed with the acknowledgement, or not at all.
//!
//! The feature `json` reads and writes payloads with serde; the feature `log` sends what is logged with
//! the crate `log` to the host's log.

mod config;
mod defaults;
mod error;
#[cfg(feature = "log")]
mod logger;
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
        path: "../wit",
        world: "handler",
        pub_export_macro: true,
        export_macro_name: "export_bindings",
        default_bindings_module: "wasmill_handler::bindings",
        additional_derives: [PartialEq],
        generate_all,
    });
}

use bindings::wasi::logging::logging;

pub use bindings::wasi::logging::logging::Level;
pub use bindings::wasmill::handler::types::{Delivery, Event, Failure, Retry};
pub use config::{ConfigError, config, config_as};
pub use error::{Error, IntoFailure, Result};

/// Whether there is a host. Unit tests run without one: what is logged goes to stderr there, no setting
/// is set, and outbox and state answer with errors.
const HOSTED: bool = cfg!(target_arch = "wasm32");

impl Event {
    /// The metadata's value of `key`: a string as it is, another value as its JSON text.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    /// The payload is not what `T` takes.
    #[cfg(feature = "json")]
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.payload)
    }
}

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

/// Writes one message to the host's log. The macros, such as [`info!`], read better.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    if HOSTED {
        logging::log(level, "", &message.to_string());
    } else {
        eprintln!("{level:?}: {message}");
    }
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

/// Makes `handle` the component's handler: a `fn(Event, Delivery) -> Result`, whose error may be any
/// that is [`IntoFailure`].
#[macro_export]
macro_rules! export {
    ($handle:path) => {
        const _: () = {
            struct Handler;
            impl $crate::bindings::Guest for Handler {
                fn handle(
                    event: $crate::Event,
                    delivery: $crate::Delivery,
                ) -> ::core::result::Result<(), $crate::Failure> {
                    $crate::start();
                    $handle(event, delivery).map_err($crate::IntoFailure::into_failure)
                }
            }
    $crate::bindings::export_bindings!(Handler with_types_in $crate::bindings);
        };
    };
}

/// Connects what the language has to the host's log, at the first call. A panic's text goes there,
/// from where the host takes it for the fault's message: not every target has a standard error stream.
#[doc(hidden)]
pub fn start() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            logging::log(Level::Critical, "panic", &panic.to_string());
        }));
        #[cfg(feature = "log")]
        logger::install();
    });
}
