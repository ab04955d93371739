//! Takes the parsed TOML apart, table by table. What has a problem is reported and left out, so that
//! the rest can still be looked at.

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::problem::{Problem, quoted};
use super::raw::{
    RawBackend, RawConfig, RawDir, RawDirTable, RawEngine, RawHttp, RawOnFault, RawPartitions, RawPipeline,
    RawPlugin, RawRetry, RawStream,
};
use super::table::{At, Shape, Table, saturated, wrong_type};
use super::{grants, http, units};

type Problems = Vec<Problem>;

const FILE: Shape =
    Shape { name: "", keys: &["backend", "plugins", "streams", "engine", "http", "pipeline"] };
const BACKEND: Shape =
    Shape { name: "[backend]", keys: &["url", "namespace", "synchronous", "tls_ca", "tls_cert", "tls_key"] };
const PLUGIN: Shape = Shape {
    name: "[plugins.NAME]",
    keys: &[
        "path",
        "timeout",
        "max_memory",
        "max_cpu",
        "max_instances",
        "max_calls",
        "max_log_lines",
        "max_outbox",
        "max_outbox_events",
        "max_state",
        "max_state_keys",
        "allow_http",
        "allow_env",
        "allow_dirs",
        "allow_streams",
        "buckets",
        "config",
    ],
};
const DIR: Shape = Shape { name: "allow_dirs", keys: &["path", "guest", "write"] };
const STREAM: Shape = Shape { name: "[streams.NAME]", keys: &["partitions", "max_age", "max_length"] };
const ENGINE: Shape = Shape { name: "[engine]", keys: &["drain_timeout", "max_event_bytes", "max_hops"] };
const HTTP: Shape = Shape { name: "[http]", keys: &["listen"] };
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
        "on_fault",
    ],
};
const RETRY: Shape = Shape { name: "retry", keys: &["max_attempts", "initial", "factor", "max", "jitter"] };

const ON_FAULT: Shape = Shape { name: "on_fault", keys: &["action", "after", "of"] };

/// Every table of the file.
const SHAPES: [&Shape; 10] =
    [&FILE, &BACKEND, &PLUGIN, &DIR, &STREAM, &ENGINE, &HTTP, &PIPELINE, &RETRY, &ON_FAULT];

impl RawConfig {
    /// Reads the whole file.
    pub(super) fn read(file: &Spanned<DeTable<'_>>, problems: &mut Problems) -> Self {
        let mut table = Table::new(&FILE, file.get_ref(), file.span());
        let pipelines = read_pipelines(&mut table, problems);
        let raw = Self {
            backend: read_table(&mut table, "backend", &BACKEND, RawBackend::read, problems),
            plugins: read_named(&mut table, "plugins", &PLUGIN, RawPlugin::read, problems),
            streams: read_named(&mut table, "streams", &STREAM, RawStream::read, problems),
            engine: read_table(&mut table, "engine", &ENGINE, RawEngine::read, problems),
            http: read_table(&mut table, "http", &HTTP, RawHttp::read, problems),
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
            tls_ca: table.string("tls_ca", "", problems),
            tls_cert: table.string("tls_cert", "", problems),
            tls_key: table.string("tls_key", "", problems),
        }
    }
}

impl RawPlugin {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            path: table.required_string("path", problems),
            timeout: table.string("timeout", units::DURATION_FORM, problems),
            max_memory: table.string("max_memory", units::SIZE_FORM, problems),
            max_cpu: table.string("max_cpu", units::DURATION_FORM, problems),
            max_instances: table.integer("max_instances", problems),
            max_calls: table.integer("max_calls", problems),
            max_log_lines: table.integer("max_log_lines", problems),
            max_outbox: table.string("max_outbox", units::SIZE_FORM, problems),
            max_outbox_events: table.integer("max_outbox_events", problems),
            max_state: table.string("max_state", units::SIZE_FORM, problems),
            max_state_keys: table.integer("max_state_keys", problems),
            allow_http: table.strings("allow_http", grants::HTTP_FORM, problems),
            allow_env: table.strings("allow_env", grants::ENV_FORM, problems),
            allow_dirs: read_dirs(table, problems),
            allow_streams: table.strings("allow_streams", grants::STREAMS_FORM, problems),
            buckets: read_buckets(table, problems),
            config: read_settings(table, problems),
        }
    }
}

