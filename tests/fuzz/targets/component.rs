//! The bytes of a component → a plugin that can be called, or a refusal in words.

use std::time::Duration;

use wasmill::plugin::{Host, HostSettings, PluginSpec};

/// The input is the file. It is looked at as `plugin inspect` does, and loaded as `run` does: twice,
/// since the second time it can come from the cache of compiled code.
pub(crate) fn component(input: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fuzzed.wasm");
    std::fs::write(&path, input).unwrap();
    let mut spec = PluginSpec::new("fuzzed", &path);
    spec.limits.timeout = Duration::from_millis(200);
    spec.limits.memory_bytes_max = 16 << 20;
    let host = Host::new(HostSettings { cache_dir: Some(dir.path().join("cache")) }).unwrap();
    super::bounded("loading a component", async {
        if let Err(error) = host.inspect(&path).await {
            said(&error.to_string());
        }
        for _ in 0..2 {
            if let Err(error) = host.load(&spec).await {
                said(&error.to_string());
            }
        }
    });
}

fn said(why: &str) {
    assert!(!why.is_empty() && !why.contains("panicked"), "{why}");
}
