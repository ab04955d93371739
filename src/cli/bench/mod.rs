//! `wasmill bench`.

use std::time::Duration;

use clap::{Args, Subcommand};

use self::ground::Ground;
use self::report::{What, report};
use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::backend::PARTITIONS_MAX;
use crate::bench::guest::{Guest, Work};
use crate::bench::{self, BATCH_MAX, Error, PAYLOAD_BYTES_MIN, Shape, Site};
use crate::config;

mod ground;
mod report;

/// Largest payload; with what else is in an event it stays below what a store takes.
const PAYLOAD_BYTES_MAX: usize = 4_000_000;

/// A handler that takes longer would measure nothing but itself.
const WORK_MAX: Duration = Duration::from_secs(10);

/// Handlers at the same time, as in a pipeline file that does not say.
const HANDLERS: u32 = 8;

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Append events, in batches
    Append(LoadArgs),
    /// Claim and settle events, in batches and out of order: 95 % ack, 4 % retry, 1 % dead letter
    ClaimSettle(LoadArgs),
    /// Let the engine drain a backlog, with a handler that is called for each event
    Engine {
        #[command(flatten)]
        load: LoadArgs,
        /// What the handler does: `noop`, or a time. Below 1 ms it computes, from 1 ms on it waits
        #[arg(long, value_name = "WORK", default_value = "noop", value_parser = work)]
        work: Work,
    },
}

/// What load is made.
#[derive(Debug, Args)]
pub(super) struct LoadArgs {
    /// Events of a round
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    events: u64,
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
    /// Rounds, each on a store of its own; a shorter one goes before them, and does not count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

impl LoadArgs {
    fn shape(&self, concurrency_default: u32) -> Shape {
        Shape {
            events: self.events,
            payload_bytes: self.payload,
            batch: self.batch,
            concurrency: self.concurrency.unwrap_or(concurrency_default) as usize,
            partitions: self.partitions,
        }
    }
}

pub(super) async fn run(context: &Context, command: BenchCommand) -> Result<(), Exit> {
    let ground = Ground::new(context)?;
    match command {
        BenchCommand::Append(load) => {
            let shape = load.shape(1);
            let round = async |site: &Site, shape: &Shape| bench::append::round(site, shape).await;
            let rounds = ground.rounds(&load, &shape, round).await?;
            let latency_of = format!("one append of {}", events(&shape));
            let what = What { scenario: "append", variant: None, shape: &shape, latency_of: &latency_of };
            report(context, &ground, what, &rounds)
        }
        BenchCommand::ClaimSettle(load) => {
            let shape = load.shape(1);
            let round = async |site: &Site, shape: &Shape| bench::claim_settle::round(site, shape).await;
            let rounds = ground.rounds(&load, &shape, round).await?;
            let latency_of = format!("a claim and a settlement of {}", events(&shape));
            let what =
                What { scenario: "claim-settle", variant: None, shape: &shape, latency_of: &latency_of };
            report(context, &ground, what, &rounds)
        }
        BenchCommand::Engine { load, work } => {
            let shape = load.shape(HANDLERS);
            let guest = Guest::load(work).await?;
            let round = async |site: &Site, shape: &Shape| bench::engine::round(site, shape, &guest).await;
            let rounds = ground.rounds(&load, &shape, round).await?;
            let (variant, latency_of) = (work.to_string(), "a call of the handler");
            let what = What { scenario: "engine", variant: Some(&variant), shape: &shape, latency_of };
            report(context, &ground, what, &rounds)
        }
    }
}

fn events(shape: &Shape) -> String {
    output::count(shape.batch as u64, "event")
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
fn work(text: &str) -> Result<Work, String> {
    if text == "noop" {
        return Ok(Work::Nothing);
    }
    let us = text.strip_suffix("us").or_else(|| text.strip_suffix("µs"));
    if let Some(us) = us.and_then(|us| us.parse().ok()) {
        return Ok(Work::of(Duration::from_micros(us)));
    }
    let time = config::duration(text).map_err(|_| "`noop`, or a time such as `50us` or `5ms`")?;
    if time > WORK_MAX { Err(format!("at most {WORK_MAX:?}")) } else { Ok(Work::of(time)) }
}

impl From<Error> for Exit {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            Error::Occupied(_) => Self::usage(error),
            Error::Host(_) | Error::Load(_) | Error::File { .. } | Error::Wrong(_) | Error::Interrupted => {
                Self::Failed(error.into())
            }
        }
    }
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
        for wrong in ["", "50", "us", "1.5ms", "-1us", "1h"] {
            assert!(work(wrong).is_err(), "{wrong}");
        }
    }
}
