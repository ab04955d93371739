//! What metrics are told apart by. Each set is bounded by the pipeline file.

use prometheus_client::encoding::EncodeLabelSet;

use crate::event::GroupKey;

/// A pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PipelineLabels {
    pipeline: String,
    stream: String,
    group: String,
}

impl PipelineLabels {
    /// The pipeline of this name, which takes events of this group.
    #[must_use]
    pub fn new(pipeline: &str, key: &GroupKey) -> Self {
        let GroupLabels { stream, group } = GroupLabels::new(key);
        Self { pipeline: pipeline.to_owned(), stream, group }
    }
}

/// A pipeline, and how something ended in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    #[prometheus(flatten)]
    pub(super) pipeline: PipelineLabels,
    pub(super) outcome: &'static str,
}

/// A pipeline, and what kind of thing happened in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabels {
    #[prometheus(flatten)]
    pub(super) pipeline: PipelineLabels,
    pub(super) kind: &'static str,
}

/// A pipeline and its plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HandlerLabels {
    #[prometheus(flatten)]
    pub(super) pipeline: PipelineLabels,
    pub(super) plugin: String,
}

/// A pipeline and its plugin, and what kind of thing happened in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FaultLabels {
    #[prometheus(flatten)]
    pub(super) handler: HandlerLabels,
    pub(super) kind: &'static str,
}

/// A consumer group, whichever pipelines serve it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct GroupLabels {
    pub(super) stream: String,
    pub(super) group: String,
}

impl GroupLabels {
    pub(super) fn new(key: &GroupKey) -> Self {
        Self { stream: key.stream.to_string(), group: key.group.to_string() }
    }
}

/// A plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PluginLabels {
    pub(super) plugin: String,
}

/// A plugin, and how its instances are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StateLabels {
    pub(super) plugin: String,
    pub(super) state: &'static str,
}

/// How something ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EndLabels {
    pub(super) outcome: &'static str,
}

/// A build of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BuildLabels {
    pub(super) version: &'static str,
}
