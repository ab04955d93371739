//! Where a benchmark runs: stores that are made for it, and removed however it ends.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::load::LoadArgs;
use crate::bench::{self, Error, Round, Shape, Site};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::{output, signals};
use crate::event::random_id;
use crate::target::Target;

/// The round that goes before the others has this share of their events.
const WARM_UP: u64 = 10;

/// Where a benchmark runs.
pub(super) struct Ground {
    /// `None`: a new file in the working directory, so on the disk where a store would be.
    target: Option<Target>,
    stop: CancellationToken,
    /// What is to be removed yet, for the last words of a process that is ended at once.
    remains: Arc<Mutex<Option<String>>>,
}

impl Ground {
    pub(super) fn new(context: &Context) -> Result<Self, Exit> {
        let target = context.named_target()?;
        let (stop, remains) = (CancellationToken::new(), Arc::new(Mutex::new(None)));
        let left = Arc::clone(&remains);
        let first = "the benchmark ends, and removes what it made; a second signal ends at once";
        signals::listen_saying(stop.clone(), first, move || {
            match left.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(remains) => format!("ended by a second signal; {remains} may be left behind"),
                None => "ended by a second signal".to_owned(),
            }
        })?;
        Ok(Self { target, stop, remains })
    }

    /// The kind of store, for the report.
    pub(super) fn store(&self) -> &'static str {
        match self.target {
            None | Some(Target::Sqlite(_)) => "sqlite",
            Some(Target::Memory) => "memory",
            Some(Target::Redis(_)) => "redis",
        }
    }

    /// Runs rounds of a scenario, each on a store of its own, and before them a shorter one that does not
    /// count.
    pub(super) async fn rounds(
        &self,
        load: &LoadArgs,
        shape: &Shape,
        round: impl AsyncFn(&Site, &Shape) -> bench::Result<Round>,
    ) -> Result<Vec<Round>, Exit> {
        let warm_up = warm_up(shape);
        self.on_site(async |site| round(site, &warm_up).await).await?;
        let mut rounds = Vec::new();
        for number in 1..=load.rounds {
            let done = self.on_site(async |site| round(site, shape).await).await?;
            say(number, load.rounds, &done);
            rounds.push(done);
        }
        Ok(rounds)
    }

    /// Makes a store, works on it, and removes it, whatever came of the work.
    pub(super) async fn on_site<T>(
        &self,
        work: impl AsyncFnOnce(&Site) -> bench::Result<T>,
    ) -> Result<T, Exit> {
        let new = || Target::Sqlite(format!("wasmill-bench-{}.db", &random_id()[..8]).into());
        let target = self.target.clone().unwrap_or_else(new);
        let site = Site::open(&target, self.stop.clone()).await;
        let site = site.map_err(|error| at(&target, error))?;
        self.remember(site.remains());
        let done = work(&site).await;
        let closed = site.close().await;
        match (done, closed) {
            (Ok(done), Ok(())) => {
                self.remember(None);
                Ok(done)
            }
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(error), closed) => {
                if let Err(error) = closed {
                    output::note(&format!("error: {error}"));
                }
                Err(error.into())
            }
        }
    }

    fn remember(&self, remains: Option<String>) {
        *self.remains.lock().unwrap_or_else(PoisonError::into_inner) = remains;
    }
}

/// A shorter round, after which the stores and this process are warm.
pub(super) fn warm_up(shape: &Shape) -> Shape {
    Shape { events: (shape.events / WARM_UP).max(1), ..*shape }
}

/// Says how far it has come.
pub(super) fn say(number: u32, of: u32, round: &Round) {
    let rate = format!("{:.0}", round.events_per_second());
    tracing::info!(events_per_second = rate, "round {number} of {of}");
}

/// Says which server it is that cannot be used; a file is named by its error.
fn at(target: &Target, error: Error) -> Exit {
    match target {
        Target::Redis(_) => Exit::from(error).context(format!("{target}")),
        Target::Sqlite(_) | Target::Memory => error.into(),
    }
}
