//! `wasmill bench`.

use clap::Subcommand;

use self::compare::{Comparison, Side};
use self::ground::Ground;
use self::load::{EVENTS, LoadArgs};
use self::report::What;
use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::bench::guest::{Guest, Work};
use crate::bench::pending::Held;
use crate::bench::{self, Error, Shape, Site};

mod compare;
mod ground;
mod load;
mod report;

/// Handlers at the same time, as in a pipeline file that does not say.
const HANDLERS: u32 = 8;

/// What is much, in the scenarios that hold it against little, is so many times as much.
const MUCH: u64 = 100;

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
        #[arg(long, value_name = "WORK", default_value = "noop", value_parser = load::work)]
        work: Work,
    },
    /// The same with a handler that appends an event to another stream and writes its state
    Effects(LoadArgs),
    /// Append events at a steady rate: how long until the handler is called
    Latency {
        #[command(flatten)]
        load: LoadArgs,
        /// Events a second
        #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        rate: u32,
    },
    /// What an event costs behind a large backlog, against one of a hundredth
    Backlog {
        #[command(flatten)]
        load: LoadArgs,
        /// Events that wait
        #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(MUCH..=1_000_000_000))]
        backlog: u64,
    },
    /// What an event costs beside many leases and parked events, against a hundredth of them
    Pending {
        #[command(flatten)]
        load: LoadArgs,
        /// Events that are leased, and as many that are parked
        #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(MUCH..=1_000_000_000))]
        pending: u64,
    },
}

pub(super) async fn run(context: &Context, command: BenchCommand) -> Result<(), Exit> {
    let ground = Ground::new(context)?;
    match command {
        BenchCommand::Append(load) => {
            let shape = load.shape(EVENTS, 1);
            let round = async |site: &Site, shape: &Shape| bench::append::round(site, shape).await;
            let rounds = ground.rounds(&load, &shape, round).await?;
            let latency_of = format!("one append of {}", events(&shape));
            What::new("append", &shape, &latency_of).report(context, &ground, &rounds)
        }
        BenchCommand::ClaimSettle(load) => {
            let shape = load.shape(EVENTS, 1);
            let round = async |site: &Site, shape: &Shape| bench::claim_settle::round(site, shape).await;
            let rounds = ground.rounds(&load, &shape, round).await?;
            What::new("claim-settle", &shape, &claim_and_settlement(&shape)).report(context, &ground, &rounds)
        }
        BenchCommand::Engine { load, work } => {
            let shape = load.shape(EVENTS, HANDLERS);
            let guest = Guest::load(&work).await?;
            let round = async |site: &Site, shape: &Shape| bench::engine::round(site, shape, &guest).await;
            let rounds = ground.rounds(&load, &shape, round).await?;
            let what = What::new("engine", &shape, "a call of the handler");
            what.variant(&work.to_string()).report(context, &ground, &rounds)
        }
        BenchCommand::Effects(load) => {
            let shape = load.shape(EVENTS, HANDLERS);
            let guest = bench::effects::guest(shape.payload_bytes).await?;
            let round = async |site: &Site, shape: &Shape| bench::effects::round(site, shape, &guest).await;
            let rounds = ground.rounds(&load, &shape, round).await?;
            What::new("effects", &shape, "a call of the handler").report(context, &ground, &rounds)
        }
        BenchCommand::Latency { load, rate } => {
            let shape = load.shape(u64::from(rate) * 2, HANDLERS);
            let guest = Guest::load(&Work::Nothing).await?;
            let round = async |site: &Site, shape: &Shape| {
                bench::latency::round(site, shape, &guest, f64::from(rate)).await
            };
            let rounds = ground.rounds(&load, &shape, round).await?;
            let what = What::new("latency", &shape, "from an event's moment until its handler is called");
            what.variant(&format!("{rate} events/s")).report(context, &ground, &rounds)
        }
        BenchCommand::Backlog { load, backlog } => {
            let shape = load.shape(EVENTS, 1);
            let latency_of = claim_and_settlement(&shape);
            let comparison =
                Comparison { what: What::new("backlog", &shape, &latency_of), rounds: load.rounds };
            let sides = [backlog, backlog / MUCH].map(Side::backlog);
            comparison.run(context, &ground, &sides).await
        }
        BenchCommand::Pending { load, pending } => {
            let shape = load.shape(EVENTS, 1);
            let latency_of = claim_and_settlement(&shape);
            let comparison =
                Comparison { what: What::new("pending", &shape, &latency_of), rounds: load.rounds };
            let sides = [Held::Leased, Held::Parked]
                .map(|held| [pending, pending / MUCH].map(|size| Side::pending(held, size)));
            comparison.run(context, &ground, sides.as_flattened()).await
        }
    }
}

fn claim_and_settlement(shape: &Shape) -> String {
    format!("a claim and a settlement of {}", events(shape))
}

fn events(shape: &Shape) -> String {
    output::count(shape.batch as u64, "event")
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
