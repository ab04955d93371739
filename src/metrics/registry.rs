//! Puts each family under its name.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{self, Registry, Unit};

use super::labels::BuildLabels;
use super::names::{self, Kind, Metric};
use super::{Families, Number};

fn work() -> Histogram {
    Histogram::new(names::WORK_SECONDS)
}

fn age() -> Histogram {
    Histogram::new(names::AGE_SECONDS)
}

fn attempts() -> Histogram {
    Histogram::new(names::ATTEMPTS_COUNT)
}

/// All families, and the registry that writes them in the order of [`names::ALL`].
pub(super) fn build() -> (Registry, Families) {
    let mut registry = Registry::default();
    let to = &mut registry;
    let families = Families {
        claimed: add(to, names::CLAIMED, Family::default()),
        redelivered: add(to, names::REDELIVERED, Family::default()),
        settled: add(to, names::SETTLED, Family::default()),
        appended: add(to, names::APPENDED, Family::default()),
        stale: add(to, names::STALE, Family::default()),
        unknown: add(to, names::UNKNOWN, Family::default()),
        faults: add(to, names::FAULTS, Family::default()),
        repairs: add(to, names::REPAIRS, Family::default()),
        reloads: add(to, names::RELOADS, Family::default()),
        attempts: add(to, names::ATTEMPTS, Family::new_with_constructor(attempts)),
        handler: add(to, names::HANDLER, Family::new_with_constructor(work)),
        claim: add(to, names::CLAIM, Family::new_with_constructor(work)),
        settle: add(to, names::SETTLE, Family::new_with_constructor(work)),
        queue_wait: add(to, names::QUEUE_WAIT, Family::new_with_constructor(age)),
        in_flight: add(to, names::IN_FLIGHT, Family::default()),
        ready: add(to, names::READY, Family::default()),
        lag: add(to, names::LAG, Family::default()),
        parked: add(to, names::PARKED, Family::default()),
        oldest: add(to, names::OLDEST, Family::default()),
        dead_letters: add(to, names::DEAD_LETTERS, Family::default()),
        instances: add(to, names::INSTANCES, Family::default()),
        instances_max: add(to, names::INSTANCES_MAX, Family::default()),
        memory: add(to, names::MEMORY, Family::default()),
        store_up: add(to, names::STORE_UP, Number::default()),
    };
    let build = BuildLabels { version: env!("CARGO_PKG_VERSION") };
    register(to, names::BUILD, Info::new(build));
    (registry, families)
}

fn add<M: registry::Metric + Clone>(registry: &mut Registry, metric: Metric, family: M) -> M {
    register(registry, metric, family.clone());
    family
}

/// The library adds the suffix of a unit and of a type to a name by itself.
fn register(registry: &mut Registry, metric: Metric, family: impl registry::Metric) {
    let name = match metric.kind {
        Kind::Counter => metric.name.trim_end_matches("_total"),
        Kind::Info => metric.name.trim_end_matches("_info"),
        Kind::Gauge | Kind::Histogram => metric.name,
    };
    for (suffix, unit) in [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)] {
        if let Some(name) = name.strip_suffix(suffix) {
            return registry.register_with_unit(name, metric.help, unit, family);
        }
    }
    registry.register(name, metric.help, family);
}
