//! The state of the moment, which a scrape begins with.

use std::collections::BTreeMap;

use super::labels::{PluginLabels, StateLabels};
use super::{Families, PipelineLabels};

/// How an engine is.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// Whether the store answers and takes work.
    pub store_up: bool,
    /// Its pipelines.
    pub pipelines: Vec<PipelineNow>,
    /// Their plugins, by name.
    pub plugins: BTreeMap<String, PluginNow>,
}

/// How a pipeline is.
#[derive(Clone, Debug)]
pub struct PipelineNow {
    /// Which one.
    pub labels: PipelineLabels,
    /// Events that it holds.
    pub in_flight: u64,
    /// Whether it works or is idle.
    pub ready: bool,
}

/// What a plugin's newest build uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginNow {
    /// Instances in a call.
    pub busy: u64,
    /// Instances that wait for one.
    pub warm: u64,
    /// Instances that may be in a call at once.
    pub busy_max: u64,
    /// Bytes of linear memory of all of them.
    pub memory_bytes: u64,
}

impl Families {
    /// Takes in the state of the moment; what is there no more has no row.
    pub(super) fn set(&self, now: &Now) {
        self.store_up.set(now.store_up.into());
        self.in_flight.clear();
        self.ready.clear();
        for PipelineNow { labels, in_flight, ready } in &now.pipelines {
            self.in_flight.get_or_create(labels).set(*in_flight);
            self.ready.get_or_create(labels).set((*ready).into());
        }
        self.instances.clear();
        self.instances_max.clear();
        self.memory.clear();
        for (name, plugin) in &now.plugins {
            let labels = PluginLabels { plugin: name.clone() };
            for (state, count) in [("busy", plugin.busy), ("warm", plugin.warm)] {
                self.instances.get_or_create(&StateLabels { plugin: name.clone(), state }).set(count);
            }
            self.instances_max.get_or_create(&labels).set(plugin.busy_max);
            self.memory.get_or_create(&labels).set(plugin.memory_bytes);
        }
    }
}
