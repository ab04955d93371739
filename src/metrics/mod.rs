//! What an engine counts and measures, for a scrape in the OpenMetrics text format.
//!
//! [`Metrics`] has one family for each of [`names`]. A pipeline gets its [`Meters`] once, when it
//! starts, and records into them without looking anything up. What is a state and no history (what is
//! held, who is ready, the plugins' memory) is handed in with each scrape: [`Now`].

mod labels;
mod meters;
pub mod names;
mod now;
mod registry;

use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use self::labels::PipelineLabels;
use self::labels::{
    EndLabels, FaultLabels, GroupLabels, HandlerLabels, KindLabels, OutcomeLabels, PluginLabels, StateLabels,
};
pub use self::meters::{GroupMeters, Meters};
pub use self::now::{Now, PipelineNow, PluginNow};

/// The media type of a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;
type Number = Gauge<u64, std::sync::atomic::AtomicU64>;
type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;

/// All metrics of one engine.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    /// One scrape at a time: it begins with the state of the moment.
    scraping: Mutex<()>,
}

/// A family for each of [`names::ALL`].
#[derive(Debug)]
struct Families {
    claimed: Family<PipelineLabels, Counter>,
    redelivered: Family<PipelineLabels, Counter>,
    settled: Family<OutcomeLabels, Counter>,
    appended: Family<PipelineLabels, Counter>,
    stale: Family<PipelineLabels, Counter>,
    unknown: Family<PipelineLabels, Counter>,
    faults: Family<FaultLabels, Counter>,
    repairs: Family<KindLabels, Counter>,
    reloads: Family<EndLabels, Counter>,
    attempts: Histograms<PipelineLabels>,
    handler: Histograms<HandlerLabels>,
    claim: Histograms<PipelineLabels>,
    settle: Histograms<PipelineLabels>,
    queue_wait: Histograms<PipelineLabels>,
    in_flight: Family<PipelineLabels, Number>,
    ready: Family<PipelineLabels, Number>,
    lag: Family<PipelineLabels, Number>,
    parked: Family<PipelineLabels, Number>,
    oldest: Family<PipelineLabels, Seconds>,
    dead_letters: Family<GroupLabels, Number>,
    instances: Family<StateLabels, Number>,
    instances_max: Family<PluginLabels, Number>,
    memory: Family<PluginLabels, Number>,
    store_up: Number,
}

impl Default for Metrics {
    fn default() -> Self {
        let (registry, families) = registry::build();
        let metrics = Self { registry, families, scraping: Mutex::default() };
        // A counter that is there before it counts: its first step shows.
        let _ = (metrics.reloads("ok"), metrics.reloads("refused"));
        metrics
    }
}

impl Metrics {
    /// A reload has carried something over.
    pub fn reloaded(&self) {
        self.reloads("ok").inc();
    }

    /// A reload could not carry something over.
    pub fn reload_refused(&self) {
        self.reloads("refused").inc();
    }

    fn reloads(&self, outcome: &'static str) -> Counter {
        self.families.reloads.get_or_create_owned(&EndLabels { outcome })
    }

    /// A scrape, in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self, now: &Now) -> String {
        let _one = self.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        self.families.set(now);
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

#[cfg(test)]
mod tests;
