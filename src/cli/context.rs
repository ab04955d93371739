//! Which store a command works on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Global;
use super::exit::Exit;
use crate::backend::redis::Redis;
use crate::backend::sqlite::{Clock, Location, Mode, Sqlite};
use crate::backend::{Settings, Shared, Synchronous};
use crate::config::{self, Config};
use crate::event::{GroupKey, Name};
use crate::plugin::{Host, HostSettings};
use crate::target::{DEFAULT_FILE, Identity, Target, Tls};

/// The pipeline file that is read when no one names one.
const DEFAULT_CONFIG: &str = "wasmill.toml";

/// A command's surroundings.
pub(super) struct Context {
    global: Global,
}

/// A store that is open.
pub(super) struct Store {
    pub(super) backend: Shared,
    pub(super) target: Target,
    /// The same store, where it is a Redis server, for what only such a one can be asked.
    pub(super) redis: Option<Arc<Redis>>,
}

/// Whether a command may create the embedded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It writes.
    Create,
    /// It only looks: a file that is not there stays so.
    Existing,
}

impl Context {
    pub(super) fn new(global: Global) -> Self {
        Self { global }
    }

    pub(super) fn json(&self) -> bool {
        self.global.json
    }

    /// What the pipeline file says of the store, for a command that does not run it.
    pub(super) fn store(&self) -> Result<config::Store, Exit> {
        let path = match &self.global.config {
            Some(path) => path.as_path(),
            None if Path::new(DEFAULT_CONFIG).exists() => Path::new(DEFAULT_CONFIG),
            None => return Ok(config::Store::default()),
        };
        config::load_store(path, &variable).map_err(Exit::Config)
    }

    /// Reads and validates the pipeline file that a command was given as its argument.
    pub(super) fn load_argument(&self, path: &Path) -> Result<Config, Exit> {
        match &self.global.config {
            None => self.load(path),
            Some(_) => Err(Exit::usage("this command takes its file as an argument: leave --config out")),
        }
    }

    /// Reads and validates the pipeline file that is named, or stands in the working directory.
    pub(super) fn load_if_there(&self) -> Result<Option<Config>, Exit> {
        match &self.global.config {
            Some(path) => self.load(path).map(Some),
            None if Path::new(DEFAULT_CONFIG).exists() => self.load(Path::new(DEFAULT_CONFIG)).map(Some),
            None => Ok(None),
        }
    }

    /// Reads a pipeline file again.
    pub(super) fn reader(&self, path: &Path) -> crate::engine::ReadConfig {
        let path = path.to_owned();
        Box::new(move || config::load(&path, &variable))
    }

    /// Reads and validates a pipeline file.
    fn load(&self, path: &Path) -> Result<Config, Exit> {
        config::load(path, &variable).map_err(Exit::Config)
    }

    /// Opens the store that the command line, the file and the defaults name, in this order.
    pub(super) async fn open(
        &self,
        backend: &config::Backend,
        engine: &config::Engine,
        access: Access,
    ) -> Result<Store, Exit> {
        let target = self.target(backend)?;
        let defaults = Settings::default();
        let namespace = self.global.namespace.clone().or_else(|| backend.namespace.clone());
        let settings = Settings {
            namespace: namespace.unwrap_or_else(|| defaults.namespace.clone()),
            event_bytes_max: engine.max_event_bytes,
            synchronous: backend.synchronous.map_or(defaults.synchronous, |synchronous| match synchronous {
                config::Synchronous::Full => Synchronous::Full,
                config::Synchronous::Normal => Synchronous::Normal,
            }),
            ..defaults
        };
        if settings.namespace.is_empty() {
            return Err(Exit::usage("a namespace cannot be empty"));
        }
        let location = match &target {
            Target::Redis(url) => {
                let redis = Redis::connect(url, &settings).await;
                let redis = Arc::new(redis.map_err(|error| Exit::from(error).context(format!("{target}")))?);
                return Ok(Store { backend: Arc::clone(&redis) as Shared, target, redis: Some(redis) });
            }
            Target::Sqlite(path) => Location::File(path.clone()),
            Target::Memory => Location::Memory,
        };
        let mode = match access {
            Access::Create => Mode::Create,
            Access::Existing => Mode::Existing,
        };
        let backend = Arc::new(Sqlite::open(location, mode, &settings, Clock::System).await?);
        Ok(Store { backend, target, redis: None })
    }

