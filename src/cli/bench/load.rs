//! The options that all scenarios have, and how their values are read.

use std::time::Duration;

use clap::Args;

use crate::backend::PARTITIONS_MAX;
use crate::bench::guest::Work;
use crate::bench::{BATCH_MAX, PAYLOAD_BYTES_MIN, Shape};
use crate::config;

/// Largest payload; with what else is in an event it stays below what a store takes.
const PAYLOAD_BYTES_MAX: usize = 4_000_000;

/// A handler that takes longer would measure nothing but itself.
const WORK_MAX: Duration = Duration::from_secs(10);

/// What load is made.
#[derive(Debug, Args)]
pub(in crate::cli) struct LoadArgs {
    /// Events of a round [default: 20000; of `latency`, those of two seconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    events: Option<u64>,
    /// Bytes of an event's payload
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = payload)]
    payload: usize,
    /// Events of one call of the store; the engine chooses its own batches
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = batch)]
    batch: usize,
    /// Callers of the store at the same time, or handlers [default: 1, or 8 handlers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: Option<u32>,
    /// Partitions of the stream
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTITIONS_MAX)))]
    partitions: u32,
    /// Rounds that count; a shorter one goes before them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
}

/// Events of a round that does not say how many.
pub(super) const EVENTS: u64 = 20_000;

impl LoadArgs {
    /// The load, with these defaults.
    pub(super) fn shape(&self, events: u64, concurrency: u32) -> Shape {
        Shape {
            events: self.events.unwrap_or(events),
            payload_bytes: self.payload,
            batch: self.batch,
            concurrency: self.concurrency.unwrap_or(concurrency) as usize,
            partitions: self.partitions,
        }
    }
}

fn payload(text: &str) -> Result<usize, String> {
    between(text, PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX)
}

fn batch(text: &str) -> Result<usize, String> {
    between(text, 1, BATCH_MAX)
}

fn between(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("not a whole number from {least} to {most}"))
}

/// `noop`, microseconds, or a duration as elsewhere.
pub(super) fn work(text: &str) -> Result<Work, String> {
    if text == "noop" {
        return Ok(Work::Nothing);
    }
    let us = text.strip_suffix("us").or_else(|| text.strip_suffix("µs"));
    let time = match us.and_then(|us| us.parse().ok()) {
        Some(us) => Duration::from_micros(us),
        None => config::duration(text).map_err(|_| "`noop`, or a time such as `50us` or `5ms`")?,
    };
    if time > WORK_MAX { Err(format!("at most {WORK_MAX:?}")) } else { Ok(Work::of(time)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_nothing_or_a_time() {
        let us = Duration::from_micros;
        assert_eq!(work("noop"), Ok(Work::Nothing));
        assert_eq!(work("0us"), Ok(Work::Nothing));
        assert_eq!(work("50us"), Ok(Work::Compute(us(50))));
        assert_eq!(work("50µs"), Ok(Work::Compute(us(50))));
        assert_eq!(work("1000us"), Ok(Work::Wait(us(1000))));
        assert_eq!(work("5ms"), Ok(Work::Wait(us(5000))));
        for wrong in ["", "50", "us", "1.5ms", "-1us", "1h", "99999999us"] {
            assert!(work(wrong).is_err(), "{wrong}");
        }
    }
}
