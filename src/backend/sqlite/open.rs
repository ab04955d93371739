//! Opening a database: what is refused, and how connections are set up.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::failure::is_contention;
use super::network;
use crate::backend::{Error, Result, Settings, Synchronous};

/// `Wmil`: marks a database file as ours.
const APPLICATION_ID: i32 = 0x576d_696c;

/// The version of `schema.sql`, kept as the database's `user_version`.
const SCHEMA_VERSION: i32 = 2;

const SCHEMA: &str = include_str!("schema.sql");

/// Where the database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a file.
    File(PathBuf),
    /// In memory: it ends with the handle.
    Memory,
}

/// What to do where there is no database yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Make one.
    Create,
    /// Refuse, and say so: for commands that list and check. Nothing is written by opening.
    Existing,
}

/// Opens the connection that writes; makes the database where `mode` says so.
pub(super) fn writer(
    location: &Location,
    mode: Mode,
    settings: &Settings,
    lock_wait_max: Duration,
) -> Result<Connection> {
    match location {
        Location::Memory => {
            let mut conn = Connection::open_in_memory()?;
            create(&mut conn)?;
            prepare(&conn, settings)?;
            Ok(conn)
        }
        Location::File(path) => {
            let path = checked(path, mode)?;
            network::warn(&path);
            let conn = open_file(&path, mode, settings, lock_wait_max).map_err(|error| error.named(&path))?;
            // From now on its thread waits for locks, with shorter pauses than SQLite would make.
            conn.busy_timeout(Duration::ZERO)?;
            Ok(conn)
        }
    }
}

/// Opens a connection that only reads, to a file that [`writer`] has opened.
pub(super) fn reader(path: &Path, settings: &Settings, lock_wait_max: Duration) -> Result<Connection> {
    let path = checked(path, Mode::Existing)?;
    let conn = connect(&path, Mode::Existing, settings, lock_wait_max);
    let conn = conn.map_err(|error| Trouble::Sqlite(error).named(&path))?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

/// The absolute path, where a database can be or is there.
fn checked(path: &Path, mode: Mode) -> Result<PathBuf> {
    let refuse = |why: String| Err(Error::Refused(why));
    // Absolute, since SQLite gives a meaning of its own to `:memory:` and to the empty path.
    let Ok(path) = std::path::absolute(path) else {
        return refuse("a database needs the path of a file".to_owned());
    };
    let shown = path.display();
    if path.is_dir() {
        return refuse(format!("`{shown}` is a directory, not a database"));
    }
    if let Some(directory) = path.parent()
        && !directory.is_dir()
    {
        return refuse(format!("`{shown}` cannot be: there is no directory `{}`", directory.display()));
    }
    if mode == Mode::Existing && !path.exists() {
        return refuse(format!("there is no database `{shown}` yet"));
    }
    Ok(path)
}

/// What opening a file can run into.
enum Trouble {
    /// An error of SQLite's.
    Sqlite(rusqlite::Error),
    /// The file holds something else than we can use; how a sentence about it goes on.
    Content(String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Trouble {
    fn named(self, path: &Path) -> Error {
        let shown = path.display();
        match self {
            Self::Content(why) => Error::Refused(format!("`{shown}` {why}")),
            Self::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::NotADatabase) => Error::Refused(format!("`{shown}` is no SQLite database")),
                Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                    Error::Refused(format!("`{shown}` cannot be opened: {error}"))
                }
                Some(ErrorCode::ReadOnly) => Error::Refused(format!("`{shown}` cannot be written")),
                Some(ErrorCode::DatabaseCorrupt) => Error::Corrupt(format!("`{shown}`: {error}")),
                _ => error.into(),
            },
        }
    }
}

/// What a database holds.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    Ours,
}

fn open_file(
    path: &Path,
    mode: Mode,
    settings: &Settings,
    lock_wait_max: Duration,
) -> std::result::Result<Connection, Trouble> {
    let mut conn = connect(path, mode, settings, lock_wait_max)?;
    let content = inspect(&conn)?;
    match (mode, content) {
        (Mode::Existing, Content::Ours) => {}
        (Mode::Existing, Content::Nothing) => {
            return Err(Trouble::Content("is an empty database: nothing was stored in it yet".to_owned()));
        }
        (Mode::Create, content) => {
            // Only now, so that a foreign database is left as it was.
            write_ahead(&conn, lock_wait_max)?;
            if content == Content::Nothing {
                create(&mut conn)?;
            }
        }
    }
    Ok(conn)
}

fn connect(
    path: &Path,
    mode: Mode,
    settings: &Settings,
    lock_wait_max: Duration,
) -> rusqlite::Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, mode == Mode::Create);
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(lock_wait_max)?;
    prepare(&conn, settings)?;
    Ok(conn)
}

fn prepare(conn: &Connection, settings: &Settings) -> rusqlite::Result<()> {
    // Otherwise SQLite plans a statement anew whenever a value is bound to it that its plan might depend
    // on, which was a fifth of the time.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let synchronous = match settings.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    // KiB, hence negative; the page cache of one connection.
    conn.pragma_update(None, "cache_size", -8192)?;
    // Bytes: the write-ahead log shrinks to this after it grew beyond.
    conn.pragma_update_and_check(None, "journal_size_limit", 64 * 1024 * 1024, |_| Ok(()))?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(())
}

/// Says what is in the database; an error where it is not for us.
fn inspect(conn: &Connection) -> std::result::Result<Content, Trouble> {
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let objects: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let version = number("user_version")?;
    match number("application_id")? {
        APPLICATION_ID if version == SCHEMA_VERSION => Ok(Content::Ours),
        APPLICATION_ID if version > SCHEMA_VERSION => Err(Trouble::Content(format!(
            "was written by a newer Wasmill (its schema is {version}, this one knows {SCHEMA_VERSION}): use that one"
        ))),
        APPLICATION_ID => Err(Trouble::Content(format!(
            "has schema {version} of a Wasmill that was never released, and this one knows only \
             {SCHEMA_VERSION}: move the file away or name another one, and a new one is made"
        ))),
        0 if objects == 0 && version == 0 => Ok(Content::Nothing),
        _ => Err(Trouble::Content("is another program's SQLite database; name another file".to_owned())),
    }
}

/// Turns the write-ahead log on. SQLite does not wait for other connections here, so we do.
fn write_ahead(conn: &Connection, lock_wait_max: Duration) -> std::result::Result<(), Trouble> {
    let asked = Instant::now();
    loop {
        let mode = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Err(error) if is_contention(&error) && asked.elapsed() < lock_wait_max => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error.into()),
            Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
            Ok(_) => {
                return Err(Trouble::Content(
                    "is on a file system without shared memory, which the write-ahead log needs".to_owned(),
                ));
            }
        }
    }
}

/// Makes the tables, unless another process has done so in the meantime.
fn create(conn: &mut Connection) -> std::result::Result<(), Trouble> {
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if inspect(&transaction)? == Content::Nothing {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Content(why) => Self::Refused(format!("the database {why}")),
            Trouble::Sqlite(error) => error.into(),
        }
    }
}
