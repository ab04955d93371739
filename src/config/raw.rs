//! What the TOML text says: types are right, keys are known; what the values mean is looked at
//! later. The descriptions here are those of the JSON Schema.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::problem::{Problem, quoted};
use super::table::{At, Shape, Table, saturated, wrong_type};
use super::{bounds, units};

type Problems = Vec<Problem>;

const FILE: Shape = Shape { name: "", keys: &["backend", "plugins", "streams", "engine", "pipeline"] };
const BACKEND: Shape = Shape { name: "[backend]", keys: &["url", "namespace", "synchronous"] };
const PLUGIN: Shape = Shape { name: "[plugins.NAME]", keys: &["path", "timeout", "max_memory", "config"] };
const STREAM: Shape = Shape { name: "[streams.NAME]", keys: &["partitions"] };
const ENGINE: Shape = Shape { name: "[engine]", keys: &["drain_timeout", "max_event_bytes"] };
const PIPELINE: Shape = Shape {
    name: "[[pipeline]]",
    keys: &[
        "name",
        "stream",
        "group",
        "plugin",
        "partitions",
        "concurrency",
        "max_in_flight",
        "lease",
        "start",
        "retry",
    ],
};
const RETRY: Shape = Shape { name: "retry", keys: &["max_attempts", "initial", "factor", "max", "jitter"] };

/// Every table of the file.
const SHAPES: [&Shape; 7] = [&FILE, &BACKEND, &PLUGIN, &STREAM, &ENGINE, &PIPELINE, &RETRY];

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
    /// How streams are created that do not exist yet, by name: letters, digits, `.`, `_` and `-`.
    #[schemars(with = "Option<BTreeMap<String, RawStream>>")]
    pub(super) streams: Vec<(At<String>, RawStream)>,
    /// Settings of the process that runs the pipelines.
    #[schemars(with = "Option<RawEngine>")]
    pub(super) engine: RawEngine,
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
    /// What the plugin reads through `wasi:config`: strings as they are, dates and times as strings,
    /// other values as their JSON text.
    #[schemars(with = "Option<BTreeMap<String, Json>>")]
    pub(super) config: Vec<(String, At<Json>)>,
}

/// How a stream is created.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields, rename = "Stream")]
pub(super) struct RawStream {
    /// Number of partitions, if the stream does not exist yet.
    #[schemars(extend(
        "minimum" = bounds::PARTITIONS.start(), "maximum" = bounds::PARTITIONS.end(),
        "default" = bounds::PARTITIONS_DEFAULT
    ))]
    pub(super) partitions: Option<At<i64>>,
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
    #[schemars(schema_with = "partitions_schema")]
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

fn partitions_schema(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "oneOf": [
            { "const": "all" },
            {
                "type": "array",
                "items": { "type": "integer", "minimum": bounds::PARTITION.start(), "maximum": bounds::PARTITION.end() },
                "minItems": 1,
                "uniqueItems": true
            }
        ],
        "default": "all"
    })
}

/// The schema of [`RawConfig`], without what only JSON has: null and formats of numbers.
pub(super) fn schema() -> Json {
    let mut tidy = RecursiveTransform(|schema: &mut Schema| {
        if let Some(Json::Array(types)) = schema.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                schema.insert("type".to_owned(), only);
            }
        }
        if let Some(Json::Array(mut choices)) = schema.remove("anyOf") {
            choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
            if let Some(Json::Object(only)) = choices.pop() {
                schema.ensure_object().extend(only);
            }
        }
        schema.remove("format");
    });
    let mut schema = schemars::schema_for!(RawConfig);
    tidy.transform(&mut schema);
    schema.to_value()
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl RawConfig {
    /// Reads the whole file. What has a problem is left out, so that the rest can still be looked at.
    pub(super) fn read(file: &Spanned<DeTable<'_>>, problems: &mut Problems) -> Self {
        let mut table = Table::new(&FILE, file.get_ref(), file.span());
        let pipelines = read_pipelines(&mut table, problems);
        let raw = Self {
            backend: read_table(&mut table, "backend", &BACKEND, RawBackend::read, problems),
            plugins: read_named(&mut table, "plugins", &PLUGIN, RawPlugin::read, problems),
            streams: read_named(&mut table, "streams", &STREAM, RawStream::read, problems),
            engine: read_table(&mut table, "engine", &ENGINE, RawEngine::read, problems),
            pipeline_unreadable: pipelines.is_none(),
            pipelines: pipelines.unwrap_or_default(),
        };
        table.finish(&SHAPES, problems);
        raw
    }
}

