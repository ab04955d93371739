//! Makes a component of a core module, for toolchains that yield one: what `wit/` says of the handler's
//! world is embedded, and calls of WASI preview 1 go through the adapter.

use std::path::Path;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata, metadata};
use wit_parser::Resolve;

use super::command::failed;
use crate::cli::exit::Exit;

/// The world that is embedded where the module does not name its own.
const WORLD: &str = "handler";

/// WebAssembly's first eight bytes for a core module.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// The component in `bytes`, or one around the core module in `bytes`.
///
/// # Errors
/// The module does not fit the world.
pub(super) fn component(bytes: Vec<u8>, wit: &Path) -> Result<Vec<u8>, Exit> {
    if !bytes.starts_with(CORE_MODULE) {
        return Ok(bytes);
    }
    make(bytes, wit).map_err(|error| failed(&format!("the module cannot become a component: {error:#}")))
}

fn make(module: Vec<u8>, wit: &Path) -> anyhow::Result<Vec<u8>> {
    let mut module = without_debug_info(&module)?;
    // wit-bindgen's own bindings name their world already.
    let (typed, _) = metadata::decode(&module)?;
    if typed.is_none() {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(wit)?;
        let world = resolve.select_world(&[package], Some(WORLD))?;
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    }
    let encoder = ComponentEncoder::default().validate(true).module(&module)?;
    encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?.encode()
}

/// The module without what only a debugger reads: a C library brings a megabyte of it. The names of
/// functions stay, for the backtrace of a trap.
fn without_debug_info(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut kept = module.get(..CORE_MODULE.len()).unwrap_or_default().to_vec();
    let mut end = kept.len();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let Some((_, range)) = payload.as_section() else { continue };
        // From the end of the section before: its own head counts too.
        let section = std::mem::replace(&mut end, range.end)..range.end;
        let debug =
            matches!(&payload, Payload::CustomSection(custom) if custom.name().starts_with(".debug_"));
        if !debug {
            kept.extend_from_slice(module.get(section).unwrap_or_default());
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(id: u8, body: &[u8]) -> Vec<u8> {
        [&[id, u8::try_from(body.len()).unwrap()], body].concat()
    }

    #[test]
    fn only_debug_info_goes() {
        let (kept, gone) = (section(0, b"\x04mineXYZ"), section(0, b"\x0b.debug_infoXYZ"));
        let types = section(1, b"\0");
        let all = [CORE_MODULE, &gone, &types, &kept, &gone].concat();
        assert_eq!(without_debug_info(&all).unwrap(), [CORE_MODULE, &types, &kept].concat());
        assert!(without_debug_info(&[CORE_MODULE, b"\x01\x05a"].concat()).is_err());
    }

    #[test]
    fn a_module_that_does_not_fit_is_refused_in_words() {
        let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("wit");
        let refused = |bytes: &[u8]| match component(bytes.to_vec(), &wit) {
            Err(Exit::Failed(error)) => format!("{error:#}"),
            other => panic!("{other:?}"),
        };
        let message = refused(CORE_MODULE);
        assert!(message.contains("cannot become a component") && message.contains("handle"), "{message}");
        assert!(refused(&[CORE_MODULE, b"\x01\x05a"].concat()).contains("cannot become a component"));
    }
}
