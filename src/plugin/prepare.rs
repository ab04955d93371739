//! From a file to a component that is known to fit: everything about loading that needs no
//! instance. It reads, hashes and compiles, so it runs off the threads that drive the engine.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker};

use super::bindings::{self, v0_1};
use super::cache::Cache;
use super::error::{Refusal, chain};
use super::needs::Need;
use super::state::State;
use super::{code, inspect};

/// Largest file that is read as a component (512 MiB).
const COMPONENT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// WebAssembly begins so; the four bytes that follow tell modules from components.
const WASM_MAGIC: &[u8] = b"\0asm";
const CORE_MODULE: &[u8] = &[1, 0, 0, 0];

/// The handler's export.
const HANDLE: &str = "handle";

/// A file that was read.
pub(super) struct Source {
    pub(super) bytes: Vec<u8>,
    /// SHA-256, in hexadecimal.
    pub(super) digest: String,
}

/// Reads and hashes a file.
pub(super) fn read(path: &Path) -> Result<Source, Refusal> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Refusal::Read)?;
    file.take(COMPONENT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Refusal::Read)?;
    if bytes.len() as u64 > COMPONENT_BYTES_MAX {
        return Err(Refusal::TooLarge { bytes_max: COMPONENT_BYTES_MAX });
    }
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Source { bytes, digest })
}

/// Compiles a component, or takes its compiled form from the cache.
pub(super) fn compile(engine: &Engine, cache: Option<&Cache>, source: &Source) -> Result<Component, Refusal> {
    match source.bytes.split_at_checked(WASM_MAGIC.len()) {
        Some((WASM_MAGIC, rest)) if rest.starts_with(CORE_MODULE) => return Err(Refusal::CoreModule),
        Some((WASM_MAGIC, _)) => {}
        _ => return Err(Refusal::NotWasm { found: beginning(&source.bytes) }),
    }
    let key = Cache::key(engine, &source.digest);
    if let Some(code) = cache.and_then(|cache| cache.get(&key)) {
        match code::restore(engine, &code) {
            Ok(component) => return Ok(component),
            Err(error) => tracing::warn!("a compiled plugin is not used: {}", chain(&error)),
        }
    }
    let failed = |error| Refusal::Compile { reason: chain(&error) };
    let component = Component::from_binary(engine, &source.bytes).map_err(failed)?;
    if let Some(cache) = cache {
        cache.put(&key, &component.serialize().map_err(failed)?);
    }
    Ok(component)
}

/// Checks that a component is a handler that this host can call, and says what it needs.
pub(super) fn check(
    linker: &Linker<State>,
    component: &Component,
) -> Result<(v0_1::HandlerPre<State>, Vec<Need>), Refusal> {
    let engine = linker.engine();
    let ty = component.component_type();
    let Some(ComponentItem::ComponentFunc(handle)) = ty.get_export(engine, HANDLE).map(|export| export.ty)
    else {
        return Err(Refusal::NoHandler { found: inspect::exports(engine, component) });
    };
    let imports = inspect::imports(engine, component);
    if let Some(version) = inspect::contract(&imports).filter(|version| !bindings::serves(version)) {
        return Err(Refusal::Contract { found: version.to_owned() });
    }
    let needs = Need::of(&imports);
    let linked = linker
        .instantiate_pre(component)
        .map_err(|error| Refusal::Import { reason: chain(&error), found: imports })?;
    let handler = v0_1::HandlerPre::new(linked).map_err(|error| Refusal::HandlerType {
        reason: chain(&error),
        found: inspect::signature(&handle),
    })?;
    Ok((handler, needs))
}

/// How a file begins that is no WebAssembly.
fn beginning(bytes: &[u8]) -> String {
    match bytes.get(..bytes.len().min(40)) {
        Some(b"") | None => "an empty file".to_owned(),
        Some(first) => match std::str::from_utf8(first) {
            Ok(text) => format!("text that begins with {text:?}"),
            Err(_) => "another binary format".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::beginning;

    #[test]
    fn what_is_no_webassembly_is_described() {
        assert_eq!(beginning(b""), "an empty file");
        assert_eq!(beginning(b"(module)\n"), r#"text that begins with "(module)\n""#);
        assert_eq!(beginning(b"\x7fELF\xff\xff"), "another binary format");
    }
}
