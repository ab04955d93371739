//! What a pipeline did, counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::idle::Left;
use crate::backend::{Repair, RepairKind};
use crate::outcome::{FaultKind, Verdict};

/// Numbers of repairs by kind.
type Repairs = BTreeMap<RepairKind, u64>;

/// Counters of a running pipeline.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) claimed: AtomicU64,
    pub(super) started: AtomicU64,
    pub(super) acked: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) dead_lettered: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) unknown: AtomicU64,
    trap: AtomicU64,
    timeout: AtomicU64,
    memory: AtomicU64,
    repairs: Mutex<Repairs>,
    /// The first claim that brought something, and the last settlement.
    busy: Mutex<Option<(Instant, Instant)>>,
}

impl Counts {
    /// There is work, or there was until now.
    pub(super) fn busy(&self) {
        let now = Instant::now();
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let since = busy.map_or(now, |(since, _)| since);
        *busy = Some((since, now));
    }

    pub(super) fn fault(&self, kind: FaultKind) {
        let counter = match kind {
            FaultKind::Trap => &self.trap,
            FaultKind::Timeout => &self.timeout,
            FaultKind::Memory => &self.memory,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Damage of the store was mended.
    pub(super) fn repaired(&self, repair: &Repair) {
        let mut repairs = self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
        *repairs.entry(repair.kind).or_default() += repair.count;
    }

    /// A verdict was written.
    pub(super) fn settled(&self, verdict: &Verdict) {
        let counter = match verdict {
            Verdict::Ack(_) => &self.acked,
            Verdict::Retry { .. } => &self.retried,
            Verdict::DeadLetter { .. } => &self.dead_lettered,
            Verdict::Release => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn summary(&self, pipeline: &str, left: Option<Left>) -> Summary {
        let busy = *self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = busy.map_or(Duration::ZERO, |(since, until)| until.duration_since(since));
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (acked, dead_lettered) = (read(&self.acked), read(&self.dead_lettered));
        // Counts stay far below 2^53; rounded to a tenth, since more would be noise.
        #[allow(clippy::cast_precision_loss)]
        let per_second = (acked + dead_lettered) as f64 / busy.as_secs_f64().max(1e-3);
        Summary {
            pipeline: pipeline.to_owned(),
            claimed: read(&self.claimed),
            acked,
            retried: read(&self.retried),
            dead_lettered,
            stale: read(&self.stale),
            unknown: read(&self.unknown),
            faults: SummaryFaults {
                trap: read(&self.trap),
                timeout: read(&self.timeout),
                memory: read(&self.memory),
            },
            repairs: self.repairs.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            events_per_second: (per_second * 10.0).round() / 10.0,
            left,
        }
    }
}

/// What a pipeline did from its start to its end.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Its name.
    pub pipeline: String,
    /// Deliveries: an event that is retried counts again.
    pub claimed: u64,
    /// Events that were acked.
    pub acked: u64,
    /// Attempts that ended in a retry.
    pub retried: u64,
    /// Events that became dead letters, at a claim too.
    pub dead_lettered: u64,
    /// Attempts whose lease was lost, so that nothing was written.
    pub stale: u64,
    /// Settlements of which no answer tells whether they were written.
    pub unknown: u64,
    /// Faults by kind.
    pub faults: SummaryFaults,
    /// Damage of the store that was mended, by kind.
    #[serde(skip_serializing_if = "Repairs::is_empty")]
    pub repairs: Repairs,
    /// Events acked or dead-lettered a second, from the first claim to the last settlement; of a
    /// pipeline that was restarted by a reload, since its last start.
    pub events_per_second: f64,
    /// What a run that ended as idle left to others or to later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
}

impl Summary {
    /// Adds what a later run of the same pipeline did.
    pub(super) fn add(&mut self, later: Self) {
        self.claimed += later.claimed;
        self.acked += later.acked;
        self.retried += later.retried;
        self.dead_lettered += later.dead_lettered;
        self.stale += later.stale;
        self.unknown += later.unknown;
        self.faults.trap += later.faults.trap;
        self.faults.timeout += later.faults.timeout;
        self.faults.memory += later.faults.memory;
        self.events_per_second = later.events_per_second;
        self.left = later.left;
    }
}

/// Attempts that ended without an answer, by kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SummaryFaults {
    /// The guest trapped.
    pub trap: u64,
    /// The guest took too long.
    pub timeout: u64,
    /// The guest wanted too much memory.
    pub memory: u64,
}
