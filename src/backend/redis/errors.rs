//! The server's errors, by class.

use redis::{ErrorKind, RedisError, ServerError};

use super::tls;
use crate::backend::Error;

/// What a server's error means to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerCode {
    /// This is no primary any more: another connection may lead to one.
    NotPrimary,
    /// Not now.
    Busy,
    /// A key holds another type.
    WrongType,
    /// The stream or its group is gone.
    NoGroup,
    /// The script is to be loaded again.
    NoScript,
    /// A transaction whose commands were refused one by one.
    Aborted,
    /// Waiting will not help.
    Refused,
}

/// Words that tell a class. Redis 6.2 puts the code of an error inside a script into the middle of
/// another error's text, so they are looked for everywhere in it.
const WORDS: [(&str, ServerCode); 16] = [
    ("NOSCRIPT", ServerCode::NoScript),
    ("NOGROUP", ServerCode::NoGroup),
    ("WRONGTYPE", ServerCode::WrongType),
    ("READONLY", ServerCode::NotPrimary),
    ("MASTERDOWN", ServerCode::NotPrimary),
    ("OOM", ServerCode::Busy),
    ("LOADING", ServerCode::Busy),
    ("BUSY", ServerCode::Busy),
    ("MISCONF", ServerCode::Busy),
    ("NOREPLICAS", ServerCode::Busy),
    ("CLUSTERDOWN", ServerCode::Busy),
    ("TRYAGAIN", ServerCode::Busy),
    ("NOAUTH", ServerCode::Refused),
    ("WRONGPASS", ServerCode::Refused),
    ("NOPERM", ServerCode::Refused),
    ("EXECABORT", ServerCode::Aborted),
];

/// The class of an error that the server answered with.
pub(super) fn code_of(error: &ServerError) -> ServerCode {
    class_of_text(error.code(), error.details().unwrap_or_default())
}

fn class_of_text(code: &str, details: &str) -> ServerCode {
    let named = |text: &str| WORDS.iter().find(|(word, _)| *word == text).map(|(_, class)| *class);
    let mut words = details.split(|c: char| !c.is_ascii_uppercase());
    named(code).or_else(|| words.find_map(named)).unwrap_or(ServerCode::Refused)
}

/// The text of an error of the server.
pub(super) fn message(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// The error to report for one that the server answered with.
pub(super) fn server_error(error: &ServerError) -> Error {
    let text = message(error);
    match code_of(error) {
        ServerCode::NotPrimary => Error::Unavailable(text),
        ServerCode::Busy | ServerCode::Aborted => Error::Busy(text),
        // The key is found out by who knows which keys were meant, see `blame`.
        ServerCode::WrongType => Error::WrongType { key: String::new(), detail: text },
        // Both are healed where they can come up: what is left is a race, and the next try may do.
        ServerCode::NoGroup | ServerCode::NoScript => Error::Busy(text),
        ServerCode::Refused => Error::Refused(text),
    }
}

/// What came of an attempt to get an answer at all.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection is of no use any more.
    Broken(String),
    /// The connection may be good, but is to be given up: an answer is overdue, and would not be
    /// told from a dead peer.
    Overdue(String),
    /// TLS, or the files for it, is not as it has to be. Mends itself only where someone sees to it.
    Tls(String),
    /// The server answered with errors.
    Server(Vec<ServerError>),
    /// The client is at fault: a URL that cannot be used.
    Client(String),
}

impl Failure {
    /// What the client library reports, sorted.
    pub(super) fn of(error: &RedisError) -> Self {
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Io if error.is_timeout() => Self::Overdue("timed out".to_owned()),
            ErrorKind::Io | ErrorKind::Parse => match tls::explain(error) {
                Some(text) => Self::Tls(text),
                None => Self::Broken(text),
            },
            ErrorKind::InvalidClientConfig | ErrorKind::Client => Self::Client(text),
            _ => match error.clone().into_server_errors() {
                Some(errors) => Self::Server(errors.iter().map(|(_, error)| error.clone()).collect()),
                None => Self::Client(text),
            },
        }
    }

    /// The error to report; `wrote`: whether the request could have changed something.
    pub(super) fn report(&self, wrote: bool) -> Error {
        match self {
            Self::Broken(text) | Self::Overdue(text) | Self::Tls(text) if wrote => {
                Error::Ambiguous(text.clone())
            }
            Self::Broken(text) | Self::Overdue(text) | Self::Tls(text) => Error::Unavailable(text.clone()),
            Self::Client(text) => Error::Refused(text.clone()),
            Self::Server(errors) => {
                // The reason why a transaction was discarded stands before the message that it was.
                let telling = errors.iter().find(|error| code_of(error) != ServerCode::Aborted);
                match telling.or_else(|| errors.first()) {
                    Some(error) => server_error(error),
                    None => Error::Refused("an error without a word".to_owned()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_inside_texts() {
        use ServerCode::{Busy, NoGroup, NoScript, NotPrimary, Refused, WrongType};
        for (code, details, expected) in [
            ("OOM", "command not allowed when used memory > 'maxmemory'.", Busy),
            ("BUSY", "Redis is busy running a script.", Busy),
            ("BUSYGROUP", "Consumer Group name already exists", Refused),
            ("ERR", "Error running script (call to f_0a): @user_script:1: -OOM command not allowed", Busy),
            ("ERR", "Error running script (call to f_0a): @user_script:1: WRONGTYPE Operation", WrongType),
            ("NOGROUP", "No such key 's' or consumer group 'g'", NoGroup),
            ("NOSCRIPT", "No matching script.", NoScript),
            ("READONLY", "You can't write against a read only replica.", NotPrimary),
            ("NOPERM", "this user has no permissions", Refused),
            ("ERR", "unknown command", Refused),
        ] {
            assert_eq!(class_of_text(code, details), expected, "{code} {details}");
        }
    }
}
