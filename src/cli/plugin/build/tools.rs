//! Tools that a build needs and the machine does not have: installed once, from PyPI, at the versions and
//! hashes that the project names, into a folder of the project.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

use super::command::{ask, failed, run};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::plugin::project::FOLDER;

/// Names a folder that projects share, instead of each one's own.
const HOME: &str = "WASMILL_TOOLS";

/// The oldest Python that the tools run on.
const PYTHON_MIN: (u32, u32) = (3, 10);

/// Where tools are, or are going to be.
pub(super) struct Tools {
    home: PathBuf,
}

impl Tools {
    /// The tools of the project in `dir`.
    pub(super) fn of(dir: &Path) -> Self {
        let home = std::env::var_os(HOME).filter(|home| !home.is_empty());
        Self { home: home.map_or_else(|| dir.join(FOLDER), PathBuf::from) }
    }

    /// A Python environment with the packages of a requirements file; `what` says what it is for.
    ///
    /// # Errors
    /// There is no Python, or a package cannot be installed.
    pub(super) fn python(&self, what: &str, requirements: &Path) -> Result<PathBuf, Exit> {
        let text = std::fs::read(requirements)
            .map_err(|error| failed(&format!("{}: {error}", requirements.display())))?;
        let (python, version) = find_python(what)?;
        let name = format!("{}-{}", name_of(&text, &version), what.to_lowercase().replace(' ', "-"));
        std::fs::create_dir_all(&self.home)?;
        let home = self.home.canonicalize()?;
        let env = home.join(&name);
        let bin = env.join("bin");
        // Several builds may want it at once; the first one makes it.
        let lock = File::create(home.join(format!("{name}.lock")))?;
        lock.lock()?;
        let ready = env.join("ready");
        if ready.exists() {
            return Ok(bin);
        }
        let _ = std::fs::remove_dir_all(&env);
        output::note(&format!("installing {what} into {} (once)", self.home.display()));
        let made = make(&python, &env, requirements);
        if made.is_err() {
            let _ = std::fs::remove_dir_all(&env);
        }
        made?;
        File::create(ready)?;
        Ok(bin)
    }
}

fn make(python: &str, env: &Path, requirements: &Path) -> Result<(), Exit> {
    let made = run("making a Python environment", Command::new(python).args(["-m", "venv"]).arg(env));
    made.map_err(|exit| exit.context("on Debian, `apt-get install python3-venv` brings what Python lacks"))?;
    let mut install = Command::new(env.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    install.args(["--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(requirements);
    run("installing from PyPI", &mut install).map(|_| ())
}

/// The folder of a package in an environment whose programs are in `bin`.
pub(super) fn package(bin: &Path, name: &str) -> Result<PathBuf, Exit> {
    let libraries = bin.parent().map(|env| env.join("lib"));
    let pythons = libraries.and_then(|lib| std::fs::read_dir(lib).ok()).into_iter().flatten().flatten();
    let folder =
        pythons.map(|python| python.path().join("site-packages").join(name)).find(|path| path.is_dir());
    folder.ok_or_else(|| failed(&format!("{name} is not where it was installed: remove {}", bin.display())))
}

/// A folder's name for these packages on this Python.
fn name_of(requirements: &[u8], version: &str) -> String {
    let digest = Sha256::new().chain_update(requirements).chain_update(version).finalize();
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// A Python that is new enough, and its version.
fn find_python(what: &str) -> Result<(String, String), Exit> {
    let named = std::env::var("WASMILL_PYTHON").ok().filter(|python| !python.is_empty());
    let python = named.unwrap_or_else(|| "python3".to_owned());
    let (major, minor) = PYTHON_MIN;
    let version =
        ask(Command::new(&python).args(["-c", "import sys; print(*sys.version_info[:2], sep='.')"]));
    let found = match &version {
        Some(version) if parse(version).is_some_and(|found| found >= PYTHON_MIN) => {
            return Ok((python, version.clone()));
        }
        Some(version) => format!("`{python}` is {version}"),
        None => format!("`{python}` is missing"),
    };
    Err(failed(&format!(
        "{what} is not here, and can be installed by Python {major}.{minor} or newer only, but {found}; on Debian: \
         apt-get install python3 python3-venv (WASMILL_PYTHON names another one)"
    )))
}

/// The first two numbers of a version.
pub(super) fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches(|c: char| !c.is_ascii_digit()).split(['.', ' ', '-']);
    let number = |text: Option<&str>| {
        let text = text?;
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok()
    };
    Some((number(numbers.next())?, number(numbers.next())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (text, version) in [
            ("3.11", Some((3, 11))),
            ("v20.20.2", Some((20, 20))),
            ("go1.27.3", Some((1, 27))),
            ("go version go1.27rc1 linux/amd64", Some((1, 27))),
            ("0.17.0-dev.12+abc", Some((0, 17))),
            ("nothing", None),
            ("", None),
        ] {
            assert_eq!(parse(text), version, "{text}");
        }
    }

    #[test]
    fn other_packages_or_another_python_are_another_folder() {
        assert_ne!(name_of(b"a", "3.11"), name_of(b"b", "3.11"));
        assert_ne!(name_of(b"a", "3.11"), name_of(b"a", "3.12"));
    }
}
