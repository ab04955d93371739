//! A plugin's project: a folder with a `plugin.toml`.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Deserialize;

use crate::cli::exit::Exit;

/// The file that makes a folder a project.
pub(super) const MANIFEST: &str = "plugin.toml";

/// Where a build keeps what it installs and makes.
pub(super) const FOLDER: &str = ".wasmill";

/// Longest name of a plugin, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Names that a compiler or a package manager keeps for itself.
const RESERVED: &[&str] = &[
    "abstract",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "main",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "serde",
    "serde-json",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "wasmill",
    "wasmill-handler",
    "where",
    "while",
    "wit-bindgen",
    "yield",
];

/// A language that projects are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Language {
    /// Rust, compiled by cargo
    Rust,
    /// Python, by componentize-py
    Python,
    /// JavaScript or TypeScript, on QuickJS
    Js,
    /// Go
    Go,
    /// C
    C,
}

impl Language {
    /// As the option names it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Js => "js",
            Self::Go => "go",
            Self::C => "c",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::Js => "JavaScript",
            Self::Go => "Go",
            Self::C => "C",
        })
    }
}

/// A project as its manifest describes it.
#[derive(Debug)]
pub(super) struct Project {
    /// Its folder.
    pub(super) dir: PathBuf,
    pub(super) name: String,
    pub(super) language: Language,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    language: Language,
}

impl Project {
    /// Reads the project in `dir`.
    ///
    /// # Errors
    /// There is none, or its manifest is wrong.
    pub(super) fn open(dir: &Path) -> Result<Self, Exit> {
        let path = dir.join(MANIFEST);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Exit::usage(format!(
                    "{} is no plugin project: it has no {MANIFEST}; `wasmill plugin new NAME --lang LANG` makes one",
                    dir.display()
                )));
            }
            Err(error) => return Err(Exit::usage(format!("{}: {error}", path.display()))),
        };
        let manifest: Manifest = toml::from_str(&text)
            .map_err(|error| Exit::usage(format!("{}: {}", path.display(), error.to_string().trim_end())))?;
        check_name(&manifest.name).map_err(|why| Exit::usage(format!("{}: {why}", path.display())))?;
        Ok(Self { dir: dir.to_owned(), name: manifest.name, language: manifest.language })
    }

    /// A path for what a build makes on its way; the file is not there.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(super) fn scratch(&self, file: &str) -> Result<PathBuf, Exit> {
        let folder = self.dir.canonicalize()?.join(FOLDER).join("build");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(file);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(path),
        }
    }

    /// The component that a build makes.
    pub(super) fn component(&self) -> PathBuf {
        self.dir.join(format!("{}.wasm", self.name))
    }
}

/// Checks that a text can be a plugin's name in every language.
///
/// # Errors
/// Why it cannot.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.ends_with('-') || !name.chars().all(fits) {
        return Err(format!(
            "`{name}` cannot be a plugin's name: it begins with a small letter, and goes on with small letters, \
             digits and `-`, as in `order-check`"
        ));
    }
    if name.len() > NAME_CHARS_MAX {
        return Err(format!("`{name}` is longer than {NAME_CHARS_MAX} characters"));
    }
    if RESERVED.contains(&name) {
        return Err(format!("`{name}` means something else to compilers: take another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_language() {
        for good in ["a", "orders", "order-check", "v2", &"x".repeat(64)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in
            ["", "Orders", "2x", "-a", "a-", "a_b", "a b", "ä", "../a", "match", "test", &"x".repeat(65)]
        {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_manifest_says_what_is_wrong_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = |text: &str| {
            std::fs::write(dir.path().join(MANIFEST), text).unwrap();
            Project::open(dir.path()).map(|project| project.language).map_err(|exit| format!("{exit:?}"))
        };
        assert_eq!(open("name = \"a\"\nlanguage = \"js\"\n").unwrap(), Language::Js);
        assert!(open("name = \"a\"\nlanguage = \"cobol\"\n").unwrap_err().contains("cobol"));
        assert!(open("name = \"a\"\nlanguage = \"c\"\nkind = 1\n").unwrap_err().contains("kind"));
        assert!(open("name = \"A\"\nlanguage = \"c\"\n").unwrap_err().contains("small letter"));
        assert!(open("name = \"a\"\n").unwrap_err().contains("language"));
    }
}
