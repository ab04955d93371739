//! The operator's settings.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::HOSTED;
use crate::bindings::wasi::config::store;

/// The operator's setting `key`, or `None` where it is not set or cannot be read.
pub fn config(key: &str) -> Option<String> {
    if HOSTED { store::get(key).ok().flatten() } else { None }
}

/// The operator's setting `key`, parsed as a `T`; `None` where it is not set.
///
/// ```no_run
/// # fn example() -> wasmill_handler::Result {
/// let limit = wasmill_handler::config_as("limit")?.unwrap_or(100u64);
/// # Ok(()) }
/// ```
///
/// # Errors
/// The setting's text is no `T`.
pub fn config_as<T>(key: &str) -> Result<Option<T>, ConfigError>
where
    T: FromStr,
    T::Err: Error + 'static,
{
    let Some(value) = config(key) else { return Ok(None) };
    match value.parse() {
        Ok(parsed) => Ok(Some(parsed)),
        Err(why) => Err(ConfigError { key: key.to_owned(), value, why: Box::new(why) }),
    }
}

/// A setting whose text is not what the handler takes.
#[derive(Debug)]
pub struct ConfigError {
    key: String,
    value: String,
    why: Box<dyn Error>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the setting `{}` is `{}`", self.key, self.value)
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.why)
    }
}
