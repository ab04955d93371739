//! Reads from the store what metrics tell of a pipeline's group: only while someone may scrape, and
//! never at a scrape, so that who asks costs the store nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pipeline::Pipeline;
use super::summary::age;
use crate::backend::{GroupPartition, Result, Shared};
use crate::event::Event;
use crate::metrics::GroupMeters;

/// Between two looks, at least.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A look may take this share of the time, one part in so many: where a group is costly to read, it is
/// read more rarely.
const LOOK_SHARE: u32 = 100;

/// Reads until dropped. While the store does not answer, what was read last stays.
pub(super) async fn read(backend: Shared, pipeline: Arc<Pipeline>, meters: GroupMeters) {
    loop {
        let begun = Instant::now();
        if let Err(error) = look(&backend, &pipeline, &meters).await {
            tracing::debug!(pipeline = %pipeline.name, %error, "the group's state cannot be read for metrics");
        }
        tokio::time::sleep(LOOK_EVERY.max(begun.elapsed() * LOOK_SHARE)).await;
    }
}

async fn look(backend: &Shared, pipeline: &Pipeline, meters: &GroupMeters) -> Result<()> {
    let info = backend.group_info(&pipeline.group).await?;
    let own = |partition: u32| pipeline.partitions.contains(&partition);
    let mut oldest = None;
    for partition in info.partitions.iter().filter(|p| own(p.partition) && p.lag() > 0) {
        oldest = oldest.max(unsettled_for(backend, pipeline, partition).await?);
    }
    let parked = info.partitions.iter().filter(|p| own(p.partition)).map(|p| p.parked).sum();
    meters.set(info.lag(own), parked, info.dead_letters, oldest);
    Ok(())
}

/// The age of the first event behind the frontier: no older one is unsettled in its partition.
async fn unsettled_for(
    backend: &Shared,
    pipeline: &Pipeline,
    partition: &GroupPartition,
) -> Result<Option<Duration>> {
    let stream = &pipeline.group.stream;
    let events = backend.read(stream, partition.partition, partition.frontier, 1).await?;
    Ok(events.first().and_then(Event::timestamp_ms).map(age))
}
