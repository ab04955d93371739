//! The pipeline file: what TOML says becomes what is meant, checked, or a list of all that is
//! wrong with it.
//!
//! Reading has three steps. The TOML parser gives values with their places; `raw` takes them apart
//! by type and key and knows nothing of files or variables; `resolve` fills in variables, reads
//! durations, sizes and names, and checks what must fit together. A step goes on behind a problem
//! where it can, so that one reading finds as many as possible.

mod bounds;
mod grants;
mod http;
mod mask;
mod pipeline;
mod plugin;
mod problem;
mod raw;
mod read;
mod resolve;
mod schema;
mod table;
mod tls;
mod units;
mod vars;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use crate::event::Name;
use crate::grants::Grants;
use crate::outcome::OnFault;
use crate::retry::RetryPolicy;
use crate::target::{Target, Tls};

pub use self::problem::ConfigError;
use self::problem::Problem;
use self::raw::RawConfig;
use self::resolve::Resolver;

/// Largest pipeline file that is read, in bytes (1 MiB).
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A pipeline file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the log lives.
    pub backend: Backend,
    /// The plugins, in the order of their names; each name once.
    pub plugins: Vec<Plugin>,
    /// How missing streams are created, in the order of their names; each name once.
    pub streams: Vec<Stream>,
    /// Settings of the process.
    pub engine: Engine,
    /// Where it can be asked how it is.
    pub http: Http,
    /// The pipelines in the order of the file, at least one; each name once. No partition is read
    /// by two pipelines of the same stream and group.
    pub pipelines: Vec<Pipeline>,
}

/// What commands need from a pipeline file that only touch the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    /// Where the log lives.
    pub backend: Backend,
    /// How missing streams are created; see [`Config::streams`].
    pub streams: Vec<Stream>,
    /// Settings of the process.
    pub engine: Engine,
}

/// Where the log lives. What is `None` is for the caller to default: flags come between.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backend {
    /// The store; a file is relative to the pipeline file. Shown without its password.
    pub target: Option<Target>,
    /// The files for TLS, relative to the pipeline file; they were there when they were looked for.
    /// Where there are some, `target` is reached by TLS, or `None`.
    pub tls: Tls,
    /// Prefix of all keys in Redis: 1 to 128 bytes without control characters.
    pub namespace: Option<String>,
    /// How safe SQLite's commits are.
    pub synchronous: Option<Synchronous>,
}

/// When SQLite calls a commit durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// Once it survives a power cut.
    Full,
    /// Once it survives the process; a power cut may take the last commits.
    Normal,
}

/// A component that handles events.
#[derive(Clone, PartialEq)]
pub struct Plugin {
    /// Its name: 1 to 128 of `[A-Za-z0-9._-]`.
    pub name: String,
    /// Its file, made relative to the pipeline file; it was there when it was looked for.
    pub path: PathBuf,
    /// Longest time of one call: 1 ms to 1 h, 30 s by default.
    pub timeout: Duration,
    /// Most memory of one instance in bytes: 1 MiB to 4 GiB, 256 MiB by default.
    pub max_memory: u64,
    /// Most time that one call may compute: 5 ms to 1 h; `None` leaves it to the timeout.
    pub max_cpu: Option<Duration>,
    /// Most instances at the same time, over all pipelines: 1 to 65,536, 1,024 by default.
    pub max_instances: u32,
    /// Calls after which an instance is replaced: 1 to 1,000,000,000, 10,000 by default.
    pub max_calls: u32,
    /// Most lines that one call logs: 0 to 100,000, 1,000 by default.
    pub max_log_lines: u32,
    /// What one call may stage.
    pub effects: PluginEffects,
    /// What it may do.
    pub grants: Grants,
    /// What it reads through `wasi:config`, in the order of the keys; each key once. Values may be
    /// secrets, and are not shown.
    pub config: Vec<(String, String)>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.config.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("path", &self.path)
            .field("timeout", &self.timeout)
            .field("max_memory", &self.max_memory)
            .field("max_cpu", &self.max_cpu)
            .field("max_instances", &self.max_instances)
            .field("max_calls", &self.max_calls)
            .field("max_log_lines", &self.max_log_lines)
            .field("effects", &self.effects)
            .field("grants", &self.grants)
            .field("config_keys", &keys)
            .finish()
    }
}

