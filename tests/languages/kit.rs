//! What the tests of all languages share.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::program::built_plugin;

/// A file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The built handler of orders in a language, by the name that `scripts/build-plugins` gives it.
pub(crate) fn orders(language: &str) -> String {
    if language == "rust" { "orders".to_owned() } else { format!("orders-{language}") }
}

/// A command of the program in `dir`, which can reach no network. Tools that builds install are shared with
/// `scripts/build-plugins`, which has fetched them.
pub(crate) fn wasmill(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmill"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    for name in ["WASMILL_BACKEND", "WASMILL_LOG", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "RUSTFLAGS"]
    {
        command.env_remove(name);
    }
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        // Nothing listens on this port.
        command.env(name, "http://127.0.0.1:1");
    }
    command.env("CARGO_NET_OFFLINE", "true").env("PIP_NO_INDEX", "1").env("npm_config_offline", "true");
    command.env("GOPROXY", "off");
    command.env("WASMILL_TOOLS", tools());
    // A compiler that `scripts/rust-wasm-toolchain` made, where rustup has no target for WebAssembly.
    let made = cache().join("rust-wasm/current/rustc");
    if std::env::var_os("WASMILL_RUSTC").is_none() && made.exists() {
        command.env("WASMILL_RUSTC", made);
    }
    command
}

fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("wasmill")
}

fn tools() -> PathBuf {
    std::env::var_os("WASMILL_TOOLS").map_or_else(|| cache().join("tools"), PathBuf::from)
}

/// Runs a command that must succeed, and gives its stdout.
pub(crate) fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// How a command ended and what it said.
pub(crate) fn told(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}\n{err}", output.status)
}

/// The lines of a JSON lines text.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Calls a built plugin with the events of a file: all must be answered as the file expects.
pub(crate) fn passes(plugin: &str, events: &Path) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let component = built_plugin(plugin);
    let (component, events) = (component.to_str().unwrap(), events.to_str().unwrap());
    let mut command = wasmill(dir.path(), &["plugin", "test", component, "--event", events, "--json"]);
    let output = command.output().unwrap();
    let tried = lines(&String::from_utf8_lossy(&output.stdout));
    let wrong: Vec<&Value> = tried.iter().filter(|line| line.get("unexpected").is_some()).collect();
    assert!(wrong.is_empty(), "{plugin}: {wrong:#?}");
    assert!(output.status.success(), "{plugin}: {}", told(&output));
    tried
}

/// Traps, timeouts and memory faults of a run.
pub(crate) fn faults(summary: &Value) -> [u64; 3] {
    ["trap", "timeout", "memory"].map(|kind| summary["faults"][kind].as_u64().unwrap())
}
