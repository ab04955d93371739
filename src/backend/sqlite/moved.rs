//! Whether the file that is open is still the one at its path.
//!
//! SQLite goes on with a file that was deleted or replaced: what it writes there no one else will ever
//! see, and is gone with the process. So each transaction begins with a look at the path.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file, by its path and by what makes it this one.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    /// Device and inode; `None` where it could not be told, and then nothing is ever said.
    file: Option<(u64, u64)>,
}

impl Identity {
    /// The file that stands at this path now.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), file: at(path).ok() }
    }

    /// What is wrong, in words, where another file stands at the path, or none.
    pub(super) fn moved(&self) -> Option<String> {
        let file = self.file?;
        let still = match at(&self.path) {
            Ok(found) => found == file,
            // Anything else, such as a folder that may not be read any more, says nothing of the file.
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        (!still).then(|| {
            format!(
                "the database `{}` was deleted or replaced while it was open; start again to use what is there now",
                self.path.display()
            )
        })
    }
}

fn at(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
