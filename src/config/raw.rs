//! What the TOML text says: known keys with values of the right types. What the values mean is
//! looked at later. The descriptions here are those of the JSON Schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value as Json;

use super::table::At;
use super::{bounds, units};

/// Which plugin handles which stream, and where the log lives. In every string, `${VAR}` stands
/// for an environment variable, `${VAR:-default}` gives it a default, and `$${` is the text `${`.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, title = "Wasmill pipeline file", rename = "PipelineFile")]
pub(super) struct RawConfig {
    /// Where the log lives.
    #[schemars(with = "Option<RawBackend>")]
    pub(super) backend: RawBackend,
    /// The WebAssembly components that handle events, by name: letters, digits, `.`, `_` and `-`.
    #[schemars(with = "Option<BTreeMap<String, RawPlugin>>")]
    pub(super) plugins: Vec<(At<String>, RawPlugin)>,
    /// How streams are created that do not exist yet, and what is kept of them, by name: letters, digits, `.`, `_` and `-`.
    #[schemars(with = "Option<BTreeMap<String, RawStream>>")]
    pub(super) streams: Vec<(At<String>, RawStream)>,
    /// Settings of the process that runs the pipelines.
    #[schemars(with = "Option<RawEngine>")]
    pub(super) engine: RawEngine,
    /// Where a running engine can be asked how it is. Without it, nowhere.
    #[schemars(with = "Option<RawHttp>")]
    pub(super) http: RawHttp,
    /// The pipelines: each hands the events of one stream to one plugin. `run` needs at least one.
    #[schemars(rename = "pipeline", with = "Option<Vec<RawPipeline>>")]
    pub(super) pipelines: Vec<RawPipeline>,
    /// Whether there was a pipeline that could not be read.
    #[schemars(skip)]
    pub(super) pipeline_unreadable: bool,
}

/// Where the log lives.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Backend")]
pub(super) struct RawBackend {
    /// `sqlite:FILE` (relative to this file), `memory:`, `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`,
    /// `rediss://…` for TLS, or `redis+unix:///SOCKET`. Default: `sqlite:wasmill.db` in the working directory.
    pub(super) url: Option<At<String>>,
    /// Prefix of all keys in Redis: 1 to 128 characters. Default: `Rheo.Redis`.
    #[schemars(extend("minLength" = 1))]
    pub(super) namespace: Option<At<String>>,
    /// When SQLite calls a commit durable: `full` survives a power cut, `normal` may lose the last commits to one.
    #[schemars(extend("enum" = ["full", "normal"], "default" = "full"))]
    pub(super) synchronous: Option<At<String>>,
    /// With `rediss://`: a PEM file, relative to this file, of the authorities that may have signed the
    /// server's certificate. Default: the system's.
    #[schemars(extend("minLength" = 1))]
    pub(super) tls_ca: Option<At<String>>,
    /// With `rediss://`: a PEM file, relative to this file, of the certificate that the server knows us
    /// by; with `tls_key`.
    #[schemars(extend("minLength" = 1))]
    pub(super) tls_cert: Option<At<String>>,
    /// The PEM file of the private key of `tls_cert`, not encrypted.
    #[schemars(extend("minLength" = 1))]
    pub(super) tls_key: Option<At<String>>,
}

