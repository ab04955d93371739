//! The files of a new project, as they are in the repository: `plugins/template`, `plugins/sdk` and `wit`.

use super::project::Language;

/// A file of a new project; `{{name}}` in it stands for the plugin's name.
pub(super) struct File {
    /// Where it goes, below the project's folder.
    pub(super) path: &'static str,
    pub(super) text: &'static str,
}

macro_rules! files {
    ($($path:literal from $source:literal),* $(,)?) => {
        &[$(File { path: $path, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $source)) }),*]
    };
}

/// The files of a project in this language, without its manifest.
pub(super) fn files(language: Language) -> impl Iterator<Item = &'static File> {
    let own = match language {
        Language::Rust => RUST,
        Language::Python => PYTHON,
        Language::Js => JS,
        Language::Go => GO,
        Language::C => C,
    };
    own.iter().chain(WIT)
}

const WIT: &[File] = files! {
    "wit/deps/wasi-config.wit" from "wit/deps/wasi-config.wit",
    "wit/deps/wasi-keyvalue.wit" from "wit/deps/wasi-keyvalue.wit",
    "wit/deps/wasi-logging.wit" from "wit/deps/wasi-logging.wit",
    "wit/handler.wit" from "wit/handler.wit",
    "wit/outbox.wit" from "wit/outbox.wit",
    "wit/types.wit" from "wit/types.wit",
};

const RUST: &[File] = files! {
    "Cargo.lock" from "plugins/template/rust/Cargo.lock.in",
    "Cargo.toml" from "plugins/template/rust/Cargo.toml.in",
    "README.md" from "plugins/template/rust/README.md",
    "events.jsonl" from "plugins/template/rust/events.jsonl",
    ".gitignore" from "plugins/template/rust/gitignore",
    "src/lib.rs" from "plugins/template/rust/src/lib.rs",
    "wasmill/Cargo.toml" from "plugins/template/rust/wasmill-Cargo.toml.in",
    "wasmill/config.rs" from "plugins/sdk/rust/config.rs",
    "wasmill/defaults.rs" from "plugins/sdk/rust/defaults.rs",
    "wasmill/error.rs" from "plugins/sdk/rust/error.rs",
    "wasmill/lib.rs" from "plugins/sdk/rust/lib.rs",
    "wasmill/logger.rs" from "plugins/sdk/rust/logger.rs",
    "wasmill/outbox.rs" from "plugins/sdk/rust/outbox.rs",
    "wasmill/rustfmt.toml" from "plugins/sdk/rust/rustfmt.toml",
    "wasmill/state.rs" from "plugins/sdk/rust/state.rs",
};

const PYTHON: &[File] = files! {
    "README.md" from "plugins/template/python/README.md",
    "events.jsonl" from "plugins/template/python/events.jsonl",
    ".gitignore" from "plugins/template/python/gitignore",
    "handler.py" from "plugins/template/python/handler.py",
    "requirements.txt" from "plugins/template/python/requirements.txt",
    "wasmill/__init__.py" from "plugins/sdk/python/__init__.py",
    "wasmill/_host.py" from "plugins/sdk/python/_host.py",
    "wasmill/component.py" from "plugins/sdk/python/component.py",
    "wasmill/outbox.py" from "plugins/sdk/python/outbox.py",
    "wasmill/requirements.txt" from "plugins/sdk/python/requirements.txt",
    "wasmill/state.py" from "plugins/sdk/python/state.py",
};

