//! The house: modules depend on each other one way only, and the leaves know no runtime.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each module at the top of `src` may use of the crate.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    (
        "cli",
        &[
            "backend",
            "bench",
            "config",
            "engine",
            "event",
            "grants",
            "http",
            "metrics",
            "outcome",
            "plugin",
            "query",
            "retry",
            "state",
            "target",
            "telemetry",
        ],
    ),
    ("bench", &["backend", "engine", "event", "grants", "outcome", "plugin", "retry", "state", "target"]),
    ("http", &["engine", "metrics"]),
    (
        "engine",
        &[
            "backend",
            "config",
            "event",
            "grants",
            "metrics",
            "outcome",
            "plugin",
            "retry",
            "state",
            "telemetry",
        ],
    ),
    ("metrics", &["backend", "event", "outcome"]),
    ("telemetry", &["backend", "event", "outcome"]),
    ("backend", &["event", "outcome", "query", "retry", "routing", "state", "target"]),
    ("plugin", &["event", "grants", "outcome", "state"]),
    ("config", &["event", "grants", "outcome", "retry", "target"]),
    ("grants", &["event", "state"]),
    ("outcome", &["event", "retry", "state"]),
    ("query", &["event"]),
    ("state", &["event"]),
    ("event", &[]),
    ("retry", &[]),
    ("routing", &[]),
    ("target", &[]),
];

/// Modules that know no runtime, no clock and no configuration language.
const LEAVES: &[&str] = &["event", "outcome", "query", "retry", "routing", "state", "target"];
const NOT_IN_LEAVES: &[&str] =
    &["tokio", "toml::", "SystemTime", "Instant::now", "Timestamp::now", "std::fs", "std::net"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The module at the top of `src` that a file belongs to.
fn module(file: &Path, root: &Path) -> String {
    let first = file.strip_prefix(root).unwrap().components().next().unwrap();
    first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// The modules that a text names behind `crate::` (or `wasmill::`, in the program's edge), comments
/// left out.
fn used(text: &str) -> Vec<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    let mut used = Vec::new();
    for prefix in ["crate::", "wasmill::"] {
        for (at, _) in code.match_indices(prefix) {
            let rest = &code[at + prefix.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap().split(',').map(str::trim).collect(),
                None => vec![rest],
            };
            for name in names {
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
                used.push(name[..end].to_owned());
            }
        }
    }
    used
}

#[test]
fn dependencies_point_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rules: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "only {} files: the walk is broken", files.len());
    let mut wrong = Vec::new();
    for file in &files {
        let own = module(file, &root);
        if own == "lib" {
            continue;
        }
        let allowed = rules
            .get(own.as_str())
            .unwrap_or_else(|| panic!("`{own}` has no place in the house: name it here"));
        let text = std::fs::read_to_string(file).unwrap();
        for name in used(&text) {
            if name != own && rules.contains_key(name.as_str()) && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{} uses {name}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn leaves_know_no_runtime() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut looked_at = 0;
    for file in files.iter().filter(|file| LEAVES.contains(&module(file, &root).as_str())) {
        looked_at += 1;
        let text = std::fs::read_to_string(file).unwrap();
        for forbidden in NOT_IN_LEAVES {
            assert!(!text.contains(forbidden), "{} names {forbidden}", file.display());
        }
    }
    assert!(looked_at >= LEAVES.len());
}

#[test]
fn the_finder_finds() {
    let text = "use crate::backend::Error; // crate::config\nuse crate::{event, outcome::Fault};\nlet x = crate::plugin::Host;";
    assert_eq!(used(text), ["backend", "event", "outcome", "plugin"]);
}
