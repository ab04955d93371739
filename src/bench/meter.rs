//! What a piece of work took and cost.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::{Error, Result, Site};

/// The times that are told apart, in nanoseconds, to three digits: what is shorter or longer counts as
/// the shortest or longest.
const SHORTEST_NS: u64 = 100;
const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// What a piece of work took and cost.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// From its begin to its end.
    pub took: Duration,
    /// Time on the processor of this process, all its threads together.
    pub client: Duration,
    /// Time on the processor of the Redis server's thread that runs commands (of the whole server, where
    /// it does not tell them apart), whoever it worked for.
    pub server: Option<Duration>,
}

/// What came of one round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Events that it worked on.
    pub events: u64,
    /// What they took and cost together.
    pub spent: Spent,
    /// How long the scenario's steps took, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Round {
    /// Events a second.
    #[must_use]
    pub fn events_per_second(&self) -> f64 {
        count(self.events) / self.spent.took.as_secs_f64().max(1e-9)
    }

    /// Microseconds from begin to end an event.
    #[must_use]
    pub fn us(&self) -> f64 {
        self.each(self.spent.took)
    }

    /// Microseconds of this process's time on the processor an event.
    #[must_use]
    pub fn client_us(&self) -> f64 {
        self.each(self.spent.client)
    }

    /// Microseconds of the server's time on the processor an event, where the store is a server.
    #[must_use]
    pub fn server_us(&self) -> Option<f64> {
        self.spent.server.map(|server| self.each(server))
    }

    fn each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / count(self.events).max(1.0)
    }
}

/// A number of events, which stays far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn count(number: u64) -> f64 {
    number as f64
}

/// A piece of work that is being measured.
pub(super) struct Meter {
    client: Duration,
    server: Option<Duration>,
    start: Instant,
}

impl Meter {
    pub(super) async fn start(site: &Site) -> Result<Self> {
        let server = server(site).await?;
        Ok(Self { server, client: client(), start: Instant::now() })
    }

    pub(super) async fn stop(self, site: &Site) -> Result<Spent> {
        let (took, client) = (self.start.elapsed(), client().saturating_sub(self.client));
        let server = server(site).await?.zip(self.server);
        Ok(Spent { took, client, server: server.map(|(after, before)| after.saturating_sub(before)) })
    }
}

/// An empty histogram of nanoseconds.
pub(super) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS)
        .map_err(|error| Error::Wrong(format!("there is no histogram: {error}")))
}

/// Adds a time to a histogram.
pub(super) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS));
}

/// Adds the times of another histogram.
pub(super) fn merge(into: &mut Histogram<u64>, from: &Histogram<u64>) -> Result<()> {
    into.add(from).map_err(|error| Error::Wrong(format!("histograms cannot be put together: {error}")))
}

fn client() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

async fn server(site: &Site) -> Result<Option<Duration>> {
    Ok(match &site.redis {
        Some(redis) => redis.processor_time().await?,
        None => None,
    })
}