/// A WebAssembly component that handles events.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Plugin")]
pub(super) struct RawPlugin {
    /// The component's file, relative to this file.
    #[schemars(required)]
    pub(super) path: Option<At<String>>,
    /// Longest time that one call may take: 1ms to 1h.
    #[schemars(extend("pattern" = units::DURATION_PATTERN, "default" = units::show_duration(bounds::TIMEOUT_DEFAULT)))]
    pub(super) timeout: Option<At<String>>,
    /// Most memory that one instance of the plugin may have: 1MiB to 4GiB.
    #[schemars(extend("pattern" = units::SIZE_PATTERN, "default" = units::show_size(bounds::MAX_MEMORY_BYTES_DEFAULT)))]
    pub(super) max_memory: Option<At<String>>,
    /// Most time that one call may compute, waiting not counted: 5ms to 1h. Default: no limit of its own.
    #[schemars(extend("pattern" = units::DURATION_PATTERN))]
    pub(super) max_cpu: Option<At<String>>,
    /// Most instances of the plugin at the same time, over all pipelines: calls above it wait.
    #[schemars(extend(
        "minimum" = bounds::MAX_INSTANCES.start(), "maximum" = bounds::MAX_INSTANCES.end(),
        "default" = bounds::MAX_INSTANCES_DEFAULT
    ))]
    pub(super) max_instances: Option<At<i64>>,
    /// Calls after which an instance is replaced by a fresh one.
    #[schemars(extend(
        "minimum" = bounds::MAX_CALLS.start(), "maximum" = bounds::MAX_CALLS.end(),
        "default" = bounds::MAX_CALLS_DEFAULT
    ))]
    pub(super) max_calls: Option<At<i64>>,
    /// Most lines that one call may log; of the others only the number is told.
    #[schemars(extend(
        "minimum" = bounds::MAX_LOG_LINES.start(), "maximum" = bounds::MAX_LOG_LINES.end(),
        "default" = bounds::MAX_LOG_LINES_DEFAULT
    ))]
    pub(super) max_log_lines: Option<At<i64>>,
    /// Most bytes of the events together that one call appends: 1KiB to 64MiB.
    #[schemars(extend("pattern" = units::SIZE_PATTERN, "default" = units::show_size(bounds::MAX_OUTBOX_BYTES_DEFAULT)))]
    pub(super) max_outbox: Option<At<String>>,
    /// Most events that one call appends.
    #[schemars(extend(
        "minimum" = bounds::MAX_OUTBOX_EVENTS.start(), "maximum" = bounds::MAX_OUTBOX_EVENTS.end(),
        "default" = bounds::MAX_OUTBOX_EVENTS_DEFAULT
    ))]
    pub(super) max_outbox_events: Option<At<i64>>,
    /// Most bytes of state that one call reads and writes: 1KiB to 64MiB.
    #[schemars(extend("pattern" = units::SIZE_PATTERN, "default" = units::show_size(bounds::MAX_STATE_BYTES_DEFAULT)))]
    pub(super) max_state: Option<At<String>>,
    /// Most keys of state that one call reads and writes.
    #[schemars(extend(
        "minimum" = bounds::MAX_STATE_KEYS.start(), "maximum" = bounds::MAX_STATE_KEYS.end(),
        "default" = bounds::MAX_STATE_KEYS_DEFAULT
    ))]
    pub(super) max_state_keys: Option<At<i64>>,
    /// Hosts that it may send HTTP requests to: `name`, `name:port`, `*.name`, `address`, `[v6 address]:port`.
    /// Without a port, 443 for HTTPS and 80 for HTTP. A private address must be granted as an address.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) allow_http: Vec<At<String>>,
    /// Environment variables of the engine that it sees, by name. Each must be set.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) allow_env: Vec<At<String>>,
    /// Directories that it sees: a path, relative to this file, to read at the same path; or a table.
    #[schemars(with = "Option<Vec<RawDir>>")]
    pub(super) allow_dirs: Vec<RawDir>,
    /// Streams that it may append to. `run` creates those that do not exist.
    #[schemars(with = "Option<Vec<String>>")]
    pub(super) allow_streams: Vec<At<String>>,
    /// Buckets of state that it shares with other pipelines: its own name for one, and the bucket's name.
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    pub(super) buckets: Vec<(At<String>, At<String>)>,
    /// What the plugin reads through `wasi:config`: strings as they are, dates and times as strings,
    /// other values as their JSON text.
    #[schemars(with = "Option<BTreeMap<String, Json>>")]
    pub(super) config: Vec<(String, At<Json>)>,
}

/// A directory that a plugin sees.
#[derive(Debug)]
pub(super) enum RawDir {
    /// A path, to read.
    Path(At<String>),
    /// With more to say.
    Table(RawDirTable),
}

