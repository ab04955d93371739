//! How an engine and each of its pipelines are, for those who look from outside: health checks,
//! metrics, and tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio_util::sync::CancellationToken;

use super::handler::Slot;
use super::health::Health;
use super::permits::Permits;
use super::pipeline::Pipeline;
use super::progress::quiet_max;
use super::summary::Counts;
use crate::metrics::{Metrics, Now, PipelineLabels, PipelineNow, PluginNow};

/// The state of an engine, and of every pipeline of it, by name.
#[derive(Debug, Default)]
pub struct Conditions {
    state: Mutex<State>,
    metrics: Arc<Metrics>,
    pub(super) health: Arc<Health>,
    /// Whether anyone may scrape: then calls are timed, and what only the store knows is read.
    pub(super) is_scraped: bool,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// With the time since when it is so.
    conditions: BTreeMap<Arc<str>, (Condition, Instant)>,
    running: BTreeMap<Arc<str>, Watched>,
}

/// How far an engine has come.
#[derive(Clone, Debug, Default)]
pub enum Phase {
    /// Its plugins are compiled and tried.
    #[default]
    LoadingPlugins,
    /// It opens its store, and makes streams and groups ready.
    OpeningStore,
    /// It runs, and drains once this is cancelled.
    Running(CancellationToken),
}

/// How a pipeline is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It takes events.
    Running,
    /// It takes none, since its plugin faulted too often.
    Paused(Pause),
    /// It has stopped by itself, for good; the log says why.
    Stopped,
}

/// Why and since when a pipeline takes no events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it paused, by the machine's clock.
    pub since: SystemTime,
    /// Faults that led to it.
    pub faults: usize,
    /// The attempts among which they were.
    pub attempts: usize,
    /// The plugin's name.
    pub plugin: String,
    /// Digest of the build that ended in the last fault.
    pub digest: Arc<str>,
    /// The last fault, in words.
    pub fault: String,
}

/// What is to be seen of a running pipeline.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) labels: PipelineLabels,
    pub(super) lease: Duration,
    pub(super) plugin: Arc<Slot>,
    pub(super) counts: Arc<Counts>,
    pub(super) permits: Arc<Permits>,
}

/// How a pipeline is, looked at closely.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) condition: Condition,
    /// Events that it holds.
    pub(super) held: usize,
    /// How long it has been stuck, where it is.
    pub(super) stuck: Option<Duration>,
}

impl Conditions {
    /// Of an engine whose `metrics` may be scraped.
    #[must_use]
    pub fn scraped(metrics: Arc<Metrics>) -> Self {
        Self { metrics, is_scraped: true, ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the engine records into.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// All pipelines that have begun and not ended, and those that have stopped by themselves.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<Arc<str>, Condition> {
        self.state().conditions.iter().map(|(name, (how, _))| (Arc::clone(name), how.clone())).collect()
    }

    /// How far the engine has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.state().phase.clone()
    }

    /// The engine has come so far.
    pub fn enter(&self, phase: Phase) {
        self.state().phase = phase;
    }

    /// A pipeline begins.
    pub(super) fn begin(&self, pipeline: &Pipeline, counts: &Arc<Counts>, permits: &Arc<Permits>) {
        let watched = Watched {
            labels: PipelineLabels::new(&pipeline.name, &pipeline.group),
            lease: pipeline.lease,
            plugin: Arc::clone(&pipeline.plugin),
            counts: Arc::clone(counts),
            permits: Arc::clone(permits),
        };
        self.state().running.insert(Arc::clone(&pipeline.name), watched);
        self.set(&pipeline.name, Condition::Running);
    }

    pub(super) fn set(&self, pipeline: &Arc<str>, condition: Condition) {
        self.state().conditions.insert(Arc::clone(pipeline), (condition, Instant::now()));
    }

    pub(super) fn remove(&self, pipeline: &str) {
        let mut state = self.state();
        state.conditions.remove(pipeline);
        state.running.remove(pipeline);
    }

    /// A pipeline has stopped by itself.
    pub(super) fn stopped(&self, pipeline: &Arc<str>) {
        self.set(pipeline, Condition::Stopped);
    }

    /// All pipelines, looked at closely.
    pub(super) fn look(&self) -> Vec<(Arc<str>, PipelineLabels, Look)> {
        let (up, back, now) = (self.health.outage().is_none(), self.health.back(), Instant::now());
        let state = self.state();
        let seen = state.conditions.iter().filter_map(|(name, (condition, since))| {
            let watched = state.running.get(name)?;
            let held = watched.permits.held();
            // Neither a pause nor the store's absence is the pipeline's own silence.
            let since = back.map_or(*since, |back| back.max(*since));
            let quiet = watched.counts.progress.quiet(held, now).min(now.saturating_duration_since(since));
            let stuck = up
                && *condition == Condition::Running
                && quiet > quiet_max(watched.lease, watched.plugin.get().call_max());
            let look = Look { condition: condition.clone(), held, stuck: stuck.then_some(quiet) };
            Some((Arc::clone(name), watched.labels.clone(), look))
        });
        seen.collect()
    }

    /// The state that a scrape begins with.
    #[must_use]
    pub fn now(&self) -> Now {
        let pipelines = self.look().into_iter().map(|(_, labels, look)| {
            let ready = look.condition == Condition::Running && look.stuck.is_none();
            PipelineNow { labels, in_flight: look.held as u64, ready }
        });
        let pipelines = pipelines.collect();
        let mut plugins = BTreeMap::new();
        for watched in self.state().running.values() {
            let handler = watched.plugin.get();
            if let Some(usage) = handler.usage() {
                let plugin = PluginNow {
                    busy: usage.busy as u64,
                    warm: usage.warm as u64,
                    busy_max: usage.busy_max as u64,
                    memory_bytes: usage.memory_bytes as u64,
                };
                plugins.insert(handler.name().to_owned(), plugin);
            }
        }
        let store_up = matches!(self.phase(), Phase::Running(_)) && self.health.outage().is_none();
        Now { store_up, pipelines, plugins }
    }
}
