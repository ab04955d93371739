//! What an event costs while many others wait to be claimed.

use super::{Result, Round, Shape, Site, drive, turnover};
use crate::event::GroupKey;

/// A stream whose group has so much before it.
pub struct Backlog(GroupKey);

impl Backlog {
    /// Makes a stream, and appends so many events.
    ///
    /// # Errors
    /// The store's; see [`super::Error`].
    pub async fn fill(site: &Site, shape: &Shape, size: u64) -> Result<Self> {
        let group = drive::make(site, shape).await?;
        drive::append(site, &group.stream, size, shape).await?;
        Ok(Self(group))
    }

    /// One round: events are appended, and as many claimed and acked, so that the backlog stays as large
    /// as it is. Its latency is that of a claim and a settlement of a batch, one after the other.
    ///
    /// # Errors
    /// The store's; see [`super::Error`].
    pub async fn round(&self, site: &Site, shape: &Shape) -> Result<Round> {
        turnover::round(site, &self.0, shape).await
    }
}