/// How much one call of a plugin may stage in its outbox and in its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginEffects {
    /// Most bytes of the events together that it appends: 1 KiB to 64 MiB, 4 MiB by default.
    pub max_outbox: u64,
    /// Most events that it appends: 1 to 10,000, 1,000 by default.
    pub max_outbox_events: u32,
    /// Most bytes of state that it reads and writes: 1 KiB to 64 MiB, 4 MiB by default.
    pub max_state: u64,
    /// Most keys of state that it reads and writes: 1 to 10,000, 1,000 by default.
    pub max_state_keys: u32,
}

/// How a stream is created that does not exist yet, and what is kept of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its name, a portable one.
    pub name: Name,
    /// Its number of partitions: 1 to 1024, 1 by default.
    pub partitions: u32,
    /// How long its events are kept at least: 1 min to 3650 d; `None` is for ever.
    pub max_age: Option<Duration>,
    /// How many events of each partition are kept at most: 1 to 10^12; `None` is all.
    pub max_length: Option<u64>,
}

/// Settings of the process that runs pipelines or appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// How long a stopping engine waits for running calls: 0 s to 1 h, 20 s by default.
    pub drain_timeout: Duration,
    /// Largest event that may be appended, in bytes: 1 KiB to 64 MiB, 4 MiB by default.
    pub max_event_bytes: usize,
    /// Handlers that an event may come through: 1 to 1,000, 32 by default.
    pub max_hops: u32,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            drain_timeout: bounds::DRAIN_TIMEOUT_DEFAULT,
            max_event_bytes: crate::event::EVENT_BYTES_MAX_DEFAULT,
            max_hops: bounds::MAX_HOPS_DEFAULT,
        }
    }
}

/// Where a running engine can be asked how it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http {
    /// The address of `/livez`, `/readyz` and `/metrics`; by default there is none.
    pub listen: Option<SocketAddr>,
}

/// Hands the events of one stream to one plugin, under one consumer group.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Its name in logs and summaries, a portable one.
    pub name: Name,
    /// The stream that it reads. It need not be portable, since it may be another program's.
    pub stream: Name,
    /// The group that it reads for; by default of the pipeline's name. It need not be portable.
    pub group: Name,
    /// Name of one of [`Config::plugins`].
    pub plugin: String,
    /// The partitions that it reads; by default all.
    pub partitions: Partitions,
    /// Most handler calls at the same time: 1 to 1024, 8 by default.
    pub concurrency: u32,
    /// Most events under lease at the same time, parked ones not counted: `concurrency` to 65536;
    /// by default 256, or `concurrency` where that is more.
    pub max_in_flight: u32,
    /// How long a lease lasts: 1 s to 1 h, 30 s by default.
    pub lease: Duration,
    /// Where a new group begins; by default at the beginning.
    pub start: Start,
    /// The attempts that the file asks for: 1 to 1,000,000. `None` leaves them to the group.
    pub max_attempts: Option<u32>,
    /// How failures are repeated: waits of 1 ms to 30 d, 200 ms doubling up to 1 min by default.
    /// Its `max_attempts` is [`Pipeline::max_attempts`], or the default for a new group.
    pub retry: RetryPolicy,
    /// What happens when a call ends without an answer.
    pub on_fault: OnFault,
}

/// Which partitions of its stream a pipeline reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// All that there are.
    All,
    /// These, in ascending order, each once; at least one, none above 1023.
    List(Vec<u32>),
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest event in the log.
    Beginning,
    /// With what is appended after the group was made.
    End,
}