const JS: &[File] = files! {
    "README.md" from "plugins/template/js/README.md",
    "events.jsonl" from "plugins/template/js/events.jsonl",
    ".gitignore" from "plugins/template/js/gitignore",
    "handler.js" from "plugins/template/js/handler.js",
    "package-lock.json" from "plugins/template/js/package-lock.json",
    "package.json" from "plugins/template/js/package.json",
    "wasmill/component.js" from "plugins/sdk/js/component.js",
    "wasmill/console.js" from "plugins/sdk/js/console.js",
    "wasmill/globals.js" from "plugins/sdk/js/globals.js",
    "wasmill/host.js" from "plugins/sdk/js/host.js",
    "wasmill/index.d.ts" from "plugins/sdk/js/index.d.ts",
    "wasmill/index.js" from "plugins/sdk/js/index.js",
    "wasmill/promise.js" from "plugins/sdk/js/promise.js",
    "wasmill/requirements.txt" from "plugins/sdk/js/requirements.txt",
    "wasmill/utf8.js" from "plugins/sdk/js/utf8.js",
};

const GO: &[File] = files! {
    "README.md" from "plugins/template/go/README.md",
    "events.jsonl" from "plugins/template/go/events.jsonl",
    ".gitignore" from "plugins/template/go/gitignore",
    "go.mod" from "plugins/template/go/go.mod",
    "main.go" from "plugins/template/go/main.go",
    "wasmill/WIT.sha256" from "plugins/sdk/go/WIT.sha256",
    "wasmill/failure.go" from "plugins/sdk/go/failure.go",
    "wasmill/go.mod" from "plugins/sdk/go/go.mod",
    "wasmill/host_other.go" from "plugins/sdk/go/host_other.go",
    "wasmill/host_wasip1.go" from "plugins/sdk/go/host_wasip1.go",
    "wasmill/log_wasip1.go" from "plugins/sdk/go/log_wasip1.go",
    "wasmill/memory_wasip1.go" from "plugins/sdk/go/memory_wasip1.go",
    "wasmill/outbox.go" from "plugins/sdk/go/outbox.go",
    "wasmill/requirements.txt" from "plugins/sdk/go/requirements.txt",
    "wasmill/state.go" from "plugins/sdk/go/state.go",
    "wasmill/trap_wasm.s" from "plugins/sdk/go/trap_wasm.s",
    "wasmill/wasmill.go" from "plugins/sdk/go/wasmill.go",
};

const C: &[File] = files! {
    "README.md" from "plugins/template/c/README.md",
    "events.jsonl" from "plugins/template/c/events.jsonl",
    ".gitignore" from "plugins/template/c/gitignore",
    "handler.c" from "plugins/template/c/handler.c",
    "wasmill/WIT.sha256" from "plugins/sdk/c/WIT.sha256",
    "wasmill/requirements.txt" from "plugins/sdk/c/requirements.txt",
    "wasmill/wasmill.c" from "plugins/sdk/c/wasmill.c",
    "wasmill/wasmill.h" from "plugins/sdk/c/wasmill.h",
    "wasmill/wasmill_json.c" from "plugins/sdk/c/wasmill_json.c",
    "wasmill/wasmill_json.h" from "plugins/sdk/c/wasmill_json.h",
    "wasmill/wit.c" from "plugins/sdk/c/wit.c",
    "wasmill/wit.h" from "plugins/sdk/c/wit.h",
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn count(folder: &Path) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let made = ["__pycache__", ".wasmill"];
        let counts = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
            true if made.iter().any(|made| entry.file_name() == *made) => 0,
            true => count(&entry.path()),
            false => 1,
        });
        counts.sum()
    }

    #[test]
    fn a_project_gets_every_file_that_is_there_for_it() {
        use clap::ValueEnum as _;
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for &language in Language::value_variants() {
            let folders = [
                "wit".to_owned(),
                format!("plugins/template/{}", language.as_str()),
                format!("plugins/sdk/{}", language.as_str()),
            ];
            let there: usize = folders.iter().map(|folder| count(&root.join(folder))).sum();
            let paths: BTreeSet<&str> = files(language).map(|file| file.path).collect();
            assert_eq!(paths.len(), there, "{language}: {paths:?}");
            assert!(
                paths.contains("README.md") && paths.contains(".gitignore") && paths.contains("events.jsonl")
            );
        }
    }
}