    /// The store of a command that does not run pipelines.
    pub(super) async fn open_store(&self, access: Access) -> Result<Shared, Exit> {
        let store = self.store()?;
        if self.global.namespace.as_deref() == Some("") {
            return Err(Exit::usage("a namespace cannot be empty"));
        }
        if access == Access::Existing
            && let Some(file) = self.missing_file(&store.backend)?
        {
            return Err(Exit::Failed(anyhow::anyhow!(
                "there is no store yet: `{}` does not exist (`append`, `run` and `stream create` make it; \
                 `--backend` names another one)",
                file.display()
            )));
        }
        Ok(self.open(&store.backend, &store.engine, access).await?.backend)
    }

    /// The embedded file that is meant, where it is not there yet.
    pub(super) fn missing_file(&self, backend: &config::Backend) -> Result<Option<PathBuf>, Exit> {
        match self.target(backend)? {
            Target::Sqlite(path) if !path.exists() => Ok(Some(path)),
            _ => Ok(None),
        }
    }

    /// Whether the store of a command that does not run pipelines is a Redis server, which others than
    /// we may use too.
    pub(super) fn is_redis(&self) -> Result<bool, Exit> {
        Ok(matches!(self.target(&self.store()?.backend)?, Target::Redis(_)))
    }

    /// The store that a command is to make for itself: the one that is named on the command line, or in
    /// the file that is named there. `None` where no one names one: a file that merely stands in the
    /// working directory is not asked.
    pub(super) fn named_target(&self) -> Result<Option<Target>, Exit> {
        if self.global.namespace.is_some() {
            return Err(Exit::usage("this command has a namespace of its own: leave --namespace out"));
        }
        match (&self.global.backend, &self.global.config) {
            (Some(_), None) => self.target(&config::Backend::default()).map(Some),
            (Some(_), Some(_)) => self.target(&self.store()?.backend).map(Some),
            (None, Some(_)) => {
                let backend = self.store()?.backend;
                let target = backend.target.clone();
                target.map(|target| self.with_tls(target, &backend.tls)).transpose()
            }
            (None, None) => Ok(None),
        }
    }

    fn target(&self, backend: &config::Backend) -> Result<Target, Exit> {
        let Some(url) = &self.global.backend else {
            let target = backend.target.clone().unwrap_or_else(|| Target::Sqlite(DEFAULT_FILE.into()));
            return self.with_tls(target, &backend.tls);
        };
        let target = Target::parse(url, &PathBuf::new());
        let target = target.map_err(|error| Exit::usage(format!("--backend: {error}")))?;
        // The file's keys are for the file's server; they do for another one by TLS.
        let tls = if target.is_tls() { &backend.tls } else { &Tls::default() };
        self.with_tls(target, tls)
    }

    /// The store with the files for TLS that the command line or, without, the pipeline file names.
    fn with_tls(&self, target: Target, file: &Tls) -> Result<Target, Exit> {
        let identity = match (&self.global.tls_cert, &self.global.tls_key) {
            (Some(cert), Some(key)) => Some(Identity { cert: cert.clone(), key: key.clone() }),
            (None, None) => file.identity.clone(),
            _ => return Err(Exit::usage("--tls-cert and --tls-key come together")),
        };
        let ca = self.global.tls_ca.clone().or_else(|| file.ca.clone());
        target.with_tls(Tls { ca, identity }).map_err(|error| Exit::usage(error.to_string()))
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A stream's name as an argument: one that exists may have any.
pub(super) fn name(text: &str) -> Result<Name, Exit> {
    Ok(Name::existing(text)?)
}

/// A group's name as two arguments.
pub(super) fn group_key(stream: &str, group: &str) -> Result<GroupKey, Exit> {
    Ok(GroupKey::new(name(stream)?, name(group)?))
}

/// Starts the host of plugins.
pub(super) fn plugin_host() -> Result<Arc<Host>, Exit> {
    Host::new(HostSettings::default()).map_err(|error| Exit::Failed(error.into()))
}
