//! What is asked before anything is destroyed or delivered again.

use super::exit::Exit;
use crate::backend::Error;

/// Lets a command go on that was confirmed; otherwise says what it would have done.
///
/// # Errors
/// [`Error::ConfirmationRequired`].
pub(super) fn confirmed(yes: bool, would: impl Into<String>) -> Result<(), Exit> {
    if yes { Ok(()) } else { Err(Error::ConfirmationRequired(would.into()).into()) }
}
