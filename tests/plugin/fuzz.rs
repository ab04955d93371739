//! Damaged components: loading either works or refuses, and never panics.

use std::sync::OnceLock;
use std::time::Duration;

use proptest::prelude::*;
use wasmill::plugin::{Host, HostSettings, PluginSpec, Refusal};

use crate::support::{guest, handler_component, written};

/// A component with a little of everything: data, a loop, a table.
fn small() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        handler_component(
            r#"(table 3 funcref) (elem (i32.const 0) func $f)
               (func $f (local i32) (loop (br_if 0 (local.get 0))))
               (data (i32.const 64) "some data")"#,
        )
    })
}

/// Loads the bytes; what is refused must be refused in words, not by a panic that was caught.
async fn load(bytes: &[u8]) -> Result<(), Refusal> {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = PluginSpec::new("fuzzed", written(&dir, "fuzzed.wasm", bytes));
    spec.limits.timeout = Duration::from_millis(200);
    spec.limits.memory_bytes_max = 16 << 20;
    // A cache of its own: what is loaded here is of no use to other tests.
    let host = Host::new(HostSettings { cache_dir: Some(dir.path().join("cache")) }).unwrap();
    let loaded = host.load(&spec).await.map_err(|error| error.refusal);
    if let Err(refusal) = &loaded {
        let text = refusal.to_string();
        assert!(!text.contains("panicked"), "{text}");
    }
    loaded.map(drop)
}

#[tokio::test]
async fn a_truncated_component_is_refused_wherever_it_ends() {
    load(small()).await.unwrap();
    for end in (0..small().len()).step_by(13) {
        assert!(load(&small()[..end]).await.is_err(), "the first {end} bytes");
    }
    let whole = std::fs::read(guest("passthrough")).unwrap();
    for part in 1..8 {
        let end = whole.len() * part / 8;
        assert!(load(&whole[..end]).await.is_err(), "the first {end} bytes of passthrough");
    }
}

#[tokio::test]
async fn a_component_with_a_hole_is_refused() {
    let mut bytes = std::fs::read(guest("passthrough")).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle..middle + 512].fill(0xff);
    assert!(matches!(load(&bytes).await, Err(Refusal::Compile { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_component_with_changed_bytes_is_loaded_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = small().to_vec();
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] ^= byte;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Whichever it is, it is said in words.
        let _ = runtime.block_on(load(&bytes));
    }
}
