//! Loading: what is refused and how it is told, the cache of compiled plugins, inspection.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use wasmill::outcome::{Effects, Outcome};
use wasmill::plugin::{Host, HostError, HostSettings, PluginSpec, Refusal};

use crate::support::{DELIVERY, event, guest, handler_component, host, written};

/// The refusal of a file, and the message without the file's folder.
async fn refused(path: &Path, adapt: impl FnOnce(&mut PluginSpec)) -> (Refusal, String) {
    let mut spec = PluginSpec::new("bad", path);
    adapt(&mut spec);
    let error = host().load(&spec).await.err().expect("it must be refused");
    let folder = format!("{}/", path.parent().unwrap().display());
    let message = error.to_string().replace(&folder, "");
    (error.refusal, message)
}

/// The same for a component in text form.
async fn refused_text(text: &str) -> (Refusal, String) {
    let dir = tempfile::tempdir().unwrap();
    refused(&written(&dir, "bad.wasm", &wat::parse_str(text).unwrap()), |_| {}).await
}

#[tokio::test]
async fn a_missing_file() {
    let (refusal, message) = refused(Path::new("/nowhere/bad.wasm"), |_| {}).await;
    assert!(matches!(refusal, Refusal::Read(_)));
    assert_eq!(
        message,
        "plugin `bad` (bad.wasm) cannot be loaded: No such file or directory (os error 2); check the plugin's `path`"
    );
}

#[tokio::test]
async fn a_text_file() {
    let dir = tempfile::tempdir().unwrap();
    let (refusal, message) = refused(&written(&dir, "bad.wasm", b"fn main() {}\n"), |_| {}).await;
    assert!(matches!(refusal, Refusal::NotWasm { .. }));
    assert_eq!(
        message,
        r#"plugin `bad` (bad.wasm) cannot be loaded: it is not WebAssembly but text that begins with "fn main() {}\n"; `path` must name a built component (.wasm)"#
    );
}

#[tokio::test]
async fn a_core_module() {
    let (refusal, message) = refused_text("(module)").await;
    assert!(matches!(refusal, Refusal::CoreModule));
    assert_eq!(
        message,
        "plugin `bad` (bad.wasm) cannot be loaded: it is a core module, not a component; build it for wasm32-wasip2, or wrap it with `wasm-tools component new`"
    );
}

#[tokio::test]
async fn a_component_that_does_not_compile() {
    let dir = tempfile::tempdir().unwrap();
    let (refusal, message) = refused(&written(&dir, "bad.wasm", b"\0asm\x0d\0\x01\0\xff\xff"), |_| {}).await;
    assert!(matches!(refusal, Refusal::Compile { .. }));
    assert!(
        message.starts_with("plugin `bad` (bad.wasm) cannot be loaded: it does not compile: "),
        "{message}"
    );
}

#[tokio::test]
async fn another_world() {
    let (refusal, message) = refused(&guest("wrong-world"), |_| {}).await;
    assert!(matches!(refusal, Refusal::NoHandler { .. }));
    assert_eq!(
        message,
        "plugin `bad` (wrong-world.wasm) cannot be loaded: it exports no function `handle` but greet: func(name: string) -> string; build it for the world `handler` of wasmill:handler@0.1.0"
    );
}

/// A component that exports `handle` as a function without parameters, after `imports`.
fn other_handle(imports: &str) -> String {
    format!(
        r#"(component {imports}
            (core module $m (func (export "handle") (result i32) (i32.const 0)))
            (core instance $i (instantiate $m))
            (func (export "handle") (result u32) (canon lift (core func $i "handle"))))"#
    )
}

#[tokio::test]
async fn a_handle_of_another_type() {
    let (refusal, message) = refused_text(&other_handle("")).await;
    assert!(matches!(refusal, Refusal::HandlerType { .. }));
    assert!(
        message.contains("its export `handle` has another type than wasmill:handler@0.1.0 says: "),
        "{message}"
    );
    assert!(message.contains("(found: func() -> u32); build it for that world"), "{message}");
}

#[tokio::test]
async fn another_version_of_the_contract() {
    let imports = r#"(import "wasmill:handler/types@0.2.0" (instance))"#;
    let (refusal, message) = refused_text(&other_handle(imports)).await;
    assert!(matches!(refusal, Refusal::Contract { .. }));
    assert!(message.ends_with(
        "it is built for wasmill:handler@0.2.0, this host serves 0.1.0; build it for that version"
    ));
}

#[tokio::test]
async fn an_import_that_nothing_satisfies() {
    let imports = r#"(import "other:thing/api@1.0.0" (instance (export "f" (func))))"#;
    let (refusal, message) = refused_text(&other_handle(imports)).await;
    assert!(matches!(refusal, Refusal::Import { found, .. } if found == ["other:thing/api@1.0.0"]));
    assert!(message.contains("`other:thing/api@1.0.0`"), "{message}");
    assert!(message.contains("this host offers WASI 0.2"), "{message}");
}

