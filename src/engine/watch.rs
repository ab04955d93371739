//! Notices that files have changed: pipeline files and components.
//!
//! The kernel tells at once of changes in the folders where the files stand, and those that their
//! links lead to; since it does not for every file system, the files are looked at from time to time
//! as well. What counts is how a file looks when its name is followed to the end: so an editor's
//! rename, a link that is swapped, and a file that went and came back are all the same.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify_debouncer_full::notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, RecommendedCache, new_debouncer};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// How long what the kernel tells is gathered.
const GATHER: Duration = Duration::from_millis(50);

/// How often the files are looked at although nothing was told.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A file that looks the same for so long is taken to be written to its end.
const SETTLED_AFTER: Duration = Duration::from_millis(150);

/// Of files that do not come to rest the present state is taken after so long.
const UNREST_MAX: Duration = Duration::from_secs(3);

/// How a file looks: which one a name leads to, and when it was written. `None`: there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(Option<Look>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    path: PathBuf,
    inode: (u64, u64),
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    /// The file as it is now.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let look = || {
            let metadata = std::fs::metadata(path).ok()?;
            Some(Look {
                path: path.canonicalize().ok()?,
                inode: (metadata.dev(), metadata.ino()),
                bytes: metadata.size(),
                written: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            })
        };
        Self(look())
    }
}

/// Watches some files.
pub struct Watch {
    files: Vec<PathBuf>,
    marks: Vec<Mark>,
    folders: BTreeSet<PathBuf>,
    /// `None` where the kernel cannot tell: then looking has to do.
    watcher: Option<Debouncer<RecommendedWatcher, RecommendedCache>>,
    told: mpsc::Receiver<()>,
}

impl Watch {
    /// Watches no file yet.
    #[must_use]
    pub fn new() -> Self {
        let (tell, told) = mpsc::channel(1);
        let watcher = new_debouncer(GATHER, None, move |_: DebounceEventResult| {
            // One that waits already is enough.
            let _ = tell.try_send(());
        });
        let watcher = watcher
            .inspect_err(|error| {
                tracing::warn!(%error, "changes of files cannot be told by the system; they are looked for every two seconds");
            })
            .ok();
        Self { files: Vec::new(), marks: Vec::new(), folders: BTreeSet::new(), watcher, told }
    }

    /// Watches these files from now on, and no others. A file has changed once it looks otherwise
    /// than its mark.
    pub fn set_files(&mut self, files: Vec<(PathBuf, Mark)>) {
        (self.files, self.marks) = files.into_iter().unzip();
        self.watch_folders();
    }

    /// Returns once one of the files has changed and come to rest.
    pub async fn changed(&mut self) {
        loop {
            let mut now = marks(&self.files);
            if now == self.marks {
                tokio::select! {
                    told = self.told.recv(), if self.watcher.is_some() => if told.is_none() {
                        self.watcher = None;
                    },
                    () = sleep(LOOK_EVERY) => {}
                }
                continue;
            }
            let since = Instant::now();
            loop {
                sleep(SETTLED_AFTER).await;
                let again = marks(&self.files);
                if again == now || since.elapsed() > UNREST_MAX {
                    now = again;
                    break;
                }
                now = again;
            }
            if now != self.marks {
                return;
            }
        }
    }

    fn watch_folders(&mut self) {
        let folders: BTreeSet<PathBuf> = self.files.iter().flat_map(|file| folders_of(file)).collect();
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.folders.difference(&folders) {
            // It may be gone from the disk as well.
            let _ = watcher.unwatch(gone);
        }
        let mut watched = BTreeSet::new();
        for folder in folders {
            // A folder that went and came back is another one: it is watched anew.
            if self.folders.contains(&folder) {
                let _ = watcher.unwatch(&folder);
            }
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(folder);
                }
                Err(error) => {
                    tracing::debug!(folder = %folder.display(), %error, "a folder cannot be watched")
                }
            }
        }
        self.folders = watched;
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("files", &self.files).finish_non_exhaustive()
    }
}

fn marks(files: &[PathBuf]) -> Vec<Mark> {
    files.iter().map(|file| Mark::of(file)).collect()
}

/// The folder in which a file is named, and the one in which it stands.
fn folders_of(file: &Path) -> Vec<PathBuf> {
    let folder = |path: &Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    };
    let mut folders = vec![folder(file)];
    folders.extend(file.canonicalize().ok().map(|target| folder(&target)));
    folders
}
