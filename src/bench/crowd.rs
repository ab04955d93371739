//! One engine with many pipelines, each with a stream of its own, drains what stands before them all.

use std::sync::Arc;
use std::time::Duration;

use super::engine::{Probe, checked, pipeline, settings};
use super::guest::Guest;
use super::meter::Meter;
use super::{Error, Result, Round, Shape, Site, drive};
use crate::engine::{self, Handler, UntilIdle};

/// One round with so many pipelines, at least one, which share the events evenly: from the engine's start
/// until it has found that nothing is left. Each pipeline has the shape's concurrency. Its latency is that
/// of a call of the guest, the host's part included. Runs on a runtime with threads of its own.
///
/// # Errors
/// The store's; [`Error::Wrong`] where not every event was acked at its first attempt.
pub async fn round(site: &Site, shape: &Shape, guest: &Guest, pipelines: u64) -> Result<Round> {
    let filling = Shape { concurrency: 1, ..*shape };
    let (probe, each) = (Arc::new(Probe::new(guest)?), shape.events / pipelines.max(1));
    let mut ready = Vec::new();
    for number in 0..pipelines.max(1) {
        let group = drive::make(site, shape).await?;
        drive::append(site, &group.stream, each, &filling).await?;
        let mut pipeline = pipeline(shape, &group, Arc::clone(&probe) as Arc<dyn Handler>);
        pipeline.name = format!("{}-{number}", pipeline.name).into();
        ready.push(pipeline);
    }
    let until_idle = Some(UntilIdle { wait: Some(Duration::ZERO) });
    let (backend, stop) = (Arc::clone(&site.backend), site.stop().clone());
    let meter = Meter::start(site).await?;
    let ended = engine::run(backend, ready, settings(until_idle), Arc::default(), None, stop).await;
    let spent = meter.stop(site).await?;
    site.going()?;
    let (acked, all) = (checked(ended)?, each * pipelines.max(1));
    if acked == all {
        Ok(Round { events: all, spent, latency: probe.calls() })
    } else {
        Err(Error::Wrong(format!("{acked} of {all} events were acked")))
    }
}