/// A directory that a plugin sees.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Directory")]
pub(super) struct RawDirTable {
    /// The directory, relative to this file.
    #[schemars(required)]
    pub(super) path: Option<At<String>>,
    /// Where the plugin sees it. Default: `path` as it is written.
    #[schemars(extend("minLength" = 1))]
    pub(super) guest: Option<At<String>>,
    /// Whether the plugin may change what is in it.
    #[schemars(extend("default" = false))]
    pub(super) write: Option<At<bool>>,
}

/// How a stream is created, and what is kept of it.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Stream")]
pub(super) struct RawStream {
    /// Number of partitions, if the stream does not exist yet.
    #[schemars(extend(
        "minimum" = bounds::PARTITIONS.start(), "maximum" = bounds::PARTITIONS.end(),
        "default" = bounds::PARTITIONS_DEFAULT
    ))]
    pub(super) partitions: Option<At<i64>>,
    /// Events that were appended longer ago are removed once all groups have settled them: 1m to
    /// 3650d. Default: none is too old.
    #[schemars(extend("pattern" = units::DURATION_PATTERN))]
    pub(super) max_age: Option<At<String>>,
    /// Of each partition no more events than this are kept, once all groups have settled the older
    /// ones. Default: all are.
    #[schemars(extend("minimum" = bounds::MAX_LENGTH.start(), "maximum" = bounds::MAX_LENGTH.end()))]
    pub(super) max_length: Option<At<i64>>,
}

/// Settings of the process that runs the pipelines.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Engine")]
pub(super) struct RawEngine {
    /// How long a stopping engine waits for the calls that are running: 0s to 1h.
    #[schemars(extend(
        "pattern" = units::DURATION_PATTERN,
        "default" = units::show_duration(bounds::DRAIN_TIMEOUT_DEFAULT)
    ))]
    pub(super) drain_timeout: Option<At<String>>,
    /// Largest event that may be appended: 1KiB to 64MiB.
    #[schemars(extend("pattern" = units::SIZE_PATTERN, "default" = "4MiB"))]
    pub(super) max_event_bytes: Option<At<String>>,
    /// Handlers that an event may come through, each deriving from the one before, until one that
    /// derives more makes a dead letter of it.
    #[schemars(extend(
        "minimum" = bounds::MAX_HOPS.start(), "maximum" = bounds::MAX_HOPS.end(),
        "default" = bounds::MAX_HOPS_DEFAULT
    ))]
    pub(super) max_hops: Option<At<i64>>,
}

/// Where a running engine can be asked how it is.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Http")]
pub(super) struct RawHttp {
    /// Address and port for `/livez`, `/readyz` and `/metrics`, such as `127.0.0.1:9464`. Whoever reaches it may read them. Default: none.
    pub(super) listen: Option<At<String>>,
}

/// Hands the events of one stream to one plugin, under one consumer group.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Pipeline")]
pub(super) struct RawPipeline {
    /// The pipeline's name in logs and summaries, unique in the file: letters, digits, `.`, `_` and `-`.
    #[schemars(required, extend("pattern" = NAME_PATTERN))]
    pub(super) name: Option<At<String>>,
    /// The stream that it reads.
    #[schemars(required, extend("minLength" = 1))]
    pub(super) stream: Option<At<String>>,
    /// The consumer group that remembers how far it got. Default: the pipeline's name.
    #[schemars(extend("minLength" = 1))]
    pub(super) group: Option<At<String>>,
    /// The plugin that handles its events: a name under `[plugins]`.
    #[schemars(required, extend("minLength" = 1))]
    pub(super) plugin: Option<At<String>>,
    /// The partitions that it reads: "all" (the default), or a list of their numbers, from 0.
    #[schemars(with = "Option<RawPartitions>", extend("default" = "all"))]
    pub(super) partitions: Option<RawPartitions>,
    /// Most calls of the plugin at the same time.
    #[schemars(extend(
        "minimum" = bounds::CONCURRENCY.start(), "maximum" = bounds::CONCURRENCY.end(),
        "default" = bounds::CONCURRENCY_DEFAULT
    ))]
    pub(super) concurrency: Option<At<i64>>,
    /// Most events under lease at the same time, those that run included, those that wait for a
    /// retry not; at least `concurrency`. Default: 256, or `concurrency` if that is more.
    #[schemars(extend("minimum" = bounds::MAX_IN_FLIGHT.start(), "maximum" = bounds::MAX_IN_FLIGHT.end()))]
    pub(super) max_in_flight: Option<At<i64>>,
    /// How long an event is held without a sign of life, before another engine may take it: 1s to 1h.
    #[schemars(extend("pattern" = units::DURATION_PATTERN, "default" = units::show_duration(bounds::LEASE_DEFAULT)))]
    pub(super) lease: Option<At<String>>,
    /// Where a new group begins: with the oldest event, or with what is appended from now on.
    #[schemars(extend("enum" = ["beginning", "end"], "default" = "beginning"))]
    pub(super) start: Option<At<String>>,
    /// How failures are repeated.
    #[schemars(with = "Option<RawRetry>")]
    pub(super) retry: RawRetry,
    /// What happens when a call ends without an answer: a trap, a timeout, too much memory.
    #[schemars(with = "Option<RawOnFault>")]
    pub(super) on_fault: Option<RawOnFault>,
}

