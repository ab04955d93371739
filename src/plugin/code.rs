//! Compiled code that comes back from the disk: the one place that has to trust it.

use wasmtime::Engine;
use wasmtime::component::Component;

use super::cache::Trusted;

/// Makes a component of code that was compiled before.
///
/// # Errors
/// The code was made by another version or with other settings, or does not fit this machine.
#[allow(unsafe_code)]
pub(super) fn restore(engine: &Engine, code: &Trusted) -> wasmtime::Result<Component> {
    // SAFETY: the bytes must be what `Component::serialize` gave. `Trusted` is made by the cache
    // only, from a file that belongs to this user, that no one else can write, in a folder of the
    // same kind, whose checksum shows that it is whole; and only this program writes there. The
    // engine itself refuses code of another version or of other settings.
    unsafe { Component::deserialize(engine, code.bytes()) }
}
