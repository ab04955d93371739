//! Events are claimed and settled, in batches and out of order, without handlers. Of a hundred events 95
//! are acked, 4 are parked for a retry and 1 becomes a dead letter.

use super::drive::Ending;
use super::meter::Meter;
use super::{Result, Round, Shape, Site, drive};

/// One round. Its latency is that of a claim and a settlement of a batch, one after the other.
///
/// # Errors
/// The store's; see [`super::Error`].
pub async fn round(site: &Site, shape: &Shape) -> Result<Round> {
    let group = drive::make(site, shape).await?;
    drive::append(site, &group.stream, shape.events, shape).await?;
    let meter = Meter::start(site).await?;
    let latency = drive::consume(site, &group, shape.events, shape, Ending::Mixed).await?;
    Ok(Round { events: shape.events, spent: meter.stop(site).await?, latency })
}
