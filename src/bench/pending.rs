//! What an event costs while many others are held under leases, or are parked.

use std::time::Duration;

use super::drive::BATCH_MAX;
use super::{Error, Result, Round, Shape, Site, drive, turnover};
use crate::backend::{ClaimRequest, SettleRequest, Settled};
use crate::event::GroupKey;
use crate::outcome::{FailureKind, Settlement, Verdict};

/// Longer than any benchmark.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// Who holds what is held.
const HOLDER: &str = "bench-holder";

/// In what state events are that are neither settled nor ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Another consumer holds them under live leases.
    Leased,
    /// They wait for the time of their retry.
    Parked,
}

/// A stream whose group has so many events in that state. They are its first ones: the frontier stands
/// before them.
pub struct Pending(GroupKey);

impl Pending {
    /// Makes a stream, appends so many events and brings them into the state.
    ///
    /// # Errors
    /// The store's; see [`super::Error`].
    pub async fn fill(site: &Site, shape: &Shape, held: Held, size: u64) -> Result<Self> {
        let group = drive::make(site, shape).await?;
        drive::append(site, &group.stream, size, shape).await?;
        let mut left = size;
        while left > 0 {
            site.going()?;
            left -= hold(site, &group, shape, held, left).await?;
        }
        Ok(Self(group))
    }

    /// One round: events are appended, and as many claimed and acked. Its latency is that of a claim and a
    /// settlement of a batch, one after the other.
    ///
    /// # Errors
    /// The store's; see [`super::Error`].
    pub async fn round(&self, site: &Site, shape: &Shape) -> Result<Round> {
        turnover::round(site, &self.0, shape).await
    }
}

/// Claims some events, parks them where they are to be parked, and says how many they were.
async fn hold(site: &Site, group: &GroupKey, shape: &Shape, held: Held, left: u64) -> Result<u64> {
    let partitions: Vec<u32> = (0..shape.partitions).collect();
    let request = ClaimRequest {
        group,
        consumer: HOLDER,
        partitions: &partitions,
        limit: usize::try_from(left).unwrap_or(BATCH_MAX).min(BATCH_MAX),
        lease: LONG,
        sweep: false,
        alone: false,
    };
    let leased = site.backend.claim(&request).await?.leased;
    if leased.is_empty() {
        return Err(Error::Wrong(format!("{left} events that are to be held cannot be claimed")));
    }
    let claimed = leased.len() as u64;
    if held == Held::Parked {
        let settlements: Vec<Settlement> = leased
            .into_iter()
            .map(|leased| Settlement {
                lease: leased.lease,
                verdict: Verdict::Retry { delay: LONG, reason: String::new(), failure: FailureKind::Retry },
                plugin: None,
            })
            .collect();
        let request = SettleRequest { group, consumer: HOLDER, settlements: &settlements };
        if site.backend.settle(&request).await?.iter().any(|answer| *answer != Settled::Done) {
            return Err(Error::Wrong("events could not be parked".to_owned()));
        }
    }
    Ok(claimed)
}
