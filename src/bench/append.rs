//! Events are appended, in batches: how fast, and at what cost.

use super::meter::Meter;
use super::{Result, Round, Shape, Site, drive};

/// One round. Its latency is that of one call, which appends a batch.
///
/// # Errors
/// The store's; see [`super::Error`].
pub async fn round(site: &Site, shape: &Shape) -> Result<Round> {
    let group = drive::make(site, shape).await?;
    let meter = Meter::start(site).await?;
    let latency = drive::append(site, &group.stream, shape.events, shape).await?;
    Ok(Round { events: shape.events, spent: meter.stop(site).await?, latency })
}
