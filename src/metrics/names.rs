//! Every metric that there is: its name, its type, its labels, and what it tells. `docs/metrics.md`
//! lists the same, and a test holds the two and a real scrape together.

/// What kind of metric it is, in the words of OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process ends.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Observations, counted in buckets.
    Histogram,
    /// Always 1: what it tells stands in its labels.
    Info,
}

impl Kind {
    /// The type's name in a scrape.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name as a query writes it: counters end in `_total`, an info in `_info`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels, in the order in which they are written.
    pub labels: &'static [&'static str],
    /// What it tells, without a full stop.
    pub help: &'static str,
}

/// Labels of what a pipeline does.
const PIPELINE: &[&str] = &["pipeline", "stream", "group"];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

pub(super) const CLAIMED: Metric =
    counter("wasmill_events_claimed_total", PIPELINE, "Deliveries: events taken under lease");
pub(super) const REDELIVERED: Metric = counter(
    "wasmill_events_redelivered_total",
    PIPELINE,
    "Those among the deliveries that were not the event's first one",
);
pub(super) const SETTLED: Metric = counter(
    "wasmill_events_settled_total",
    &["pipeline", "stream", "group", "outcome"],
    "Verdicts that the store has written: ack, retry, dead-letter (at a claim too), release (handed back untouched)",
);
pub(super) const APPENDED: Metric = counter(
    "wasmill_events_appended_total",
    PIPELINE,
    "Events that handlers have appended, each committed with its handler's ack",
);
pub(super) const STALE: Metric = counter(
    "wasmill_settlements_stale_total",
    PIPELINE,
    "Attempts whose lease was lost, so that nothing was written",
);
pub(super) const UNKNOWN: Metric = counter(
    "wasmill_settlements_unknown_total",
    PIPELINE,
    "Settlements of which no answer tells whether they were written",
);
pub(super) const FAULTS: Metric = counter(
    "wasmill_faults_total",
    &["pipeline", "stream", "group", "plugin", "kind"],
    "Attempts that ended without an answer: trap, timeout, memory",
);
pub(super) const REPAIRS: Metric = counter(
    "wasmill_repairs_total",
    &["pipeline", "stream", "group", "kind"],
    "Damage of the store that was found and mended",
);
pub(super) const RELOADS: Metric = counter(
    "wasmill_reloads_total",
    &["outcome"],
    "Reloads: ok (something was carried over) and refused (something could not be)",
);
pub(super) const ATTEMPTS: Metric = histogram(
    "wasmill_event_attempts",
    PIPELINE,
    "Deliveries that an event had when it was acked or dead-lettered after an attempt",
);
pub(super) const HANDLER: Metric = histogram(
    "wasmill_handler_seconds",
    &["pipeline", "stream", "group", "plugin"],
    "Time from the call of a handler to its end, an instance for it included",
);
pub(super) const CLAIM: Metric =
    histogram("wasmill_claim_seconds", PIPELINE, "Time from the request of a claim to its answer");
pub(super) const SETTLE: Metric = histogram(
    "wasmill_settle_seconds",
    PIPELINE,
    "Time from the request of a batch of settlements to its answer",
);
pub(super) const QUEUE_WAIT: Metric = histogram(
    "wasmill_queue_wait_seconds",
    PIPELINE,
    "Age of an event when its handler was called for the first time",
);
pub(super) const IN_FLIGHT: Metric =
    gauge("wasmill_events_in_flight", PIPELINE, "Events that this engine holds under lease");
pub(super) const READY: Metric = gauge(
    "wasmill_pipeline_ready",
    PIPELINE,
    "1 where the pipeline works or is idle; 0 where it is paused, stuck or stopped",
);
pub(super) const LAG: Metric = gauge(
    "wasmill_group_lag_events",
    PIPELINE,
    "Events between frontier and high watermark in the pipeline's partitions",
);
pub(super) const PARKED: Metric =
    gauge("wasmill_group_parked_events", PIPELINE, "Events that wait for their retry or redrive");
pub(super) const OLDEST: Metric = gauge(
    "wasmill_group_oldest_unsettled_seconds",
    PIPELINE,
    "Age of the oldest event behind a frontier; 0 where all is settled",
);
pub(super) const DEAD_LETTERS: Metric =
    gauge("wasmill_group_dead_letters", &["stream", "group"], "Dead letters that the group has");
pub(super) const INSTANCES: Metric = gauge(
    "wasmill_plugin_instances",
    &["plugin", "state"],
    "Instances of the plugin's newest build: busy (in a call) and warm (waiting for one)",
);
pub(super) const INSTANCES_MAX: Metric = gauge(
    "wasmill_plugin_instances_max",
    &["plugin"],
    "Instances that may be busy at once (`max_instances`)",
);
pub(super) const MEMORY: Metric = gauge(
    "wasmill_plugin_memory_bytes",
    &["plugin"],
    "Linear memory of all instances of the plugin's newest build",
);
pub(super) const STORE_UP: Metric =
    gauge("wasmill_store_up", &[], "1 while the store answers and takes work, else 0");
pub(super) const BUILD: Metric = Metric {
    name: "wasmill_build_info",
    kind: Kind::Info,
    labels: &["version"],
    help: "The engine's version",
};

/// All of them.
pub const ALL: &[Metric] = &[
    CLAIMED,
    REDELIVERED,
    SETTLED,
    APPENDED,
    STALE,
    UNKNOWN,
    FAULTS,
    REPAIRS,
    RELOADS,
    ATTEMPTS,
    HANDLER,
    CLAIM,
    SETTLE,
    QUEUE_WAIT,
    IN_FLIGHT,
    READY,
    LAG,
    PARKED,
    OLDEST,
    DEAD_LETTERS,
    INSTANCES,
    INSTANCES_MAX,
    MEMORY,
    STORE_UP,
    BUILD,
];

/// Upper bounds of the buckets of times inside the engine, in seconds: from a call that does nothing to
/// the longest that a plugin may take by default.
pub(super) const WORK_SECONDS: [f64; 17] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
];

/// Upper bounds of the buckets of an event's age, in seconds: up to a day's backlog.
pub(super) const AGE_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3_600.0, 21_600.0, 86_400.0];

/// Upper bounds of the buckets of attempts.
pub(super) const ATTEMPTS_COUNT: [f64; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 100.0];