/// Reads a pipeline file in order to run it: every part of it must be right, the plugins' files
/// must exist, and there must be a pipeline. `env` looks up an environment variable.
///
/// # Errors
/// All problems that one reading can find; see [`ConfigError`].
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    parse(&read_file(path)?, path, folder(path), env)
}

/// Reads a pipeline file in order to find its store. Its keys and types must be right, but
/// plugins and pipelines are not looked into: an append needs neither their files nor their
/// secrets.
///
/// # Errors
/// All problems that one reading can find; see [`ConfigError`].
pub fn load_store(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Store, ConfigError> {
    resolve_with(&read_file(path)?, path, folder(path), env, |resolver, raw| resolver.store(raw))
}

/// Reads the text of a pipeline file. `path` is what messages call it, `base_dir` what relative
/// paths in it are relative to; files that it names are looked up there.
///
/// # Errors
/// All problems that one reading can find; see [`ConfigError`].
pub fn parse(
    text: &str,
    path: &Path,
    base_dir: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    resolve_with(text, path, base_dir, env, |resolver, raw| resolver.config(raw))
}

/// The JSON Schema (draft 2020-12) of the pipeline file.
#[must_use]
pub fn schema() -> serde_json::Value {
    schema::schema()
}

/// Reads a duration as the pipeline file writes it, for options of commands.
///
/// # Errors
/// What a duration looks like, for anything else.
pub fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text).ok_or_else(|| units::DURATION_FORM.to_owned())
}

fn resolve_with<T>(
    text: &str,
    path: &Path,
    base_dir: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    resolve: fn(&mut Resolver<'_>, &RawConfig) -> Option<T>,
) -> Result<T, ConfigError> {
    // Some editors begin a file with a byte order mark.
    let source = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut problems = Vec::new();
    let resolved = match DeTable::parse(source) {
        Ok(table) => {
            let raw = RawConfig::read(&table, &mut problems);
            let mut resolver = Resolver::new(source, base_dir, env, problems);
            let resolved = resolve(&mut resolver, &raw);
            problems = resolver.into_problems();
            resolved
        }
        Err(error) => {
            problems.push(syntax_problem(&error));
            None
        }
    };
    match resolved {
        Some(resolved) if problems.is_empty() => Ok(resolved),
        _ => Err(ConfigError::new(show(path), source, problems)),
    }
}

fn syntax_problem(error: &toml::de::Error) -> Problem {
    let title = format!("this is not TOML: {}", error.message());
    match error.span() {
        Some(span) => Problem::at(&span, title),
        None => Problem::new(title),
    }
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    let refuse = |title: String| ConfigError::new(show(path), "", vec![Problem::new(title)]);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refuse("there is no such file".to_owned()));
        }
        Err(error) => return Err(refuse(format!("cannot read this file: {error}"))),
        Ok(length) if length as u64 > FILE_BYTES_MAX => {
            return Err(refuse("this file is longer than 1 MiB: it is no pipeline file".to_owned()));
        }
        Ok(_) => {}
    }
    String::from_utf8(bytes).map_err(|error| not_utf8(path, &error))
}

/// Points at the first byte that is not UTF-8. The text before it is unchanged in the lossy text,
/// so its place is too, and what stands there is the replacement character.
fn not_utf8(path: &Path, error: &std::string::FromUtf8Error) -> ConfigError {
    let start = error.utf8_error().valid_up_to();
    let text = String::from_utf8_lossy(error.as_bytes());
    let at = start..start + char::REPLACEMENT_CHARACTER.len_utf8();
    let problem = Problem::at(&at, "this is not UTF-8").help("TOML is always UTF-8: save the file so");
    ConfigError::new(show(path), &text, vec![problem])
}

/// The folder of a file; the empty path for the working directory.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn show(path: &Path) -> String {
    path.display().to_string()
}
