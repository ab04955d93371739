//! The process's one WebAssembly engine, and how plugins are loaded into it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, WasmBacktraceDetails};

use super::cache::Cache;
use super::error::{HostError, LoadError, Refusal, chain};
use super::inspect::{self, Inspection};
use super::needs::Need;
use super::prepare::{self, Source};
use super::state::{self, State};
use super::{Plugin, PluginSpec};

/// How often a running guest is interrupted: to let others run on its thread, and to see whether
/// its time is over.
const TICK: Duration = Duration::from_millis(5);

/// A guest's call stack. What remains of an attempt's stack, as much again, is for the host's own
/// functions that the guest calls.
const GUEST_STACK_BYTES: usize = 1024 * 1024;
const STACK_BYTES: usize = 2 * GUEST_STACK_BYTES;

/// How the host is set up.
#[derive(Clone, Debug, Default)]
pub struct HostSettings {
    /// Where compiled plugins are kept: a folder of this user that no one else can write; it is
    /// made where it is missing. Without it `$XDG_CACHE_HOME/wasmill/compiled`, or that below
    /// `~/.cache`, is used if it can be, and nothing is kept if it cannot.
    pub cache_dir: Option<PathBuf>,
}

/// The plugin host: one for the process.
pub struct Host {
    engine: Engine,
    linker: Linker<State>,
    cache: Option<Cache>,
    /// Closed when the host is dropped, which ends the ticking thread.
    _ticking: mpsc::Sender<()>,
}

impl Host {
    /// Starts the engine, and the thread that interrupts guests.
    ///
    /// # Errors
    /// The named cache folder cannot be used, or the engine does not start on this machine.
    pub fn new(settings: HostSettings) -> Result<Arc<Self>, HostError> {
        let failed = |error| HostError::Engine(chain(&error));
        let engine = Engine::new(&config()).map_err(failed)?;
        let mut linker = Linker::new(&engine);
        state::link(&mut linker).map_err(failed)?;
        let cache = open_cache(settings.cache_dir)?;
        let ticking = tick(engine.clone()).map_err(|error| HostError::Engine(error.to_string()))?;
        Ok(Arc::new(Self { engine, linker, cache, _ticking: ticking }))
    }

    /// Reads, compiles, checks and tries a plugin. Compiling takes seconds for large components;
    /// it runs beside the async threads, on all cores.
    ///
    /// # Errors
    /// Says what is wrong with the file and what to do about it.
    pub async fn load(self: &Arc<Self>, spec: &PluginSpec) -> Result<Arc<Plugin>, LoadError> {
        let refused = |refusal| LoadError { plugin: spec.name.clone(), path: spec.path.clone(), refusal };
        let host = Arc::clone(self);
        let path = spec.path.clone();
        let prepared = aside(move || {
            let source = prepare::read(&path)?;
            let component = host.compile(&source)?;
            Ok((source.digest, prepare::check(&host.linker, &component)?))
        });
        let (digest, handler) = prepared.await.map_err(refused)?;
        Plugin::start(Arc::clone(self), spec, digest.into(), handler).await.map_err(refused)
    }

    /// Says what a file is made of, also where it cannot be loaded.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn inspect(self: &Arc<Self>, path: &Path) -> Result<Inspection, Refusal> {
        let host = Arc::clone(self);
        let spec = PluginSpec::new(path.display().to_string(), path);
        let path = path.to_owned();
        let inspected = aside(move || {
            let source = prepare::read(&path)?;
            let mut inspection = Inspection {
                digest: source.digest.clone(),
                bytes: source.bytes.len() as u64,
                contract: None,
                imports: Vec::new(),
                needs: Vec::new(),
                exports: Vec::new(),
                producers: Vec::new(),
                refusal: None,
            };
            match host.compile(&source) {
                Ok(component) => {
                    inspection.imports = inspect::imports(&host.engine, &component);
                    inspection.needs = Need::of(&inspection.imports);
                    inspection.exports = inspect::exports(&host.engine, &component);
                    inspection.producers = inspect::producers(&source.bytes);
                    inspection.contract = inspect::contract(&inspection.imports).map(str::to_owned);
                }
                Err(refusal) => inspection.refusal = Some(refusal.to_string()),
            }
            Ok(inspection)
        });
        let mut inspection = inspected.await?;
        if inspection.refusal.is_none() {
            inspection.refusal = self.load(&spec).await.err().map(|error| error.refusal.to_string());
        }
        Ok(inspection)
    }

    fn compile(&self, source: &Source) -> Result<Component, Refusal> {
        prepare::compile(&self.engine, self.cache.as_ref(), source)
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// Everything here changes the compiled code, and so the key under which it is cached.
fn config() -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(GUEST_STACK_BYTES)
        .async_stack_size(STACK_BYTES)
        // By default a variable of the environment decides.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config
}

/// A folder that was named must work; the usual one is used if it works.
fn open_cache(dir: Option<PathBuf>) -> Result<Option<Cache>, HostError> {
    if let Some(dir) = dir {
        return match Cache::open(&dir) {
            Ok(cache) => Ok(Some(cache)),
            Err(reason) => Err(HostError::CacheDir { dir, reason }),
        };
    }
    let Some(dir) = Cache::default_dir() else {
        tracing::warn!("compiled plugins are not kept: neither XDG_CACHE_HOME nor HOME names a folder");
        return Ok(None);
    };
    let opened = Cache::open(&dir);
    if let Err(reason) = &opened {
        tracing::warn!(dir = %dir.display(), "compiled plugins are not kept: {reason}");
    }
    Ok(opened.ok())
}

/// Starts the thread that advances the engine's epoch. A thread of its own, since a runtime that is
/// busy with guests would be late with it just when it is needed.
fn tick(engine: Engine) -> std::io::Result<mpsc::Sender<()>> {
    let (alive, host) = mpsc::channel::<()>();
    std::thread::Builder::new().name("wasmill-tick".to_owned()).spawn(move || {
        while host.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            engine.increment_epoch();
        }
    })?;
    Ok(alive)
}

/// Runs what takes long on a thread that may be blocked.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The compiler panicked, or the runtime is ending.
        Err(error) => Err(Refusal::Compile { reason: error.to_string() }),
    }
}
