//! The store that a run works on, and what is in the way to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wasmill::backend::redis::Redis;
use wasmill::backend::sqlite::{Clock, Location, Mode, Sqlite};
use wasmill::backend::{Error, Settings, Shared};
use wasmill::event::{GroupKey, Name};
use wasmill::target::Target;

use super::engines::Engines;
use super::plan::{ENGINES, Fault, StoreKind};
use super::recorder::Recorder;
use super::redis_faults;
use super::sqlite_faults::File;
use crate::proxy::{Proxy, Weather};
use crate::server::RedisServer;

/// How long an event is held: the least that there is.
pub(super) const LEASE: Duration = Duration::from_secs(1);
pub(super) const ATTEMPTS_MAX: u32 = 12;
pub(super) const PARTITIONS: u32 = 2;

pub(super) enum Ground {
    Redis {
        server: Box<RedisServer>,
        /// One before each engine, and the last one before the appender.
        lines: Vec<Proxy>,
    },
    Sqlite(File),
}

/// Who asks for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Its way to the store may be broken.
    Appender,
    /// It sees the store as it is.
    Observer,
}

impl Ground {
    pub(super) fn new(store: StoreKind, dir: &Path) -> Self {
        match store {
            StoreKind::Redis => {
                let server = Box::new(RedisServer::durable());
                let lines = (0..=ENGINES).map(|_| Proxy::before(server.port())).collect();
                Self::Redis { server, lines }
            }
            StoreKind::Sqlite => Self::Sqlite(File::new(dir.join("wasmill.db"))),
        }
    }

    pub(super) fn engine_urls(&self) -> Vec<String> {
        match self {
            Self::Redis { lines, .. } => lines[..ENGINES].iter().map(url).collect(),
            Self::Sqlite(file) => vec![format!("sqlite:{}", file.path.display()); ENGINES],
        }
    }

    /// Where this one finds the store.
    pub(super) fn target(&self, who: Who) -> Target {
        let text = match (self, who) {
            (Self::Redis { lines, .. }, Who::Appender) => url(&lines[ENGINES]),
            (Self::Redis { server, .. }, Who::Observer) => server.url(),
            (Self::Sqlite(file), _) => format!("sqlite:{}", file.path.display()),
        };
        Target::parse(&text, Path::new(".")).unwrap()
    }

    /// Connections and answers that proxies took away.
    pub(super) fn broken(&self) -> u64 {
        match self {
            Self::Redis { lines, .. } => lines.iter().map(Proxy::broken).sum(),
            Self::Sqlite(_) => 0,
        }
    }

    /// Breaks it.
    pub(super) fn begin(&mut self, fault: Fault, hold: Duration, engines: &mut Engines, recorder: &Recorder) {
        match (fault, &mut *self) {
            (Fault::Kill { engine }, _) => engines.kill(engine),
            (Fault::Pause { engine }, _) => engines.signal(engine, "-STOP"),
            (Fault::Drain { engine }, _) => engines.drain(engine),
            (fault, Self::Redis { server, lines }) => {
                redis_faults::begin(fault, hold, server, lines);
            }
            (fault, Self::Sqlite(file)) => file.begin(fault, engines),
        }
        recorder.count(format!("fault: {}", name(fault)), 1);
    }

    /// Mends it.
    pub(super) fn end(&mut self, fault: Fault, engines: &mut Engines, recorder: &Recorder) {
        match (fault, &mut *self) {
            (Fault::Kill { engine } | Fault::Drain { engine }, _) => engines.start_again(engine),
            (Fault::Pause { engine }, _) => engines.signal(engine, "-CONT"),
            (fault, Self::Redis { server, lines }) => {
                lines.iter().for_each(|line| line.set(Weather::Fair));
                redis_faults::end(fault, server);
            }
            (fault, Self::Sqlite(file)) => file.end(fault, engines, recorder),
        }
    }
}

fn url(line: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", line.port())
}

/// A fault without its particulars.
fn name(fault: Fault) -> String {
    let text = format!("{fault:?}");
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Opens the store.
pub(super) async fn open(target: &Target) -> Result<Shared, Error> {
    let settings = Settings::default();
    match target {
        Target::Redis(url) => Ok(Arc::new(Redis::connect(url, &settings).await?)),
        Target::Sqlite(path) => {
            let location = Location::File(PathBuf::clone(path));
            // Made by an engine, as a rule; an observer that made it would be no observer.
            Ok(Arc::new(Sqlite::open(location, Mode::Existing, &settings, Clock::System).await?))
        }
        Target::Memory => unreachable!("no run works on {target}"),
    }
}

pub(super) fn group() -> GroupKey {
    GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap())
}

/// The stream of the effects.
pub(super) fn effects() -> Name {
    Name::new("effects").unwrap()
}

/// The pipeline file of the engines.
pub(super) fn pipeline_file() -> String {
    format!(
        "[plugins.witness]\npath = \"witness.wasm\"\nallow_streams = [\"effects\"]\n\
         [streams.s]\npartitions = {PARTITIONS}\n[streams.effects]\npartitions = 2\n\
         [[pipeline]]\nname = \"p\"\nstream = \"s\"\ngroup = \"g\"\nplugin = \"witness\"\n\
         concurrency = 4\nmax_in_flight = 32\nlease = \"{}s\"\n\
         retry = {{ max_attempts = {ATTEMPTS_MAX}, initial = \"20ms\", max = \"200ms\" }}\n",
        LEASE.as_secs()
    )
}
