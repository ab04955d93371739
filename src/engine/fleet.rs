//! The pipelines that run in one engine: they start, end by themselves, and are started and stopped
//! while the others go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::brake::Brake;
use super::conditions::Conditions;
use super::idle::Board;
use super::pipeline::{self, Pipeline};
use super::summary::Counts;
use super::{Ended, Settings};
use crate::backend::Shared;
use crate::metrics::Meters;

/// Changes that wait for the engine; it takes them up at once.
const CHANGES_MAX: usize = 16;

/// What is changed in a running engine.
#[derive(Debug)]
enum Change {
    Start(Box<Pipeline>),
    Stop { pipeline: Arc<str>, stopped: oneshot::Sender<()> },
    Resume,
}

/// Starts and stops single pipelines of a running engine.
#[derive(Clone, Debug)]
pub struct Remote(mpsc::Sender<Change>);

/// The engine's end of a [`Remote`].
#[derive(Debug)]
pub struct Changes(mpsc::Receiver<Change>);

/// A remote control for an engine that is about to run.
#[must_use]
pub fn remote() -> (Remote, Changes) {
    let (sender, receiver) = mpsc::channel(CHANGES_MAX);
    (Remote(sender), Changes(receiver))
}

impl Remote {
    /// Starts a pipeline. An engine that has ended ignores it.
    pub async fn start(&self, pipeline: Pipeline) {
        let _ = self.0.send(Change::Start(Box::new(pipeline))).await;
    }

    /// Lets pipelines go on that paused because their plugins faulted too often.
    pub async fn resume(&self) {
        let _ = self.0.send(Change::Resume).await;
    }

    /// Drains a pipeline, and returns once it has ended. One that does not run has ended.
    pub async fn stop(&self, pipeline: &Arc<str>) {
        let (stopped, end) = oneshot::channel();
        if self.0.send(Change::Stop { pipeline: Arc::clone(pipeline), stopped }).await.is_ok() {
            // Without an answer the engine has ended, and all that ran in it.
            let _ = end.await;
        }
    }
}

/// One running pipeline.
struct Member {
    name: Arc<str>,
    stop: CancellationToken,
    brake: Arc<Brake>,
    /// Who waits for its end.
    stopped: Vec<oneshot::Sender<()>>,
}

/// The running pipelines of one engine.
pub(super) struct Fleet {
    pub(super) backend: Shared,
    pub(super) settings: Arc<Settings>,
    pub(super) stop: CancellationToken,
    conditions: Arc<Conditions>,
    board: Arc<Board>,
    running: JoinSet<(u64, Ended)>,
    members: BTreeMap<u64, Member>,
    next: u64,
    ended: BTreeMap<u64, Ended>,
}

impl Fleet {
    pub(super) fn new(
        backend: Shared,
        settings: Settings,
        conditions: Arc<Conditions>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            backend,
            settings: Arc::new(settings),
            conditions,
            stop,
            board: Arc::default(),
            running: JoinSet::new(),
            members: BTreeMap::new(),
            next: 0,
            ended: BTreeMap::new(),
        }
    }

    pub(super) fn start(&mut self, pipeline: Pipeline) {
        let (number, stop) = (self.next, self.stop.child_token());
        self.next += 1;
        let (name, conditions) = (Arc::clone(&pipeline.name), Arc::clone(&self.conditions));
        let brake = Arc::new(Brake::new(&name, pipeline.on_fault, Arc::clone(&conditions)));
        let plugin = pipeline.plugin.get();
        let meters = Meters::new(Arc::clone(conditions.metrics()), &name, &pipeline.group, plugin.name());
        let (counts, permits) = (Arc::new(Counts::new(meters, conditions.is_scraped)), Arc::default());
        conditions.begin(&pipeline, &counts, &permits);
        let member = Member { name, stop: stop.clone(), brake: Arc::clone(&brake), stopped: Vec::new() };
        self.members.insert(number, member);
        let parts = pipeline::Parts {
            backend: Arc::clone(&self.backend),
            pipeline: Arc::new(pipeline),
            settings: Arc::clone(&self.settings),
            health: Arc::clone(&self.conditions.health),
            seat: self.board.seat(),
            brake,
            counts,
            permits,
            conditions,
            stop,
        };
        self.running.spawn(async move { (number, pipeline::run(parts).await) });
    }

    /// Runs until all pipelines have ended by themselves, or `stop` has ended them. Answers in the
    /// order in which they were started; what ran under one name counts together.
    pub(super) async fn run(mut self, changes: Option<Changes>) -> Vec<Ended> {
        let mut changes = changes.map(|changes| changes.0);
        let until_idle = self.settings.until_idle.is_some();
        let board = Arc::clone(&self.board);
        // Between the end of a pipeline that was asked to and the start of its successor there may
        // be none.
        let mut all_stopped = false;
        while !self.running.is_empty() || (all_stopped && changes.is_some() && !self.stop.is_cancelled()) {
            tokio::select! {
                Some(joined) = self.running.join_next() => match joined {
                    Ok((number, end)) => all_stopped = self.left(number, end),
                    // A pipeline's task neither panics nor is aborted; if it did, the others go on.
                    Err(error) => tracing::error!(%error, "a pipeline's task ended abnormally"),
                },
                change = next(&mut changes) => match change {
                    Some(Change::Start(pipeline)) => self.start(*pipeline),
                    Some(Change::Stop { pipeline, stopped }) => self.ask_to_stop(&pipeline, stopped),
                    Some(Change::Resume) => self.members.values().for_each(|member| member.brake.release()),
                    None => changes = None,
                },
                () = self.stop.cancelled(), if self.running.is_empty() => {}
                () = board.all_idle(), if until_idle && !self.stop.is_cancelled() => self.stop.cancel(),
            }
        }
        merge(self.ended.into_values())
    }

    /// A pipeline has ended; whether it was asked to.
    fn left(&mut self, number: u64, end: Ended) -> bool {
        self.ended.insert(number, end);
        let Some(member) = self.members.remove(&number) else { return false };
        let asked = !member.stopped.is_empty();
        for stopped in member.stopped {
            // That no one waits any more changes nothing.
            let _ = stopped.send(());
        }
        asked
    }

    fn ask_to_stop(&mut self, pipeline: &Arc<str>, stopped: oneshot::Sender<()>) {
        match self.members.values_mut().find(|member| member.name == *pipeline) {
            Some(member) => {
                member.stop.cancel();
                member.stopped.push(stopped);
            }
            // It has stopped by itself, and now it is wanted no more. The sender is dropped, which is an
            // answer.
            None => self.conditions.remove(pipeline),
        }
    }
}

/// The next change; never, once there can be none.
async fn next(changes: &mut Option<mpsc::Receiver<Change>>) -> Option<Change> {
    match changes {
        Some(changes) => changes.recv().await,
        None => std::future::pending().await,
    }
}

/// Puts together what ran under one name.
fn merge(ended: impl Iterator<Item = Ended>) -> Vec<Ended> {
    let mut merged: Vec<Ended> = Vec::new();
    for end in ended {
        match merged.iter_mut().find(|known| known.summary.pipeline == end.summary.pipeline) {
            Some(known) => {
                known.summary.add(end.summary);
                known.error = end.error;
            }
            None => merged.push(end),
        }
    }
    merged
}