#[tokio::test]
async fn a_component_that_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let trap = written(&dir, "trap.wasm", &handler_component("(func $s unreachable) (start $s)"));
    let (refusal, message) = refused(&trap, |_| {}).await;
    assert!(matches!(refusal, Refusal::Start { .. }));
    assert!(message.contains("it does not start: the guest gave up (a panic or an abort)"), "{message}");

    let endless = written(&dir, "endless.wasm", &handler_component("(func $s (loop (br 0))) (start $s)"));
    let short = |spec: &mut PluginSpec| spec.limits.timeout = Duration::from_millis(100);
    let (_, message) = refused(&endless, short).await;
    assert!(
        message.contains(
            "it does not start: no answer within 100 ms (`timeout` raises it): the guest was still running"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn less_memory_than_it_starts_with() {
    let (_, message) = refused(&guest("passthrough"), |spec| spec.limits.memory_bytes_max = 65536).await;
    assert!(message.contains("its limit is 1 MiB (`max_memory` raises it)"), "{message}");
}

fn cached_files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Loads and calls `passthrough` with a host whose cache is `dir`.
async fn run_cached(dir: &Path) {
    let host = Host::new(HostSettings { cache_dir: Some(dir.to_owned()) }).unwrap();
    let plugin = host.load(&PluginSpec::new("p", guest("passthrough"))).await.unwrap();
    let outcome = plugin.handle(&event("t", "{}"), &DELIVERY).await;
    assert_eq!(outcome, Ok(Outcome::Ack(Effects::default())));
}

#[tokio::test]
async fn the_compiled_form_is_kept_and_taken_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    run_cached(&cache).await;
    let [file] = cached_files(&cache).try_into().unwrap();
    let compiled = fs::metadata(&file).unwrap();
    assert_eq!(compiled.permissions().mode() & 0o777, 0o600);

    // A use leaves the file as it is, and sets its time.
    let bytes = fs::read(&file).unwrap();
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::open(&file).unwrap().set_modified(past).unwrap();
    let inode = |file: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(file).unwrap());
    let before = inode(&file);
    run_cached(&cache).await;
    assert_eq!(inode(&file), before, "it was not written again");
    assert_ne!(fs::metadata(&file).unwrap().modified().unwrap(), past, "it was used");
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

#[tokio::test]
async fn a_damaged_file_in_the_cache_is_compiled_anew() {
    let dir = tempfile::tempdir().unwrap();
    run_cached(dir.path()).await;
    let [file] = cached_files(dir.path()).try_into().unwrap();
    let good = fs::read(&file).unwrap();
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    for bad in [&damaged, &good[..good.len() / 2], &[]] {
        fs::write(&file, bad).unwrap();
        run_cached(dir.path()).await;
        assert_ne!(fs::read(&file).unwrap(), bad, "a good one takes its place");
    }
}

#[tokio::test]
async fn a_cache_that_others_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = Host::new(HostSettings { cache_dir: Some(dir.path().to_owned()) }).err().unwrap();
    assert!(matches!(error, HostError::CacheDir { .. }));
    assert!(error.to_string().contains("others can write it (mode 777)"), "{error}");
}

#[tokio::test]
async fn inspection_tells_what_a_file_is() {
    let found = host().inspect(&guest("passthrough")).await.unwrap();
    assert_eq!(found.refusal, None);
    assert_eq!(found.contract.as_deref(), Some("0.1.0"));
    assert_eq!(found.digest.len(), 64);
    assert!(
        found.imports.iter().any(|name| name == "wasi:logging/logging@0.1.0-draft"),
        "{:?}",
        found.imports
    );
    assert_eq!(found.exports.len(), 1);
    assert!(found.exports[0].starts_with("handle: func(event: record { id: string, "), "{:?}", found.exports);

    let found = host().inspect(&guest("wrong-world")).await.unwrap();
    assert_eq!(found.contract, None);
    assert_eq!(found.exports, ["greet: func(name: string) -> string"]);
    assert!(found.refusal.unwrap().starts_with("it exports no function `handle`"));

    let dir = tempfile::tempdir().unwrap();
    let module = written(&dir, "m.wasm", &wat::parse_str("(module)").unwrap());
    let found = host().inspect(&module).await.unwrap();
    assert_eq!((found.bytes, found.imports.len()), (8, 0));
    assert!(found.refusal.unwrap().starts_with("it is a core module"));
    assert!(host().inspect(Path::new("/nowhere.wasm")).await.is_err());
}
