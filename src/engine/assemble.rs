//! From what a pipeline file means to what the engine runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::handler::{Handler, Slot};
use super::pipeline::Pipeline;
use super::prepare::{Output, PartitionChoice, PrepareError, Wanted, prepare, prepare_outputs};
use super::sweeper::Retention;
use super::watch::Mark;
use crate::backend::{Backend, Start};
use crate::config::{self, Config};
use crate::event::{GroupKey, Name};
use crate::plugin::{EffectLimits, Host, Limits, LoadError, Plugin, PluginSpec};
use crate::retry::RetryPolicy;

/// The plugins of a file, by name, each in its slot.
pub struct Plugins {
    pub(super) host: Arc<Host>,
    pub(super) loaded: BTreeMap<String, Loaded>,
}

/// A plugin in its slot.
pub(super) struct Loaded {
    pub(super) spec: PluginSpec,
    /// The file as it was when it was read last.
    pub(super) mark: Mark,
    /// Digest of the build in the slot.
    pub(super) digest: Arc<str>,
    pub(super) slot: Arc<Slot>,
}

/// A build that is ready for its slot.
pub(super) struct Build {
    pub(super) spec: PluginSpec,
    pub(super) mark: Mark,
    pub(super) plugin: Arc<Plugin>,
    /// Its slot, where its plugin has none yet.
    pub(super) slot: Arc<Slot>,
}

impl Build {
    pub(super) fn new(spec: PluginSpec, mark: Mark, plugin: Arc<Plugin>) -> Self {
        let slot = Slot::new(Arc::clone(&plugin) as Arc<dyn Handler>);
        Self { spec, mark, plugin, slot }
    }
}

impl Plugins {
    /// The slot of a plugin.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<Arc<Slot>> {
        self.loaded.get(name).map(|loaded| Arc::clone(&loaded.slot))
    }

    /// Loads every plugin of a file, all of them before the first complaint.
    ///
    /// # Errors
    /// What is wrong with those that cannot be loaded.
    pub async fn load(host: Arc<Host>, config: &Config) -> Result<Self, Vec<LoadError>> {
        let mut plugins = Self { host, loaded: BTreeMap::new() };
        let mut problems = Vec::new();
        for plugin in &config.plugins {
            let spec = spec(&config.engine, plugin);
            // Before it is read: what changes afterwards is seen as a change.
            let mark = Mark::of(&spec.path);
            match plugins.host.load(&spec).await {
                Ok(plugin) => plugins.put(Build::new(spec, mark, plugin)),
                Err(error) => problems.push(error),
            }
        }
        if problems.is_empty() { Ok(plugins) } else { Err(problems) }
    }

    /// Puts a build into its plugin's slot: the one that it has, or else this one.
    pub(super) fn put(&mut self, build: Build) {
        let Build { spec, mark, plugin, slot } = build;
        let digest = Arc::clone(plugin.digest());
        let slot = self.loaded.get(&spec.name).map_or(slot, |known| Arc::clone(&known.slot));
        slot.replace(plugin);
        self.loaded.insert(spec.name.clone(), Loaded { spec, mark, digest, slot });
    }
}

/// What the plugin host is told of a plugin.
#[must_use]
pub fn spec(engine: &config::Engine, plugin: &config::Plugin) -> PluginSpec {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let effects = &plugin.effects;
    PluginSpec {
        name: plugin.name.clone(),
        path: plugin.path.clone(),
        limits: Limits {
            timeout: plugin.timeout,
            cpu_max: plugin.max_cpu,
            instances_max: plugin.max_instances as usize,
            lines_max: plugin.max_log_lines,
            memory_bytes_max: size(plugin.max_memory),
            reuse_count_max: plugin.max_calls,
            effects: EffectLimits {
                events_max: effects.max_outbox_events as usize,
                event_bytes_sum_max: size(effects.max_outbox),
                event_bytes_max: engine.max_event_bytes,
                state_keys_max: effects.max_state_keys as usize,
                state_bytes_max: size(effects.max_state),
            },
            ..Limits::default()
        },
        config: plugin.config.clone(),
        grants: plugin.grants.clone(),
    }
}

/// The streams that a plugin may append to.
#[must_use]
pub fn outputs(config: &Config, plugin: &config::Plugin) -> Vec<Output> {
    let partitions = |stream: &Name| config.streams.iter().find(|s| s.name == *stream).map(|s| s.partitions);
    let output = |stream: &Name| Output { stream: stream.clone(), partitions: partitions(stream) };
    plugin.grants.streams.iter().map(output).collect()
}

/// What a pipeline needs of the store.
#[must_use]
pub fn wanted(config: &Config, pipeline: &config::Pipeline) -> Wanted {
    let stream = config.streams.iter().find(|stream| stream.name == pipeline.stream);
    Wanted {
        group: GroupKey::new(pipeline.stream.clone(), pipeline.group.clone()),
        stream_partitions: stream.map(|stream| stream.partitions),
        partitions: match &pipeline.partitions {
            config::Partitions::All => PartitionChoice::All,
            config::Partitions::List(list) => PartitionChoice::List(list.clone()),
        },
        max_attempts: pipeline.max_attempts,
        start: match pipeline.start {
            config::Start::Beginning => Start::Beginning,
            config::Start::End => Start::End,
        },
    }
}

/// How long a stream's events are kept, where the file says.
#[must_use]
pub fn retention(config: &Config, stream: &Name) -> Retention {
    let declared = config.streams.iter().find(|declared| declared.name == *stream);
    declared.map_or(Retention::default(), |declared| Retention {
        max_age: declared.max_age,
        max_length: declared.max_length,
    })
}

/// Why a pipeline cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("pipeline `{pipeline}`: {error}")]
pub struct AssembleError {
    /// The pipeline.
    pub pipeline: String,
    /// What does not fit, or the store's error.
    #[source]
    pub error: PrepareError,
}

/// Makes a pipeline ready to run: creates its stream and group where they are missing, and the streams
/// that its plugin may append to, and says so.
/// `slot` holds its plugin.
///
/// # Errors
/// The store does not answer, or has something else than the file says.
pub async fn assemble(
    backend: &dyn Backend,
    config: &Config,
    pipeline: &config::Pipeline,
    slot: Arc<Slot>,
) -> Result<Pipeline, AssembleError> {
    let wanted = wanted(config, pipeline);
    let prepared = prepare(backend, &wanted).await;
    let failed = |error| AssembleError { pipeline: pipeline.name.to_string(), error };
    let prepared = prepared.map_err(failed)?;
    let (stream, group) = (&wanted.group.stream, &wanted.group.group);
    if prepared.created_stream {
        tracing::info!(%stream, partitions = prepared.partitions.len(), "created the stream");
    }
    if prepared.created_group {
        tracing::info!(%stream, %group, max_attempts = prepared.max_attempts, "created the group");
    }
    for plugin in config.plugins.iter().filter(|plugin| plugin.name == pipeline.plugin) {
        let outputs = outputs(config, plugin);
        prepare_outputs(backend, &outputs).await.map_err(failed)?;
        slot.set_outputs(outputs);
    }
    Ok(Pipeline {
        on_fault: pipeline.on_fault,
        name: pipeline.name.as_str().into(),
        group: wanted.group.clone(),
        partitions: prepared.partitions,
        concurrency: pipeline.concurrency as usize,
        in_flight_max: pipeline.max_in_flight as usize,
        lease: pipeline.lease,
        retry: RetryPolicy { max_attempts: prepared.max_attempts, ..pipeline.retry.clone() },
        retention: retention(config, &pipeline.stream),
        plugin: slot,
        wanted,
    })
}