impl RawBackend {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            url: table.string("url", "", problems),
            namespace: table.string("namespace", "", problems),
            synchronous: table.string("synchronous", "", problems),
        }
    }
}

impl RawPlugin {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            path: table.required_string("path", problems),
            timeout: table.string("timeout", units::DURATION_FORM, problems),
            max_memory: table.string("max_memory", units::SIZE_FORM, problems),
            config: read_settings(table, problems),
        }
    }
}

impl RawStream {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self { partitions: table.integer("partitions", problems) }
    }
}

impl RawEngine {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            drain_timeout: table.string("drain_timeout", units::DURATION_FORM, problems),
            max_event_bytes: table.string("max_event_bytes", units::SIZE_FORM, problems),
        }
    }
}

impl RawPipeline {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            name: table.required_string("name", problems),
            stream: table.required_string("stream", problems),
            group: table.string("group", "", problems),
            plugin: table.required_string("plugin", problems),
            partitions: read_partitions(table, problems),
            concurrency: table.integer("concurrency", problems),
            max_in_flight: table.integer("max_in_flight", problems),
            lease: table.string("lease", units::DURATION_FORM, problems),
            start: table.string("start", "", problems),
            retry: read_table(table, "retry", &RETRY, RawRetry::read, problems),
        }
    }
}

impl RawRetry {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            max_attempts: table.integer("max_attempts", problems),
            initial: table.string("initial", units::DURATION_FORM, problems),
            factor: table.number("factor", problems),
            max: table.string("max", units::DURATION_FORM, problems),
            jitter: table.number("jitter", problems),
        }
    }
}

type Read<T> = fn(&mut Table<'_, '_>, &mut Problems) -> T;

/// Reads the table under `key`; where there is none, all of its keys are absent.
fn read_table<T: Default>(
    parent: &mut Table<'_, '_>,
    key: &'static str,
    shape: &'static Shape,
    read: Read<T>,
    problems: &mut Problems,
) -> T {
    let value = parent.take(key);
    value.and_then(|value| read_value(value, shape, read, problems)).unwrap_or_default()
}

/// Reads a value that must be a table.
fn read_value<T>(
    value: &Spanned<DeValue<'_>>,
    shape: &'static Shape,
    read: Read<T>,
    problems: &mut Problems,
) -> Option<T> {
    let mut table = Table::from_value(shape, value, problems)?;
    let raw = read(&mut table, problems);
    table.finish(&SHAPES, problems);
    Some(raw)
}

/// Reads a table of tables of the same kind.
fn read_named<T>(
    parent: &mut Table<'_, '_>,
    key: &'static str,
    shape: &'static Shape,
    read: Read<T>,
    problems: &mut Problems,
) -> Vec<(At<String>, T)> {
    let Some(value) = parent.take(key) else { return Vec::new() };
    let DeValue::Table(table) = value.get_ref() else {
        let problem = wrong_type(key, "a table of tables", value.span(), value.get_ref());
        problems.push(problem.help(format!("write a table {} for each", quoted(shape.name))));
        return Vec::new();
    };
    let named = table.iter().filter_map(|(name, value)| {
        let raw = read_value(value, shape, read, problems)?;
        Some((At::new(name.get_ref().clone().into_owned(), name.span()), raw))
    });
    named.collect()
}

/// Reads the pipelines; `None` where any could not be read.
fn read_pipelines(file: &mut Table<'_, '_>, problems: &mut Problems) -> Option<Vec<RawPipeline>> {
    let Some(value) = file.take("pipeline") else { return Some(Vec::new()) };
    let DeValue::Array(items) = value.get_ref() else {
        let problem = wrong_type("pipeline", "an array of tables", value.span(), value.get_ref());
        problems.push(problem.help("a pipeline begins with `[[pipeline]]`, in two pairs of brackets"));
        return None;
    };
    items.iter().map(|item| read_value(item, &PIPELINE, RawPipeline::read, problems)).collect()
}

