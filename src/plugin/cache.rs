//! Compiled plugins on disk. Compiling takes up to 20 seconds for a Python plugin, reading the
//! result back some tens of milliseconds.
//!
//! What is read back is executed, so a file counts only if it belongs to this user, no one else
//! can write it or its folder, and its length and checksum are right. Anything else is a miss.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use wasmtime::Engine;

/// Compiled plugins that are kept; those not used for longest go first.
const FILES_MAX: usize = 64;

/// A file that was left half-written is removed after this time.
const LEFTOVER_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A file is this mark, the code's length (8 bytes, little-endian), its SHA-256, and the code.
const MARK: &[u8; 8] = b"wasmill\x01";
const HEADER_BYTES: usize = 8 + 8 + 32;

/// Permission bits that let others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A folder of compiled plugins that can be trusted.
pub(super) struct Cache {
    dir: PathBuf,
    uid: u32,
}

/// Compiled code from a file that was checked.
pub(super) struct Trusted(Vec<u8>);

impl Trusted {
    /// The code.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.get(HEADER_BYTES..).unwrap_or_default()
    }
}

impl Cache {
    /// `$XDG_CACHE_HOME/wasmill/compiled`, else `$HOME/.cache/wasmill/compiled`; `None` where neither
    /// is known.
    pub(super) fn default_dir() -> Option<PathBuf> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(caches.join("wasmill/compiled"))
    }

    /// Opens the folder, and makes it where it is missing.
    ///
    /// # Errors
    /// Says why the folder cannot be used.
    pub(super) fn open(dir: &Path) -> Result<Self, String> {
        let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("it cannot be made"))?;
        let dir = dir.canonicalize().map_err(failed("it cannot be found"))?;
        let metadata = fs::metadata(&dir).map_err(failed("it cannot be read"))?;
        // A file of our own tells who we are, and that we can write here.
        let (file, path) = create(&dir, "probe").map_err(failed("it cannot be written"))?;
        let uid = file.metadata().map(|m| m.uid());
        fs::remove_file(path).map_err(failed("it cannot be written"))?;
        let uid = uid.map_err(failed("it cannot be read"))?;
        match ours(&metadata, uid) {
            Ok(()) => Ok(Self { dir, uid }),
            Err(reason) => Err(format!("{reason}; make it yours, with `chmod 700`, or name another")),
        }
    }

    /// The name under which the compiled form of a component is kept. It changes with wasmtime's
    /// version and with every setting that matters for the code.
    pub(super) fn key(engine: &Engine, digest: &str) -> String {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        format!("{digest}-{:016x}", hasher.finish())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{key}.cwasm"))
    }

    /// The code kept under `key`, if there is a file that can be trusted.
    pub(super) fn get(&self, key: &str) -> Option<Trusted> {
        let path = self.path(key);
        match self.read(&path) {
            Ok(trusted) => Some(trusted),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(path = %path.display(), "a compiled plugin is not used: {error}");
                None
            }
        }
    }

    fn read(&self, path: &Path) -> io::Result<Trusted> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        ours(&metadata, self.uid).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
        file.read_to_end(&mut bytes)?;
        if !whole(&bytes) {
            return Err(io::Error::other("the file is damaged"));
        }
        // The time of the last use decides which files stay. It does not matter if it is not set.
        let _ = file.set_modified(SystemTime::now());
        Ok(Trusted(bytes))
    }

    /// Keeps `code` under `key`. A failure is no more than a warning: the next start compiles.
    pub(super) fn put(&self, key: &str, code: &[u8]) {
        let path = self.path(key);
        if let Err(error) = self.write(&path, code) {
            tracing::warn!(path = %path.display(), "a compiled plugin could not be kept: {error}");
        }
        if let Err(error) = self.prune(&path) {
            tracing::warn!(dir = %self.dir.display(), "old compiled plugins could not be removed: {error}");
        }
    }

    /// Writes beside the place and renames, so that a reader sees a whole file or none.
    fn write(&self, path: &Path, code: &[u8]) -> io::Result<()> {
        let (mut file, part) = create(&self.dir, "part")?;
        let written = (|| {
            file.write_all(MARK)?;
            file.write_all(&(code.len() as u64).to_le_bytes())?;
            file.write_all(&Sha256::digest(code))?;
            file.write_all(code)?;
            file.sync_all()?;
            fs::rename(&part, path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Removes what was not used for longest, but never `kept`, and what was left half-written.
    fn prune(&self, kept: &Path) -> io::Result<()> {
        let now = SystemTime::now();
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let Ok(used) = fs::metadata(&path).and_then(|m| m.modified()) else { continue };
            match path.extension().and_then(|e| e.to_str()) {
                Some("cwasm") if path != kept => files.push((used, path)),
                Some("part" | "probe")
                    if now.duration_since(used).is_ok_and(|age| age > LEFTOVER_AGE_MAX) =>
                {
                    fs::remove_file(path)?;
                }
                _ => {}
            }
        }
        files.sort();
        for (_, path) in files.iter().take(files.len().saturating_sub(FILES_MAX - 1)) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// A new file in `dir` that only this user can read and write.
fn create(dir: &Path, extension: &str) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".{}-{count}.{extension}", std::process::id()));
    // A process that had our number may have died here.
    let _ = fs::remove_file(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((file, path))
}

/// Whether only this user can have written a file or folder.
fn ours(metadata: &Metadata, uid: u32) -> Result<(), String> {
    if metadata.uid() != uid {
        return Err(format!("it belongs to user {}, not to user {uid}", metadata.uid()));
    }
    if metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(format!("others can write it (mode {:o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

/// Whether mark, length and checksum are right.
fn whole(bytes: &[u8]) -> bool {
    let Some((header, code)) = bytes.split_at_checked(HEADER_BYTES) else { return false };
    header.starts_with(MARK)
        && header[8..16] == (code.len() as u64).to_le_bytes()
        && header[16..] == Sha256::digest(code)[..]
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn opened() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("deep/cache")).unwrap();
        (dir, cache)
    }

    #[test]
    fn code_comes_back_as_it_was() {
        let (_dir, cache) = opened();
        assert!(cache.get("k").is_none());
        cache.put("k", b"code");
        assert_eq!(cache.get("k").unwrap().bytes(), b"code");
        cache.put("k", b"other");
        assert_eq!(cache.get("k").unwrap().bytes(), b"other");
    }

    #[test]
    fn the_folder_is_private() {
        let (_dir, cache) = opened();
        assert_eq!(fs::metadata(&cache.dir).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&cache.dir, fs::Permissions::from_mode(0o777)).unwrap();
        let reason = Cache::open(&cache.dir).err().unwrap();
        assert!(reason.contains("others can write it (mode 777)"), "{reason}");
    }

    #[test]
    fn a_file_that_is_not_whole_is_not_used() {
        let (_dir, cache) = opened();
        cache.put("k", b"some code");
        let path = cache.path("k");
        let good = fs::read(&path).unwrap();
        let flipped = {
            let mut bytes = good.clone();
            *bytes.last_mut().unwrap() ^= 1;
            bytes
        };
        let longer = [good.as_slice(), b"x"].concat();
        for bad in [&good[..good.len() - 1], &good[..10], &[], &flipped, &longer, b"another format"] {
            fs::write(&path, bad).unwrap();
            assert!(cache.get("k").is_none(), "{} bytes", bad.len());
        }
        fs::write(&path, good).unwrap();
        assert!(cache.get("k").is_some());
    }

    #[test]
    fn a_file_that_others_can_write_is_not_used() {
        let (_dir, cache) = opened();
        cache.put("k", b"code");
        fs::set_permissions(cache.path("k"), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(cache.get("k").is_none());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let (_dir, cache) = opened();
        let start = SystemTime::now() - Duration::from_secs(3600);
        for n in 0..FILES_MAX as u64 {
            cache.put(&format!("k{n}"), b"code");
            let file = File::open(cache.path(&format!("k{n}"))).unwrap();
            file.set_modified(start + Duration::from_secs(n)).unwrap();
        }
        assert!(cache.get("k0").is_some(), "its use makes it the youngest");
        cache.put("new", b"code");
        let there = |key: &str| cache.path(key).exists();
        assert_eq!((there("k0"), there("k1"), there("k2"), there("new")), (true, false, true, true));
    }
}
