//! The engine drains a backlog whose handler, for each event, appends one to another stream and writes a
//! key of its state: what exactly-once effects cost.

use std::sync::Arc;

use super::engine::{PIPELINE, Probe, drain};
use super::guest::{Guest, Work};
use super::meter::Meter;
use super::{Error, Result, Round, Shape, Site, drive};
use crate::backend;
use crate::engine::Handler;
use crate::event::Name;
use crate::state::Bucket;

/// The stream that the handler appends to.
const TARGET: &str = "bench-derived";

/// The bucket whose keys it writes.
const BUCKET: &str = "seen";

/// Keys that it writes, by the event's sequence: one character each.
const KEYS: std::ops::Range<u8> = b'0'..b'0' + 64;

/// A handler with effects; the events that it appends have payloads of so many bytes.
///
/// # Errors
/// As [`Guest::load`].
pub async fn guest(payload_bytes: usize) -> Result<Guest> {
    let payload = drive::event(payload_bytes)?.payload.as_str().to_owned();
    Guest::load(&Work::Effects { stream: target()?, bucket: BUCKET.to_owned(), payload }).await
}

/// One round: from the engine's start until it has found that nothing is left. Its latency is that of a
/// call of the guest, the host's part included. Runs on a runtime with threads of its own.
///
/// # Errors
/// The store's; [`Error::Wrong`] where not every event was acked at its first attempt, or one is without
/// its effects.
pub async fn round(site: &Site, shape: &Shape, guest: &Guest) -> Result<Round> {
    let (group, target) = (drive::make(site, shape).await?, target()?);
    site.backend.create_stream(&target, shape.partitions).await?;
    drive::append(site, &group.stream, shape.events, &Shape { concurrency: 1, ..*shape }).await?;
    let probe = Arc::new(Probe::new(guest)?);
    let meter = Meter::start(site).await?;
    drain(site, shape, &group, Arc::clone(&probe) as Arc<dyn Handler>).await?;
    let spent = meter.stop(site).await?;
    check(site, shape, &target).await?;
    Ok(Round { events: shape.events, spent, latency: probe.calls() })
}

/// Each event has led to one other, and all keys that are due were written.
async fn check(site: &Site, shape: &Shape, target: &Name) -> Result<()> {
    let partitions = site.backend.stream_info(target).await?.partitions;
    let derived: u64 = partitions.iter().map(|partition| partition.length).sum();
    if derived != shape.events {
        return Err(Error::Wrong(format!("{} events led to {derived} others", shape.events)));
    }
    let bucket = Bucket::own(PIPELINE, BUCKET).map_err(backend::Error::from)?;
    let keys: Vec<String> = KEYS.map(|key| char::from(key).to_string()).collect();
    let written = site.backend.state(&bucket, &keys).await?.iter().flatten().count() as u64;
    let due = shape.events.div_ceil(u64::from(shape.partitions)).min(keys.len() as u64);
    if written == due { Ok(()) } else { Err(Error::Wrong(format!("{written} of {due} keys were written"))) }
}

fn target() -> Result<Name> {
    Ok(Name::new(TARGET).map_err(backend::Error::from)?)
}
