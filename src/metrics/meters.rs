//! What one pipeline records into.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::labels::{FaultLabels, GroupLabels, HandlerLabels, KindLabels, OutcomeLabels};
use super::{Metrics, PipelineLabels};
use crate::backend::{Repair, RepairKind};
use crate::event::GroupKey;
use crate::outcome::{FaultKind, Verdict};

/// One pipeline's counters and histograms: handles, resolved once. Recording is a few atomic steps.
#[derive(Debug)]
pub struct Meters {
    metrics: Arc<Metrics>,
    labels: PipelineLabels,
    claimed: Counter,
    redelivered: Counter,
    acked: Counter,
    retried: Counter,
    dead_lettered: Counter,
    released: Counter,
    appended: Counter,
    stale: Counter,
    unknown: Counter,
    trap: Counter,
    timeout: Counter,
    memory: Counter,
    attempts: Histogram,
    handler: Histogram,
    claim: Histogram,
    settle: Histogram,
    queue_wait: Histogram,
}

impl Meters {
    /// Those of a pipeline that hands the events of a group to a plugin. All its counters are there
    /// from now on, so that their first step shows.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, pipeline: &str, group: &GroupKey, plugin: &str) -> Self {
        let all = &metrics.families;
        let labels = PipelineLabels::new(pipeline, group);
        let settled =
            |outcome| all.settled.get_or_create_owned(&OutcomeLabels { pipeline: labels.clone(), outcome });
        let handler = HandlerLabels { pipeline: labels.clone(), plugin: plugin.to_owned() };
        let fault = |kind: FaultKind| {
            let labels = FaultLabels { handler: handler.clone(), kind: kind.as_str() };
            all.faults.get_or_create_owned(&labels)
        };
        for kind in RepairKind::ALL {
            drop(all.repairs.get_or_create(&repair_labels(&labels, kind)));
        }
        Self {
            claimed: all.claimed.get_or_create_owned(&labels),
            redelivered: all.redelivered.get_or_create_owned(&labels),
            acked: settled("ack"),
            retried: settled("retry"),
            dead_lettered: settled("dead-letter"),
            released: settled("release"),
            appended: all.appended.get_or_create_owned(&labels),
            stale: all.stale.get_or_create_owned(&labels),
            unknown: all.unknown.get_or_create_owned(&labels),
            trap: fault(FaultKind::Trap),
            timeout: fault(FaultKind::Timeout),
            memory: fault(FaultKind::Memory),
            attempts: all.attempts.get_or_create_owned(&labels),
            handler: all.handler.get_or_create_owned(&handler),
            claim: all.claim.get_or_create_owned(&labels),
            settle: all.settle.get_or_create_owned(&labels),
            queue_wait: all.queue_wait.get_or_create_owned(&labels),
            labels,
            metrics,
        }
    }

    /// Which pipeline it is.
    #[must_use]
    pub fn labels(&self) -> &PipelineLabels {
        &self.labels
    }

    /// So many events were taken under lease, so many of them not for the first time.
    pub fn claimed(&self, count: u64, again: u64) {
        self.claimed.inc_by(count);
        self.redelivered.inc_by(again);
    }

    /// A claim made a dead letter of an entry.
    pub fn dead_lettered_at_claim(&self) {
        self.dead_lettered.inc();
    }

    /// A verdict on an event's so-manieth attempt was written.
    pub fn settled(&self, verdict: &Verdict, attempt: u32) {
        match verdict {
            Verdict::Ack(effects) => {
                self.acked.inc();
                self.appended.inc_by(effects.appends.len() as u64);
                self.attempts.observe(attempt.into());
            }
            Verdict::Retry { .. } => {
                self.retried.inc();
            }
            Verdict::DeadLetter { .. } => {
                self.dead_lettered.inc();
                self.attempts.observe(attempt.into());
            }
            Verdict::Release => {
                self.released.inc();
            }
        }
    }

    /// A lease was lost, so that nothing was written.
    pub fn stale(&self) {
        self.stale.inc();
    }

    /// No answer tells whether so many settlements were written.
    pub fn unknown(&self, count: u64) {
        self.unknown.inc_by(count);
    }

    /// An attempt ended without an answer.
    pub fn fault(&self, kind: FaultKind) {
        match kind {
            FaultKind::Trap => self.trap.inc(),
            FaultKind::Timeout => self.timeout.inc(),
            FaultKind::Memory => self.memory.inc(),
        };
    }

    /// Damage of the store was mended. Rare: the one thing that is looked up.
    pub fn repaired(&self, repair: &Repair) {
        let labels = repair_labels(&self.labels, repair.kind);
        self.metrics.families.repairs.get_or_create(&labels).inc_by(repair.count);
    }

    /// A call of the handler took so long, whatever came of it.
    pub fn handled(&self, took: Duration) {
        self.handler.observe(took.as_secs_f64());
    }

    /// The store took so long for a claim.
    pub fn claim_took(&self, took: Duration) {
        self.claim.observe(took.as_secs_f64());
    }

    /// The store took so long for a batch of settlements.
    pub fn settle_took(&self, took: Duration) {
        self.settle.observe(took.as_secs_f64());
    }

    /// An event's handler is called for the first time, so long after the event's own time.
    pub fn waited(&self, age: Duration) {
        self.queue_wait.observe(age.as_secs_f64());
    }
}

fn repair_labels(pipeline: &PipelineLabels, kind: RepairKind) -> KindLabels {
    KindLabels { pipeline: pipeline.clone(), kind: kind.as_str() }
}

/// How the store has a pipeline's group. Rows come with the first [`GroupMeters::set`], and go with this
/// value.
#[derive(Debug)]
pub struct GroupMeters {
    metrics: Arc<Metrics>,
    labels: PipelineLabels,
    group: GroupLabels,
}

impl GroupMeters {
    /// Those of a pipeline that takes events of a group.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, pipeline: &str, key: &GroupKey) -> Self {
        Self { metrics, labels: PipelineLabels::new(pipeline, key), group: GroupLabels::new(key) }
    }

    /// Takes in what was read: events behind the frontier, parked ones, dead letters, and the age of
    /// the oldest unsettled event, where there is one.
    pub fn set(&self, lag: u64, parked: u64, dead_letters: u64, oldest: Option<Duration>) {
        let all = &self.metrics.families;
        all.lag.get_or_create(&self.labels).set(lag);
        all.parked.get_or_create(&self.labels).set(parked);
        all.oldest.get_or_create(&self.labels).set(oldest.unwrap_or_default().as_secs_f64());
        all.dead_letters.get_or_create(&self.group).set(dead_letters);
    }
}

impl Drop for GroupMeters {
    fn drop(&mut self) {
        let all = &self.metrics.families;
        all.lag.remove(&self.labels);
        all.parked.remove(&self.labels);
        all.oldest.remove(&self.labels);
        all.dead_letters.remove(&self.group);
    }
}
