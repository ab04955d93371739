//! Appends events all the time, over a line that may break, and notes what it was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use tokio::sync::RwLock;
use wasmill::backend::{Error, ErrorClass, Shared};
use wasmill::event::{JsonObject, NewEvent};

use wasmill::target::Target;

use super::clock;
use super::ground::{PARTITIONS, group, open};
use super::recorder::{self, Recorder};
use crate::history::{Answer, Fate, Plan, What};

/// Accounts that events count; some are counted by many at once.
const ACCOUNTS: u32 = 12;
/// Events of one append.
const BATCH_MAX: usize = 8;
/// It waits while so much is unsettled.
const LAG_MAX: u64 = 300;
const PAUSE: Duration = Duration::from_millis(15);

/// What the parts of a run share.
#[derive(Clone, Default)]
pub(super) struct Common {
    pub(super) recorder: Recorder,
    /// The part under way. Whoever looks at the store or writes to it holds it, so that nothing is
    /// taken for a part that it does not belong to.
    pub(super) part: Arc<RwLock<u32>>,
    /// What the group has not settled, as it was seen last.
    pub(super) lag: Arc<AtomicU64>,
    /// Nothing is to be appended.
    pub(super) still: Arc<AtomicBool>,
    pub(super) over: Arc<AtomicBool>,
}

impl Common {
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

pub(super) struct Appender {
    common: Common,
    target: Target,
    random: StdRng,
    batches: u64,
    events: u64,
}

impl Appender {
    pub(super) fn new(common: Common, target: Target, seed: u64) -> Self {
        Self { common, target, random: StdRng::seed_from_u64(seed), batches: 0, events: 0 }
    }

    /// Appends until the run is over.
    pub(super) fn run(mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut store: Option<(u32, Shared)> = None;
        while !self.common.is_over() {
            std::thread::sleep(PAUSE);
            if self.common.still.load(Ordering::Relaxed) || self.common.lag.load(Ordering::Relaxed) > LAG_MAX
            {
                continue;
            }
            let part_lock = Arc::clone(&self.common.part);
            let part = part_lock.blocking_read();
            // Asked for again under the lock: a run that wants stillness waits for it.
            if self.common.still.load(Ordering::Relaxed) {
                continue;
            }
            match &store {
                // What was opened in another part may be a file that was deleted.
                Some((opened, store)) if *opened == *part => runtime.block_on(self.append(store, *part)),
                _ => store = runtime.block_on(open(&self.target)).ok().map(|store| (*part, store)),
            }
        }
    }

    async fn append(&mut self, store: &Shared, part: u32) {
        let count = self.random.random_range(1..=BATCH_MAX);
        let batch: Vec<_> = (0..count).map(|_| self.event(part)).collect();
        let events: Vec<_> = batch.iter().map(|(event, _)| event.clone()).collect();
        let answer = match store.append(&group().stream, &events).await {
            Ok(_) => Answer::Stored,
            Err(error) => self.answer(&error),
        };
        self.batches += 1;
        let at = clock::now();
        for (event, plan) in batch {
            let id = event.id.unwrap();
            let what = What::Appended { batch: self.batches, id, plan, answer };
            self.common.recorder.record(part, at, what);
        }
        self.common.recorder.count(format!("events whose append was answered: {answer:?}"), count as u64);
    }

    fn answer(&self, error: &Error) -> Answer {
        match error.class() {
            ErrorClass::Ambiguous => Answer::Unknown,
            // Where the stream is gone, an engine makes it again.
            ErrorClass::Retry | ErrorClass::NotFound => Answer::Refused,
            ErrorClass::Request | ErrorClass::Fatal => {
                self.common.recorder.trouble(format!("an append failed: {error}"));
                Answer::Refused
            }
        }
    }

    fn event(&mut self, part: u32) -> (NewEvent, Plan) {
        let random = &mut self.random;
        let fate = match random.random_range(0..100) {
            0..3 => Fate::Reject,
            3..5 => Fate::Never,
            _ => Fate::Ack,
        };
        let failures = if random.random_bool(0.15) { random.random_range(1..4) } else { 0 };
        let account = format!("account-{}", random.random_range(0..ACCOUNTS));
        let payload = json!({
            "failures": if fate == Fate::Never { u32::MAX } else { failures },
            "panics": random.random_bool(0.3),
            "rejects": fate == Fate::Reject,
            "account": account,
            // Some take about a tenth of a second on a slow machine.
            "work": if random.random_bool(0.02) { 30_000_000 } else { 100_000 },
        });
        self.events += 1;
        let event = NewEvent {
            id: Some(recorder::id(part, self.events)),
            partition: Some(random.random_range(0..PARTITIONS)),
            ..NewEvent::new(JsonObject::parse(payload.to_string()).unwrap())
        };
        (event, Plan { failures, fate })
    }
}