fn read_partitions(pipeline: &mut Table<'_, '_>, problems: &mut Problems) -> Option<RawPartitions> {
    let value = pipeline.take("partitions")?;
    match value.get_ref() {
        DeValue::String(word) => Some(RawPartitions::Word(At::new(word.clone().into_owned(), value.span()))),
        DeValue::Array(items) => {
            let numbers = read_numbers(items, problems)?;
            Some(RawPartitions::List(At::new(numbers, value.span())))
        }
        other => {
            let problem = wrong_type("partitions", "\"all\" or a list of numbers", value.span(), other);
            problems.push(problem.help("for a single partition write a list of one, as in `[0]`"));
            None
        }
    }
}

fn read_numbers(items: &DeArray<'_>, problems: &mut Problems) -> Option<Vec<At<i64>>> {
    let mut numbers = Vec::with_capacity(items.len());
    for item in items {
        let DeValue::Integer(number) = item.get_ref() else {
            problems.push(wrong_type("partitions", "a list of whole numbers", item.span(), item.get_ref()));
            return None;
        };
        numbers.push(At::new(saturated(number), item.span()));
    }
    Some(numbers)
}

/// Reads a plugin's `config`.
fn read_settings(plugin: &mut Table<'_, '_>, problems: &mut Problems) -> Vec<(String, At<Json>)> {
    let Some(value) = plugin.take("config") else { return Vec::new() };
    let DeValue::Table(table) = value.get_ref() else {
        problems.push(wrong_type("config", "a table", value.span(), value.get_ref()));
        return Vec::new();
    };
    let settings = table.iter().filter_map(|(key, value)| {
        let json = to_json(value, problems)?;
        Some((key.get_ref().clone().into_owned(), At::new(json, value.span())))
    });
    settings.collect()
}

/// A TOML value as JSON. The parser bounds the depth of what it reads, and so of this recursion.
fn to_json(value: &Spanned<DeValue<'_>>, problems: &mut Problems) -> Option<Json> {
    let unfit = |title: &str| Problem::at(&value.span(), title).help("write it as a string");
    match value.get_ref() {
        DeValue::String(text) => Some(Json::String(text.clone().into_owned())),
        DeValue::Boolean(truth) => Some(Json::Bool(*truth)),
        DeValue::Datetime(time) => Some(Json::String(time.to_string())),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Some(number.into()),
            Err(_) => {
                problems.push(unfit("this number does not fit into 64 bits"));
                None
            }
        },
        DeValue::Float(number) => {
            let json = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            if json.is_none() {
                problems.push(unfit("JSON has no such number"));
            }
            json.map(Json::Number)
        }
        DeValue::Array(items) => {
            items.iter().map(|item| to_json(item, problems)).collect::<Option<_>>().map(Json::Array)
        }
        DeValue::Table(table) => {
            let entries =
                table.iter().map(|(key, value)| Some((key.get_ref().to_string(), to_json(value, problems)?)));
            entries.collect::<Option<_>>().map(Json::Object)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The schema and the reader are two lists of the same keys.
    #[test]
    fn the_schema_has_the_keys_that_are_read() {
        let schema = super::super::schema();
        for (shape, place) in [
            (&FILE, "/properties"),
            (&BACKEND, "/$defs/Backend/properties"),
            (&PLUGIN, "/$defs/Plugin/properties"),
            (&STREAM, "/$defs/Stream/properties"),
            (&ENGINE, "/$defs/Engine/properties"),
            (&PIPELINE, "/$defs/Pipeline/properties"),
            (&RETRY, "/$defs/Retry/properties"),
        ] {
            let properties = schema.pointer(place).and_then(Json::as_object).unwrap();
            let described: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
            assert_eq!(described, shape.keys.iter().copied().collect(), "{place}");
        }
    }
}