/// What happens when a call ends without an answer.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "OnFault")]
pub(super) struct RawOnFault {
    /// `retry` as any failure, `dead-letter` at once, or `retry` and `pause` the pipeline when there are too many.
    #[schemars(required, extend("enum" = ["retry", "dead-letter", "pause"], "default" = "retry"))]
    pub(super) action: Option<At<String>>,
    /// With `pause`: faults after which the pipeline pauses.
    #[schemars(extend(
        "minimum" = bounds::FAULTS_AFTER.start(), "maximum" = bounds::FAULTS_AFTER.end(),
        "default" = bounds::FAULTS_AFTER_DEFAULT
    ))]
    pub(super) after: Option<At<i64>>,
    /// With `pause`: the last so many attempts among which faults count, at least `after`. Default: twice `after`.
    #[schemars(extend("minimum" = bounds::FAULTS_OF.start(), "maximum" = bounds::FAULTS_OF.end()))]
    pub(super) of: Option<At<i64>>,
}

/// How failures of a pipeline are repeated.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Retry")]
pub(super) struct RawRetry {
    /// Deliveries after which a failure becomes a dead letter. Default: the existing group's, for a new group 5.
    #[schemars(extend("minimum" = bounds::MAX_ATTEMPTS.start(), "maximum" = bounds::MAX_ATTEMPTS.end()))]
    pub(super) max_attempts: Option<At<i64>>,
    /// Wait after the first failure: 1ms to 30d.
    #[schemars(extend("pattern" = units::DURATION_PATTERN, "default" = "200ms"))]
    pub(super) initial: Option<At<String>>,
    /// What each further wait is multiplied by.
    #[schemars(extend(
        "minimum" = bounds::RETRY_FACTOR.start(), "maximum" = bounds::RETRY_FACTOR.end(), "default" = 2.0
    ))]
    pub(super) factor: Option<At<f64>>,
    /// Longest wait, before jitter: `initial` to 30d. Default: 1m, or `initial` if that is longer.
    #[schemars(extend("pattern" = units::DURATION_PATTERN))]
    pub(super) max: Option<At<String>>,
    /// Share of a wait by which it varies in both directions.
    #[schemars(extend(
        "minimum" = bounds::RETRY_JITTER.start(), "maximum" = bounds::RETRY_JITTER.end(), "default" = 0.2
    ))]
    pub(super) jitter: Option<At<f64>>,
}

/// `partitions` of a pipeline.
#[derive(Debug)]
pub(super) enum RawPartitions {
    /// A word; only "all" means something.
    Word(At<String>),
    /// Numbers.
    List(At<Vec<At<i64>>>),
}

/// The schema's pattern of a name that we may create; a variable may stand for any part of it.
const NAME_PATTERN: &str = r"^[A-Za-z0-9._-]{1,128}$|\$\{";
