//! What can befall a database file.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::engines::Engines;
use super::plan::Fault;
use super::recorder::Recorder;

/// What engines can still write of a file, in bytes: less than any transaction takes.
const ROOM: u64 = 4096;

/// What an engine says before it ends, of a file that is another one.
const GONE: &str = "was deleted or replaced";

/// The database, and who has it locked.
pub(super) struct File {
    pub(super) path: PathBuf,
    lock: Option<Connection>,
}

impl File {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, lock: None }
    }

    pub(super) fn begin(&mut self, fault: Fault, engines: &Engines) {
        match fault {
            Fault::DiskFull => engines.limit_files(Some(ROOM)),
            Fault::Locked => {
                let connection = Connection::open(&self.path).unwrap();
                // Others write all the time: it takes its turn.
                connection.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
                connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
                self.lock = Some(connection);
            }
            Fault::Deleted => delete(&self.path),
            _ => unreachable!("{fault:?}"),
        }
    }

    pub(super) fn end(&mut self, fault: Fault, engines: &mut Engines, recorder: &Recorder) {
        match fault {
            Fault::DiskFull => engines.limit_files(None),
            Fault::Locked => self.lock = None,
            Fault::Deleted => {
                // Each of them says so and ends, whatever it was at; who keeps them running starts them
                // again, and they have a new log.
                engines.all_end_saying(GONE);
                recorder.forgive(GONE);
            }
            _ => unreachable!("{fault:?}"),
        }
    }
}

fn delete(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::remove_file(name).unwrap();
    }
}
