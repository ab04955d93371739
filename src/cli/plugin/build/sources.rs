//! The files of a project that a build depends on.

use std::path::{Path, PathBuf};

use crate::cli::plugin::project::FOLDER;

/// Folders that a build fills, and that no one edits.
const MADE: &[&str] = &[FOLDER, "target", "node_modules", "__pycache__", "build", "dist"];

/// How deep folders are looked into.
const DEPTH_MAX: usize = 12;

/// A project's sources, and the folders where they are: a folder changes when a file comes or goes.
pub(super) fn of(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    collect(dir, DEPTH_MAX, &mut found);
    found
}

fn collect(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let hidden = name.starts_with('.');
        // Links are followed: a project may share its helpers with others.
        if path.is_dir() {
            if depth > 0 && !hidden && !MADE.contains(&name.as_ref()) {
                found.push(path.clone());
                collect(&path, depth - 1, found);
            }
        } else if !hidden && path.extension().is_none_or(|extension| extension != "wasm") {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_builds_make_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for file in
            ["handler.py", "wasmill/__init__.py", "x.wasm", ".wasmill/a", "node_modules/b/c", ".git/d"]
        {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let mut found: Vec<_> = of(dir.path())
            .iter()
            .map(|path| path.strip_prefix(dir.path()).unwrap().display().to_string())
            .collect();
        found.sort();
        assert_eq!(found, ["", "handler.py", "wasmill", "wasmill/__init__.py"]);
    }
}
