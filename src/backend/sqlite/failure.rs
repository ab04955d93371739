//! What SQLite's errors mean to a caller.

use rusqlite::ErrorCode;

use crate::backend::Error;

/// An error of the database. Unlike [`Error`] it can be given to several callers: all those whose
/// work stood in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Busy,
    Unavailable,
    Ambiguous,
    Refused,
    Corrupt,
}

impl Failure {
    /// The transaction was undone under its operations, for the reason `message`.
    pub(super) fn undone(message: &str) -> Self {
        Self { kind: Kind::Busy, message: message.to_owned() }
    }

    /// Waiting will not help, for the reason `message`.
    pub(super) fn refused(message: String) -> Self {
        Self { kind: Kind::Refused, message }
    }

    /// The same failure where it met a commit: a disk that failed then may have kept the work.
    pub(super) fn at_commit(self) -> Self {
        match self.kind {
            Kind::Unavailable => Self { kind: Kind::Ambiguous, ..self },
            _ => self,
        }
    }
}

/// Whether another connection was in the way, so that trying again soon is likely to help.
pub(super) fn is_contention(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, message) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (Kind::Busy, "another process keeps the database locked".to_owned())
            }
            Some(ErrorCode::DiskFull) => (Kind::Busy, "the disk is full".to_owned()),
            Some(ErrorCode::OutOfMemory) => (Kind::Busy, "out of memory".to_owned()),
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationAborted
                | ErrorCode::OperationInterrupted,
            ) => (Kind::Unavailable, error.to_string()),
            // None of ours can be violated by what we write, unless someone else wrote too.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::ConstraintViolation) => {
                (Kind::Corrupt, error.to_string())
            }
            Some(ErrorCode::NotADatabase) => (Kind::Refused, "the file is no SQLite database".to_owned()),
            Some(_) => (Kind::Refused, error.to_string()),
            // A value of another type than ours: someone else wrote it.
            None => (Kind::Corrupt, error.to_string()),
        };
        Self { kind, message }
    }
}

impl From<&Failure> for Error {
    fn from(failure: &Failure) -> Self {
        let message = failure.message.clone();
        match failure.kind {
            Kind::Busy => Self::Busy(message),
            Kind::Unavailable => Self::Unavailable(message),
            Kind::Ambiguous => Self::Ambiguous(message),
            Kind::Refused => Self::Refused(message),
            Kind::Corrupt => Self::Corrupt(message),
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        (&Failure::from(error)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ErrorClass;

    fn class(code: i32) -> ErrorClass {
        Error::from(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)).class()
    }

    #[test]
    fn what_may_pass_is_tried_again_and_the_rest_is_not() {
        use rusqlite::ffi;
        for code in [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_FULL,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_NOMEM,
        ] {
            assert_eq!(class(code), ErrorClass::Retry, "{code}");
        }
        for code in [ffi::SQLITE_READONLY, ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_PERM] {
            assert_eq!(class(code), ErrorClass::Fatal, "{code}");
        }
    }

    #[test]
    fn a_disk_that_fails_at_commit_leaves_the_outcome_open() {
        let error =
            rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), None);
        let failure = Failure::from(error).at_commit();
        assert_eq!(Error::from(&failure).class(), ErrorClass::Ambiguous);
        assert_eq!(Error::from(&Failure::undone("x").at_commit()).class(), ErrorClass::Retry);
    }
}
