//! Rounds put together.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::meter::{histogram, merge};
use super::{Result, Round};

/// What came of some rounds of one thing.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// How many rounds there were.
    pub rounds: usize,
    /// Events of one round.
    pub events: u64,
    /// Events a second: the rounds' median.
    pub events_per_second: f64,
    /// The same of the slowest round.
    pub events_per_second_min: f64,
    /// The same of the fastest round.
    pub events_per_second_max: f64,
    /// How long a step took, over all rounds.
    #[serde(flatten)]
    pub latency: Percentiles,
    /// Microseconds of this process's time on the processor an event: the rounds' median.
    pub client_cpu_us_per_event: f64,
    /// Microseconds of the server's time on the processor an event: the rounds' median. `None` where
    /// there is no server, or it does not tell.
    pub server_cpu_us_per_event: Option<f64>,
}

/// The median of some figures, and how far they go apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
}

impl Spread {
    /// That of these figures, to a hundredth; all zero where there are none.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let figures = sorted(figures);
        let end = |figure: Option<&f64>| rounded(figure.copied().unwrap_or_default());
        Self { median: rounded(middle(&figures)), min: end(figures.first()), max: end(figures.last()) }
    }
}

/// How long something took, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half took no longer.
    pub p50_us: f64,
    /// 90 % took no longer.
    pub p90_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
    /// 99.9 % took no longer.
    #[serde(rename = "p99_9_us")]
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Summary {
    /// Puts rounds together; of none at all there is none.
    ///
    /// # Errors
    /// Their histograms do not fit.
    pub fn of(rounds: &[Round]) -> Result<Option<Self>> {
        let Some(first) = rounds.first() else { return Ok(None) };
        let mut latency = histogram()?;
        for round in rounds {
            merge(&mut latency, &round.latency)?;
        }
        let rate = Spread::of(rounds.iter().map(Round::events_per_second));
        let server: Option<Vec<f64>> = rounds.iter().map(Round::server_us).collect();
        Ok(Some(Self {
            rounds: rounds.len(),
            events: first.events,
            events_per_second: rate.median,
            events_per_second_min: rate.min,
            events_per_second_max: rate.max,
            latency: Percentiles::of(&latency),
            client_cpu_us_per_event: Spread::of(rounds.iter().map(Round::client_us)).median,
            server_cpu_us_per_event: server.map(|server| Spread::of(server).median),
        }))
    }
}

impl Percentiles {
    /// Those of a histogram of nanoseconds.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        // Below 2^53 ns, which are a hundred days.
        #[allow(clippy::cast_precision_loss)]
        let us = |ns: u64| rounded(ns as f64 / 1e3);
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        Self {
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(histogram.max()),
        }
    }
}

fn sorted(figures: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// The middle one; of an even number the mean of the two in the middle; 0 of none.
fn middle(sorted: &[f64]) -> f64 {
    let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.saturating_sub(1)), at(middle)) }
}

/// To a hundredth: more would be noise.
fn rounded(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Spent;
    use super::super::meter::record;
    use super::*;

    fn round(took_ms: u64, latencies_us: &[u64]) -> Round {
        let mut latency = histogram().unwrap();
        for us in latencies_us {
            record(&mut latency, Duration::from_micros(*us));
        }
        let spent =
            Spent { took: Duration::from_millis(took_ms), client: Duration::from_millis(10), server: None };
        Round { events: 1000, spent, latency }
    }

    #[test]
    fn the_median_round_counts_and_all_latencies() {
        let rounds = [round(100, &[10, 20]), round(1000, &[30, 40_000]), round(200, &[50])];
        let summary = Summary::of(&rounds).unwrap().unwrap();
        assert_eq!((summary.rounds, summary.events), (3, 1000));
        assert_eq!(summary.events_per_second, 5000.0);
        assert_eq!((summary.events_per_second_min, summary.events_per_second_max), (1000.0, 10_000.0));
        assert_eq!((summary.client_cpu_us_per_event, summary.server_cpu_us_per_event), (10.0, None));
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.002;
        assert!(near(summary.latency.p50_us, 30.0), "{summary:?}");
        assert!(near(summary.latency.max_us, 40_000.0), "{summary:?}");
        assert!(Summary::of(&[]).unwrap().is_none());
    }

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([]), Spread { median: 0.0, min: 0.0, max: 0.0 });
    }
}
