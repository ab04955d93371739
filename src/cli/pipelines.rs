//! From what a pipeline file means to what the engine runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exit::Exit;
use crate::backend::Start;
use crate::config::{self, Config};
use crate::engine::{PartitionChoice, Pipeline, PrepareError, Prepared, Retention, Wanted};
use crate::event::{GroupKey, Name};
use crate::plugin::{Host, HostSettings, Limits, Plugin, PluginSpec};
use crate::retry::RetryPolicy;

/// The plugins of a file, by name.
pub(super) type Plugins = BTreeMap<String, Arc<Plugin>>;

/// Starts the host of plugins.
pub(super) fn host() -> Result<Arc<Host>, Exit> {
    Host::new(HostSettings::default()).map_err(|error| Exit::Failed(error.into()))
}

/// Loads every plugin that a pipeline uses, all of them before the first complaint.
pub(super) async fn load_plugins(host: &Arc<Host>, config: &Config) -> Result<Plugins, Exit> {
    let mut plugins = Plugins::new();
    let mut problems = Vec::new();
    for plugin in &config.plugins {
        match host.load(&spec(plugin)).await {
            Ok(loaded) => {
                plugins.insert(plugin.name.clone(), loaded);
            }
            Err(error) => problems.push(error.to_string()),
        }
    }
    if problems.is_empty() { Ok(plugins) } else { Err(Exit::usage(problems.join("\n"))) }
}

pub(super) fn spec(plugin: &config::Plugin) -> PluginSpec {
    PluginSpec {
        name: plugin.name.clone(),
        path: plugin.path.clone(),
        limits: Limits {
            timeout: plugin.timeout,
            memory_bytes_max: usize::try_from(plugin.max_memory).unwrap_or(usize::MAX),
            ..Limits::default()
        },
        config: plugin.config.clone(),
    }
}

/// What a pipeline needs of the store.
pub(super) fn wanted(config: &Config, pipeline: &config::Pipeline) -> Wanted {
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
pub(super) fn retention(config: &Config, stream: &Name) -> Retention {
    let declared = config.streams.iter().find(|declared| declared.name == *stream);
    declared.map_or(Retention::default(), |declared| Retention {
        max_age: declared.max_age,
        max_length: declared.max_length,
    })
}

/// A pipeline that is ready to run.
pub(super) fn ready(
    config: &Config,
    pipeline: &config::Pipeline,
    wanted: Wanted,
    prepared: Prepared,
    plugins: &Plugins,
) -> Result<Pipeline, Exit> {
    let plugin = plugins.get(&pipeline.plugin);
    // The file was validated: each pipeline's plugin is in it, and all of them were loaded.
    let plugin = plugin.ok_or_else(|| Exit::usage(format!("there is no plugin `{}`", pipeline.plugin)))?;
    Ok(Pipeline {
        name: pipeline.name.as_str().into(),
        group: wanted.group.clone(),
        partitions: prepared.partitions,
        concurrency: pipeline.concurrency as usize,
        in_flight_max: pipeline.max_in_flight as usize,
        lease: pipeline.lease,
        retry: RetryPolicy { max_attempts: prepared.max_attempts, ..pipeline.retry.clone() },
        retention: retention(config, &pipeline.stream),
        plugin: Arc::clone(plugin) as Arc<dyn crate::engine::Handler>,
        wanted,
    })
}

/// A mismatch between file and store is the file's to mend.
pub(super) fn prepare_failed(pipeline: &str, error: PrepareError) -> Exit {
    let exit = match error {
        PrepareError::Store(error) => Exit::from(error),
        error => Exit::Usage(error.into()),
    };
    exit.context(format!("pipeline `{pipeline}`"))
}