impl RawDirTable {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            path: table.required_string("path", problems),
            guest: table.string("guest", "", problems),
            write: table.boolean("write", problems),
        }
    }
}

impl RawStream {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            partitions: table.integer("partitions", problems),
            max_age: table.string("max_age", units::DURATION_FORM, problems),
            max_length: table.integer("max_length", problems),
        }
    }
}

impl RawEngine {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            drain_timeout: table.string("drain_timeout", units::DURATION_FORM, problems),
            max_event_bytes: table.string("max_event_bytes", units::SIZE_FORM, problems),
            max_hops: table.integer("max_hops", problems),
        }
    }
}

impl RawHttp {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self { listen: table.string("listen", http::LISTEN_FORM, problems) }
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
            on_fault: table
                .take("on_fault")
                .and_then(|value| read_value(value, &ON_FAULT, RawOnFault::read, problems)),
        }
    }
}

impl RawOnFault {
    fn read(table: &mut Table<'_, '_>, problems: &mut Problems) -> Self {
        Self {
            action: table.required_string("action", problems),
            after: table.integer("after", problems),
            of: table.integer("of", problems),
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
    let pipelines: Vec<Option<RawPipeline>> =
        items.iter().map(|item| read_value(item, &PIPELINE, RawPipeline::read, problems)).collect();
    pipelines.into_iter().collect()
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

/// Reads a plugin's `allow_dirs`.
fn read_dirs(plugin: &mut Table<'_, '_>, problems: &mut Problems) -> Vec<RawDir> {
    let Some(value) = plugin.take("allow_dirs") else { return Vec::new() };
    let DeValue::Array(items) = value.get_ref() else {
        let problem = wrong_type("allow_dirs", "a list", value.span(), value.get_ref());
        problems.push(problem.help(grants::DIRS_FORM));
        return Vec::new();
    };
    let dirs = items.iter().filter_map(|item| match item.get_ref() {
        DeValue::String(path) => Some(RawDir::Path(At::new(path.clone().into_owned(), item.span()))),
        DeValue::Table(_) => read_value(item, &DIR, RawDirTable::read, problems).map(RawDir::Table),
        other => {
            let problem = wrong_type("allow_dirs", "a list of strings and tables", item.span(), other);
            problems.push(problem.help(grants::DIRS_FORM));
            None
        }
    });
    dirs.collect()
}

/// Reads a plugin's `buckets`.
fn read_buckets(plugin: &mut Table<'_, '_>, problems: &mut Problems) -> Vec<(At<String>, At<String>)> {
    let Some(value) = plugin.take("buckets") else { return Vec::new() };
    let DeValue::Table(table) = value.get_ref() else {
        let problem = wrong_type("buckets", "a table", value.span(), value.get_ref());
        problems.push(problem.help(grants::BUCKETS_FORM));
        return Vec::new();
    };
    let buckets = table.iter().filter_map(|(name, value)| match value.get_ref() {
        DeValue::String(bucket) => Some((
            At::new(name.get_ref().clone().into_owned(), name.span()),
            At::new(bucket.clone().into_owned(), value.span()),
        )),
        other => {
            let problem = wrong_type("buckets", "a table of strings", value.span(), other);
            problems.push(problem.help(grants::BUCKETS_FORM));
            None
        }
    });
    buckets.collect()
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
            (&DIR, "/$defs/Directory/properties"),
            (&STREAM, "/$defs/Stream/properties"),
            (&ENGINE, "/$defs/Engine/properties"),
            (&PIPELINE, "/$defs/Pipeline/properties"),
            (&RETRY, "/$defs/Retry/properties"),
            (&ON_FAULT, "/$defs/OnFault/properties"),
        ] {
            let properties = schema.pointer(place).and_then(Json::as_object).unwrap();
            let described: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
            assert_eq!(described, shape.keys.iter().copied().collect(), "{place}");
        }
    }
}
