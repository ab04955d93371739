//! How errors become answers.

use std::error::Error as StdError;
use std::iter::successors;
use std::panic::Location;

use crate::{Failure, Level, log, outbox, state};

/// What a handler returns: `Ok(())`, or why the event was not handled.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// What `?` makes of an error in a handler.
///
/// - A [`Failure`] stays what it is, and the errors of [`outbox`] and [`state`] become the failures that
///   they convert into; also where they are the source of another error.
/// - Any other error becomes a retry with the reason `Type: message`, in which the texts of its sources
///   follow its own. It is logged at the level error, with the place of the `?`.
///
/// ```no_run
/// use wasmill_handler::{Delivery, Event, Failure, Result};
///
/// fn handle(event: Event, _delivery: Delivery) -> Result {
///     let text = std::str::from_utf8(&event.payload)?; // a retry: `Utf8Error: invalid utf-8 …`
///     let number: u32 = text.parse().map_err(|_| Failure::reject("not a number"))?; // a rejection
///     if number == 0 {
///         return Err(Failure::retry("no number yet").into());
///     }
///     Ok(())
/// }
/// ```
///
/// It is no `std::error::Error` itself: only so can every one of them become this one.
#[derive(Debug)]
pub struct Error(Cause);

#[derive(Debug)]
enum Cause {
    Failure(Failure),
    Uncaught { reason: String, place: &'static Location<'static> },
}

impl<E: StdError + 'static> From<E> for Error {
    #[track_caller]
    fn from(error: E) -> Self {
        Self(match failure_in(&error) {
            Some(failure) => Cause::Failure(failure),
            None => Cause::Uncaught {
                reason: format!("{}: {}", short_name(std::any::type_name::<E>()), text_of(&error)),
                place: Location::caller(),
            },
        })
    }
}

/// Says in the log where an error came from that nobody caught.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.0 {
            Cause::Failure(failure) => failure,
            Cause::Uncaught { reason, place } => {
                log(Level::Error, format_args!("{reason}, at {place}"));
                Self::retry(reason)
            }
        }
    }
}

/// What a handler may fail with: [`Error`], [`Failure`], and any error as `dyn Error`, such as
/// `Box<dyn Error>` and `anyhow::Error`, whose reason is the message only.
pub trait IntoFailure {
    /// What the host is told.
    fn into_failure(self) -> Failure;
}

impl IntoFailure for Failure {
    fn into_failure(self) -> Failure {
        self
    }
}

impl IntoFailure for Error {
    fn into_failure(self) -> Failure {
        self.into()
    }
}

impl<E: AsRef<dyn StdError>> IntoFailure for E {
    fn into_failure(self) -> Failure {
        let error = self.as_ref();
        failure_in(error).unwrap_or_else(|| {
            let reason = text_of(error);
            log(Level::Error, format_args!("{reason}"));
            Failure::retry(reason)
        })
    }
}

/// The failure that an error is, or was made of.
fn failure_in(error: &(dyn StdError + 'static)) -> Option<Failure> {
    successors(Some(error), |&error| error.source()).find_map(|error| {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            Some(failure.clone())
        } else if let Some(error) = error.downcast_ref::<outbox::Error>() {
            Some(error.clone().into())
        } else {
            error.downcast_ref::<state::Error>().map(|error| error.clone().into())
        }
    })
}

/// The error's text and those of its sources, unless it has said them itself.
fn text_of(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for source in successors(error.source(), |&error| error.source()) {
        let source = source.to_string();
        if !text.ends_with(&source) {
            text = format!("{text}: {source}");
        }
    }
    text
}

/// A type's name as people know it: `ParseIntError`, `io::Error`, `serde_json::Error`. Modules that a
/// crate keeps to itself and what a type is generic over are left out.
fn short_name(full: &str) -> String {
    let path = full.trim_start_matches("alloc::boxed::Box<");
    let path = path.split(['<', '>']).next().unwrap_or(path);
    let mut parts = path.split("::");
    let from = parts.next().unwrap_or(path);
    let module = parts.next().unwrap_or(from);
    let name = path.rsplit("::").next().unwrap_or(path);
    match from {
        "core" | "alloc" | "std" if name == "Error" => format!("{module}::{name}"),
        "core" | "alloc" | "std" => name.to_owned(),
        _ => format!("{from}::{name}"),
    }
}
