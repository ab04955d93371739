//! Scenarios that hold much against little: both stand in one store, and take turns.

use serde::Serialize;

use super::ground::{Ground, say, warm_up};
use super::report::What;
use crate::bench::backlog::Backlog;
use crate::bench::pending::{Held, Pending};
use crate::bench::{self, Round, Shape, Site, Spread};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::output;

/// A scenario of sides, in pairs of much and little.
pub(super) struct Comparison<'a> {
    pub(super) what: What<'a>,
    pub(super) rounds: u32,
}

/// One side: what stands in the store.
#[derive(Clone, Copy)]
pub(super) struct Side {
    kind: Kind,
    size: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Backlog,
    Pending(Held),
}

/// A side that was made.
enum Filled {
    Backlog(Backlog),
    Pending(Pending),
}

/// One line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    scenario: &'a str,
    variant: &'a str,
    against: &'a str,
    /// Of which figure.
    of: &'static str,
    #[serde(flatten)]
    ratio: Spread,
}

impl Side {
    pub(super) fn backlog(size: u64) -> Self {
        Self { kind: Kind::Backlog, size }
    }

    pub(super) fn pending(held: Held, size: u64) -> Self {
        Self { kind: Kind::Pending(held), size }
    }

    fn name(self) -> String {
        let Self { kind, size } = self;
        match kind {
            Kind::Backlog => format!("{size} waiting"),
            Kind::Pending(Held::Leased) => format!("{size} leased"),
            Kind::Pending(Held::Parked) => format!("{size} parked"),
        }
    }

    async fn fill(self, site: &Site, shape: &Shape) -> bench::Result<Filled> {
        Ok(match self.kind {
            Kind::Backlog => Filled::Backlog(Backlog::fill(site, shape, self.size).await?),
            Kind::Pending(held) => Filled::Pending(Pending::fill(site, shape, held, self.size).await?),
        })
    }
}

impl Filled {
    async fn round(&self, site: &Site, shape: &Shape) -> bench::Result<Round> {
        match self {
            Self::Backlog(backlog) => backlog.round(site, shape).await,
            Self::Pending(pending) => pending.round(site, shape).await,
        }
    }
}

impl Comparison<'_> {
    /// Runs the rounds of all sides, and prints them and their ratios.
    pub(super) async fn run(self, context: &Context, ground: &Ground, sides: &[Side]) -> Result<(), Exit> {
        let rounds = ground.on_site(async |site| self.measure(site, sides).await).await?;
        let names: Vec<String> = sides.iter().map(|side| side.name()).collect();
        let lines: Vec<_> = names
            .iter()
            .zip(&rounds)
            .map(|(name, rounds)| (self.what.variant(name), rounds.as_slice()))
            .collect();
        What::report_all(context, ground, &lines)?;
        for (names, rounds) in names.chunks_exact(2).zip(rounds.chunks_exact(2)) {
            self.report_ratio(context, (&names[0], &names[1]), (&rounds[0], &rounds[1]))?;
        }
        Ok(())
    }

    async fn measure(&self, site: &Site, sides: &[Side]) -> bench::Result<Vec<Vec<Round>>> {
        let shape = self.what.shape;
        let mut filled = Vec::new();
        for side in sides {
            tracing::info!("filling: {}", side.name());
            let side = side.fill(site, shape).await?;
            side.round(site, &warm_up(shape)).await?;
            filled.push((side, Vec::new()));
        }
        for number in 1..=self.rounds {
            let mut turn: Vec<_> = filled.iter_mut().collect();
            // The order changes, so that no side always comes second.
            if number % 2 == 0 {
                turn.reverse();
            }
            for (side, rounds) in turn {
                let round = side.round(site, shape).await?;
                say(number, self.rounds, &round);
                rounds.push(round);
            }
        }
        Ok(filled.into_iter().map(|(_, rounds)| rounds).collect())
    }

    fn report_ratio(
        &self,
        context: &Context,
        (much, little): (&str, &str),
        rounds: (&[Round], &[Round]),
    ) -> Result<(), Exit> {
        let (of, figure): (_, fn(&Round) -> f64) = match rounds.0.iter().all(|r| r.server_us().is_some()) {
            true => ("server CPU", |round| round.server_us().unwrap_or_default()),
            false => ("time", Round::us),
        };
        let ratios = rounds.0.iter().zip(rounds.1).map(|(much, little)| figure(much) / figure(little));
        let ratio = Spread::of(ratios);
        if context.json() {
            let scenario = self.what.scenario;
            return output::json_line(&Line { scenario, variant: much, against: little, of, ratio });
        }
        let Spread { median, min, max } = ratio;
        output::line(&format!("{much} against {little}: {of} an event {median:.2} × ({min:.2} to {max:.2})"))
    }
}
