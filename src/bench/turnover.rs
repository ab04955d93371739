//! Work on a stream that stays as it is: as many events are settled as are appended. So rounds over
//! streams that hold much and little can take turns, without filling them anew.

use super::drive::Ending;
use super::meter::Meter;
use super::{Result, Round, Shape, Site, drive};
use crate::event::GroupKey;

/// Appends events, and claims and acks as many. Its latency is that of a claim and a settlement of a
/// batch, one after the other.
pub(super) async fn round(site: &Site, group: &GroupKey, shape: &Shape) -> Result<Round> {
    let meter = Meter::start(site).await?;
    drive::append(site, &group.stream, shape.events, shape).await?;
    let latency = drive::consume(site, group, shape.events, shape, Ending::Ack).await?;
    Ok(Round { events: shape.events, spent: meter.stop(site).await?, latency })
}
