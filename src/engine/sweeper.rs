//! Looks after the store beside a pipeline, never on the hot path: heals what other writers or a
//! crash left damaged, and removes what is older than the stream's retention.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::health::Health;
use super::pipeline::Pipeline;
use super::summary::Counts;
use crate::backend::{Error, ErrorClass, Held, Shared, Trim};
use crate::event::GroupKey;
use crate::telemetry;

/// Between two looks for damage; the first one comes a moment after the start.
const HEAL_EVERY: Duration = Duration::from_secs(5);
const HEAL_FIRST: Duration = Duration::from_millis(500);

/// After failures the looks become rarer, twice as rare with each, up to so often.
const FAILURES_MAX: u32 = 4;

/// Between two looks at partitions that show no sign of damage.
const HEAL_ALL_EVERY: Duration = Duration::from_secs(600);

/// Steps that one look takes in one partition; more damage than that waits for the next look.
const HEAL_STEPS_MAX: u32 = 64;

/// Between two applications of the retention, and between two steps of one.
const TRIM_EVERY: Duration = Duration::from_secs(60);
const TRIM_PAUSE: Duration = Duration::from_millis(50);

/// Steps of one application in one partition; then the next application comes after [`HEAL_EVERY`].
const TRIM_STEPS_MAX: u32 = 200;

/// How long a stream's events are kept. Without any bound, for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Events that were appended longer ago go.
    pub max_age: Option<Duration>,
    /// At most so many events of each partition stay.
    pub max_length: Option<u64>,
}

impl Retention {
    /// Whether anything ever goes.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        *self != Self::default()
    }
}

/// Heals and trims until dropped. No error of the store ends it.
pub(super) async fn sweep(
    backend: Shared,
    pipeline: Arc<Pipeline>,
    health: Arc<Health>,
    counts: Arc<Counts>,
) {
    let mut sweeper = Sweeper::new(backend, pipeline, health, counts);
    tokio::time::sleep(HEAL_FIRST).await;
    let mut failures = 0;
    loop {
        // Neither waits for the other one to succeed.
        let healed = sweeper.heal().await;
        let trimmed = sweeper.trim().await;
        let error = healed.err().or(trimmed.err());
        failures = if error.is_some() { failures + 1 } else { 0 };
        sweeper.say(error.as_ref());
        let wait = HEAL_EVERY * 2u32.saturating_pow(failures.min(FAILURES_MAX));
        tokio::time::sleep(wait).await;
    }
}

struct Sweeper {
    backend: Shared,
    pipeline: Arc<Pipeline>,
    health: Arc<Health>,
    counts: Arc<Counts>,
    /// Frontier and redriven events of each partition at the last look.
    standings: HashMap<u32, (u64, u64)>,
    heal_all_at: Instant,
    trim_at: Instant,
    /// The error that was said last.
    said: Option<String>,
}

impl Sweeper {
    fn new(backend: Shared, pipeline: Arc<Pipeline>, health: Arc<Health>, counts: Arc<Counts>) -> Self {
        let now = Instant::now();
        Self {
            backend,
            pipeline,
            health,
            counts,
            standings: HashMap::new(),
            heal_all_at: now,
            trim_at: now,
            said: None,
        }
    }

    async fn heal(&mut self) -> Result<(), Error> {
        for partition in self.suspicious().await? {
            heal(&self.backend, &self.pipeline, &self.counts, partition).await?;
        }
        Ok(())
    }

    /// Applies the retention of the pipeline's stream, where there is one and it is time.
    async fn trim(&mut self) -> Result<(), Error> {
        if self.pipeline.retention.is_bounded() && Instant::now() >= self.trim_at {
            let more = self.trim_stream().await?;
            self.trim_at = Instant::now() + if more { HEAL_EVERY } else { TRIM_EVERY };
        }
        Ok(())
    }

    /// The partitions that a look is worth its while for: those with something unsettled that have not
    /// moved since the last look; from time to time all.
    async fn suspicious(&mut self) -> Result<Vec<u32>, Error> {
        let info = self.backend.group_info(&self.pipeline.group).await?;
        let all = Instant::now() >= self.heal_all_at;
        if all {
            self.heal_all_at = Instant::now() + HEAL_ALL_EVERY;
        }
        let own = info.partitions.iter().filter(|p| self.pipeline.partitions.contains(&p.partition));
        let mut chosen = Vec::new();
        for p in own {
            let standing = (p.frontier, p.redriven);
            let before = self.standings.insert(p.partition, standing);
            if all || p.lag() + p.redriven > 0 && before == Some(standing) {
                chosen.push(p.partition);
            }
        }
        Ok(chosen)
    }

    /// Trims all partitions; says whether more is to go soon.
    async fn trim_stream(&self) -> Result<bool, Error> {
        let stream = &self.pipeline.group.stream;
        let mut unfinished = false;
        for partition in self.backend.stream_info(stream).await?.partitions {
            let step = Trim {
                partition: partition.partition,
                max_length: self.pipeline.retention.max_length,
                max_age: self.pipeline.retention.max_age,
                until: None,
                force: false,
            };
            let (mut removed, mut steps) = (0, 0);
            let held = loop {
                let trimmed = self.backend.trim(stream, step).await?;
                removed += trimmed.removed;
                steps += 1;
                if !trimmed.more || steps == TRIM_STEPS_MAX {
                    unfinished |= trimmed.more;
                    break trimmed.held;
                }
                tokio::time::sleep(TRIM_PAUSE).await;
            };
            if removed > 0 {
                telemetry::trimmed(stream, partition.partition, removed);
            }
            if let Some(held) = held {
                self.say_held(partition.partition, &held);
            }
        }
        Ok(unfinished)
    }

    fn say_held(&self, partition: u32, held: &Held) {
        let group = GroupKey::new(self.pipeline.group.stream.clone(), held.group.clone());
        if self.health.says_held(&group) {
            telemetry::retention_held(&group, partition, held.sequence);
        }
    }

    /// Says what went wrong, once until it changes.
    fn say(&mut self, error: Option<&Error>) {
        let Some(error) = error else {
            self.said = None;
            return;
        };
        match error.class() {
            ErrorClass::Retry | ErrorClass::Ambiguous => self.health.failed(error),
            // The dispatcher sees the same, and deals with it.
            ErrorClass::NotFound => {}
            ErrorClass::Request | ErrorClass::Fatal => {
                let text = error.to_string();
                if self.said.as_ref() != Some(&text) {
                    tracing::warn!(pipeline = %self.pipeline.name, error = text, "the store cannot be looked after");
                    self.said = Some(text);
                }
            }
        }
    }
}

/// Heals one partition until nothing more is found; says how many repairs there were.
pub(super) async fn heal(
    backend: &Shared,
    pipeline: &Pipeline,
    counts: &Counts,
    partition: u32,
) -> Result<u64, Error> {
    let mut total = 0;
    for _ in 0..HEAL_STEPS_MAX {
        let repairs = backend.heal(&pipeline.group, partition).await?;
        if repairs.is_empty() {
            break;
        }
        for repair in &repairs {
            telemetry::repaired(&pipeline.name, partition, repair);
            counts.repaired(repair);
            total += repair.count;
        }
    }
    Ok(total)
}
