//! Sockets are never granted. A guest that wants one is refused, and its log says so: the error that
//! it gets has no room for words.

use tracing::Level;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::ResolveAddressStream;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, Network};
use wasmtime_wasi::p2::bindings::sockets::tcp::TcpSocket;
use wasmtime_wasi::p2::bindings::sockets::udp::UdpSocket;

use super::state::State;

/// Takes the place of what would only say "access denied". Version numbers are those that the
/// linker knows; compatible ones are led here too.
pub(super) fn refuse(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:sockets/tcp-create-socket@0.2.12")?.func_wrap(
        "create-tcp-socket",
        |store: StoreContextMut<'_, State>, _: (IpAddressFamily,)| {
            Ok((denied::<TcpSocket>(&store, "a TCP socket"),))
        },
    )?;
    linker.instance("wasi:sockets/udp-create-socket@0.2.12")?.func_wrap(
        "create-udp-socket",
        |store: StoreContextMut<'_, State>, _: (IpAddressFamily,)| {
            Ok((denied::<UdpSocket>(&store, "a UDP socket"),))
        },
    )?;
    linker.instance("wasi:sockets/ip-name-lookup@0.2.12")?.func_wrap(
        "resolve-addresses",
        |store: StoreContextMut<'_, State>, (_, name): (Resource<Network>, String)| {
            Ok((denied::<ResolveAddressStream>(&store, &format!("the address of {name}")),))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn denied<T: 'static>(store: &StoreContextMut<'_, State>, what: &str) -> Result<Resource<T>, ErrorCode> {
    let text = format!(
        "{what} is refused: no plugin has sockets; HTTP goes through wasi:http, to the hosts of `allow_http`"
    );
    store.data().output.message(Level::WARN, "", &text);
    Err(ErrorCode::AccessDenied)
}
