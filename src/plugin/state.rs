//! What a store holds for its guest, and what the host answers when the guest asks.

use std::sync::Arc;
use std::time::Instant;

use tracing::Level;
use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::{FsPerms, ResourceTable, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::bindings::v0_1::wasi::config::store as config;
use super::bindings::v0_1::wasi::logging::logging;
use super::http::Client;
use super::limits::{Guard, Limits};
use super::meter::Meter;
use super::output::{GuestStream, Output, Stream};
use super::staging::Staging;
use super::{effects, sockets};
use crate::grants::Grants;

/// Handles that a guest may hold at once: streams, pollables, requests.
const HANDLES_MAX: usize = 10_000;

/// Random bytes that a guest may ask for at once.
const RANDOM_BYTES_MAX: u64 = 1024 * 1024;

/// The settings that the operator gave to a plugin.
pub(super) type Config = Arc<[(String, String)]>;

/// One instance's side of the host.
pub(super) struct State {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    hooks: Client,
    pub(super) table: ResourceTable,
    config: Config,
    pub(super) staging: Staging,
    pub(super) guard: Guard,
    pub(super) output: Output,
    pub(super) meter: Meter,
    /// When the present call is cut off.
    pub(super) deadline: Instant,
}

impl State {
    /// A guest that sees its settings, the clocks, random numbers, an empty standard input, and what
    /// is granted to it.
    ///
    /// # Errors
    /// Says which granted directory cannot be opened.
    pub(super) fn new(
        config: Config,
        grants: &Arc<Grants>,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<Self, String> {
        let output = Output::new(limits.lines_max);
        let stream = |stream| GuestStream { output: output.clone(), stream };
        let mut wasi = WasiCtx::builder();
        wasi.stdout(stream(Stream::Stdout))
            .stderr(stream(Stream::Stderr))
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(RANDOM_BYTES_MAX)
            .envs(&grants.env);
        for dir in &grants.dirs {
            let perms = if dir.writable { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
            wasi.preopened_dir(&dir.host, &dir.guest, perms).map_err(|error| {
                format!("the directory {} of `allow_dirs` cannot be opened: {error}", dir.host.display())
            })?;
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        let guard = Guard::new(limits.memory_bytes_max);
        let staging = Staging::new(Arc::clone(grants), limits.effects);
        Ok(Self {
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            hooks: Client::new(Arc::clone(grants), output.clone()),
            table,
            config,
            staging,
            guard,
            output,
            meter: Meter::new(limits.cpu_max),
            deadline,
        })
    }
}

/// Everything that a component can import.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    sockets::refuse(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    effects::link(linker)?;
    config::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    logging::add_to_linker::<State, HasSelf<State>>(linker, |state| state)
}

/// What [`link`] offers, in words, for a component that wants something else.
pub(super) const OFFER: &str = "WASI 0.2 with wasi:http, wasi:keyvalue@0.2.0-draft, wasi:config/store@0.2.0-rc.1, wasi:logging/logging@0.1.0-draft and wasmill:handler/outbox@0.1.0";

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.hooks }
    }
}

impl config::Host for State {
    fn get(&mut self, key: String) -> Result<Option<String>, config::Error> {
        Ok(self.config.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone()))
    }

    fn get_all(&mut self) -> Result<Vec<(String, String)>, config::Error> {
        Ok(self.config.to_vec())
    }
}

impl logging::Host for State {
    fn log(&mut self, level: logging::Level, context: String, message: String) {
        let level = match level {
            logging::Level::Trace => Level::TRACE,
            logging::Level::Debug => Level::DEBUG,
            logging::Level::Info => Level::INFO,
            logging::Level::Warn => Level::WARN,
            logging::Level::Error | logging::Level::Critical => Level::ERROR,
        };
        self.output.message(level, &context, &message);
    }
}
