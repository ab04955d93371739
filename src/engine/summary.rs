//! What a pipeline did, counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::idle::Left;
use super::progress::Progress;
use crate::backend::{Repair, RepairKind};
use crate::event::{Event, Leased};
use crate::metrics::Meters;
use crate::outcome::{FaultKind, Verdict};

/// Numbers of repairs by kind.
type Repairs = BTreeMap<RepairKind, u64>;

/// Counters of a running pipeline, for its summary at the end and for metrics meanwhile.
#[derive(Debug)]
pub(super) struct Counts {
    meters: Meters,
    /// Whether anyone may ask how long calls take: each costs looks at the clock.
    timed: bool,
    pub(super) progress: Progress,
    claimed: AtomicU64,
    pub(super) started: AtomicU64,
    acked: AtomicU64,
    retried: AtomicU64,
    dead_lettered: AtomicU64,
    stale: AtomicU64,
    unknown: AtomicU64,
    trap: AtomicU64,
    timeout: AtomicU64,
    memory: AtomicU64,
    repairs: Mutex<Repairs>,
    /// The first claim that brought something, and the last settlement.
    busy: Mutex<Option<(Instant, Instant)>>,
}

impl Counts {
    pub(super) fn new(meters: Meters, timed: bool) -> Self {
        Self {
            meters,
            timed,
            progress: Progress::default(),
            claimed: AtomicU64::default(),
            started: AtomicU64::default(),
            acked: AtomicU64::default(),
            retried: AtomicU64::default(),
            dead_lettered: AtomicU64::default(),
            stale: AtomicU64::default(),
            unknown: AtomicU64::default(),
            trap: AtomicU64::default(),
            timeout: AtomicU64::default(),
            memory: AtomicU64::default(),
            repairs: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    /// The store has answered a claim.
    pub(super) fn claim_answered(&self, took: Duration) {
        self.progress.looked(Instant::now());
        self.meters.claim_took(took);
    }

    /// The store has answered a batch of settlements.
    pub(super) fn settle_answered(&self, took: Duration) {
        self.meters.settle_took(took);
    }

    /// Events were taken under lease.
    pub(super) fn claimed(&self, leased: &[Leased]) {
        let count = leased.len() as u64;
        self.claimed.fetch_add(count, Ordering::Relaxed);
        let again = leased.iter().filter(|leased| leased.lease.attempt > 1).count();
        self.meters.claimed(count, again as u64);
    }

    /// A claim made a dead letter of an entry.
    pub(super) fn dead_lettered_at_claim(&self) {
        self.dead_lettered.fetch_add(1, Ordering::Relaxed);
        self.meters.dead_lettered_at_claim();
    }

    /// An event's handler is about to be called.
    pub(super) fn starts(&self, event: &Event, attempt: u32) {
        self.started.fetch_add(1, Ordering::Relaxed);
        // Later attempts waited for their time: that is no queue.
        if self.timed
            && attempt == 1
            && let Some(at) = event.timestamp_ms()
        {
            self.meters.waited(age(at));
        }
    }

    /// The time at which a handler is called, where it counts how long calls take.
    pub(super) fn clock(&self) -> Option<Instant> {
        self.timed.then(Instant::now)
    }

    /// An event's handler has ended, that was called then.
    pub(super) fn handled(&self, called: Option<Instant>) {
        if let Some(called) = called {
            self.meters.handled(called.elapsed());
        }
    }

    /// There is work, or there was until now.
    pub(super) fn busy(&self) {
        let now = Instant::now();
        self.progress.moved(now);
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
        self.meters.fault(kind);
    }

    /// Damage of the store was mended.
    pub(super) fn repaired(&self, repair: &Repair) {
        let mut repairs = self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
        *repairs.entry(repair.kind).or_default() += repair.count;
        self.meters.repaired(repair);
    }

    /// Nothing more can be written about an attempt; `doubtful`, where it may have been.
    pub(super) fn given_up(&self, doubtful: bool) {
        if doubtful {
            return self.left_unknown(1);
        }
        self.stale.fetch_add(1, Ordering::Relaxed);
        self.meters.stale();
    }

    /// No answer tells whether so many verdicts were written.
    pub(super) fn left_unknown(&self, count: u64) {
        self.unknown.fetch_add(count, Ordering::Relaxed);
        self.meters.unknown(count);
    }

    /// A verdict on an event's so-manieth attempt was written.
    pub(super) fn settled(&self, verdict: &Verdict, attempt: u32) {
        self.meters.settled(verdict, attempt);
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

/// How long ago an instant was, in milliseconds since 1970, by this machine's clock; zero for one to come.
pub(super) fn age(at_ms: i64) -> Duration {
    let at = Duration::from_millis(u64::try_from(at_ms).unwrap_or(0));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(at)
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
