//! How a command ends when it does not succeed.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use super::output;
use crate::backend::{Error, ErrorClass};
use crate::config::ConfigError;
use crate::event::NameError;

/// A failure with its exit code.
#[derive(Debug)]
pub(super) enum Exit {
    /// Wrong usage or configuration: 2.
    Usage(anyhow::Error),
    /// A pipeline file with mistakes, shown with their places: 2.
    Config(ConfigError),
    /// Failed: 1.
    Failed(anyhow::Error),
    /// The reader of our output went away, as `head` does: no failure of ours.
    BrokenPipe,
}

impl Exit {
    /// Wrong usage, in words.
    pub(super) fn usage(message: impl std::fmt::Display) -> Self {
        Self::Usage(anyhow::anyhow!("{message}"))
    }

    /// Adds what was being done.
    pub(super) fn context(self, what: impl std::fmt::Display + Send + Sync + 'static) -> Self {
        match self {
            Self::Usage(error) => Self::Usage(error.context(what)),
            Self::Config(error) => Self::Config(error),
            Self::Failed(error) => Self::Failed(error.context(what)),
            Self::BrokenPipe => Self::BrokenPipe,
        }
    }

    /// Says why on stderr.
    pub(super) fn report(self) -> ExitCode {
        match self {
            Self::Usage(error) => {
                output::note(&format!("error: {error:#}"));
                ExitCode::from(2)
            }
            Self::Config(error) => {
                // Complete texts of their own, with carets that a prefix would move.
                let styled = std::io::stderr().is_terminal();
                output::note(&if styled { error.styled() } else { error.to_string() });
                ExitCode::from(2)
            }
            Self::Failed(error) => {
                output::note(&format!("error: {error:#}"));
                ExitCode::from(1)
            }
            Self::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

impl From<anyhow::Error> for Exit {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for Exit {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        match &error {
            // The call was well-formed; what it found is another matter.
            Error::StreamExists(_)
            | Error::GroupExists(_)
            | Error::PartitionNotFound { .. }
            | Error::DeadLetterNotFound { .. }
            | Error::ConfirmationRequired(_)
            | Error::StaleLease { .. }
            | Error::ReceiptMismatch { .. } => Self::Failed(error.into()),
            _ if error.class() == ErrorClass::Request => Self::Usage(error.into()),
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<NameError> for Exit {
    fn from(error: NameError) -> Self {
        Self::Usage(error.into())
    }
}
