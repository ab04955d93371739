//! Knows when there is nothing left to do, for `run --until-idle`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use super::pipeline::Pipeline;
use super::summary::Counts;
use super::sweeper;
use crate::backend::{Error, ErrorClass, GroupPartition, HolderState, Shared};
use crate::telemetry;

/// How many pending entries are looked at in one partition; what stands behind them is looked at
/// once they are gone.
const LOOK_MAX: usize = 1000;

/// How often a claim may find nothing although something should be ready, before it is reported.
const EMPTY_LOOKS_MAX: u32 = 3;

/// How often in a row what was healed is followed by another look.
const MENDS_MAX: u32 = 20;

/// Between two looks at an append that is under way.
const UNWRITTEN_PAUSE: Duration = Duration::from_millis(500);

/// When a run counts as idle.
#[derive(Clone, Debug, Default)]
pub struct UntilIdle {
    /// How long to wait for parked retries and for leases of others, from the last piece of work
    /// on; without it, the longer of the pipeline's lease and its longest backoff.
    pub wait: Option<Duration>,
}

/// What a pipeline left behind when it ended as idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Events between frontier and high watermark, and redriven ones that are not settled.
    pub lag: u64,
    /// Entries that others hold, or whose retry is not due yet.
    pub pending: usize,
    /// Milliseconds until the first of them can be claimed; `None` where none is pending.
    pub first_in_ms: Option<i64>,
}

/// Who of an engine's pipelines is idle.
#[derive(Debug, Default)]
pub(super) struct Board {
    seats: Mutex<Seats>,
    changed: Notify,
    stirred: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Seats {
    next: u64,
    /// How often someone has stirred.
    stirs: u64,
    idle: BTreeMap<u64, bool>,
}

/// One pipeline's place on the board; it leaves by dropping it, and then keeps no one waiting.
#[derive(Debug)]
pub(super) struct Seat {
    board: Arc<Board>,
    number: u64,
}

impl Board {
    /// A place for a pipeline that begins, and so is not idle.
    pub(super) fn seat(self: &Arc<Self>) -> Seat {
        let mut seats = self.seats();
        let number = seats.next;
        seats.next += 1;
        seats.idle.insert(number, false);
        Seat { board: Arc::clone(self), number }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all pipelines are idle at the same time.
    pub(super) async fn all_idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.seats().idle.values().all(|idle| *idle) {
                return;
            }
            changed.await;
        }
    }
}

impl Seat {
    pub(super) fn stirrer(&self) -> Stirrer {
        Stirrer(Arc::clone(&self.board))
    }

    /// Waits until someone stirs, from the call on.
    pub(super) fn stirred(&self) -> Stirred {
        let seen = self.board.seats().stirs;
        Stirred { seen, notified: Arc::clone(&self.board.stirred).notified_owned() }
    }

    pub(super) fn busy(&self) {
        self.set(&mut self.board.seats(), false);
    }

    /// Nothing was left when this one looked, which was after `before`. Should someone have stirred
    /// since, it has to look again first.
    pub(super) fn idle(&self, before: &Stirred) {
        let mut seats = self.board.seats();
        if seats.stirs == before.seen {
            self.set(&mut seats, true);
        }
    }

    fn set(&self, seats: &mut Seats, idle: bool) {
        if seats.idle.insert(self.number, idle) != Some(idle) {
            self.board.changed.notify_one();
        }
    }
}

/// A wait for the next one who stirs.
#[derive(Debug)]
pub(super) struct Stirred {
    seen: u64,
    notified: OwnedNotified,
}

impl Stirred {
    pub(super) async fn wait(self) {
        self.notified.await;
    }
}

/// Wakes the pipelines of an engine that think they are idle.
#[derive(Clone, Debug)]
pub(super) struct Stirrer(Arc<Board>);

impl Stirrer {
    /// There may be new work for any pipeline: none is idle until it has looked again.
    pub(super) fn stir(&self) {
        let mut seats = self.0.seats();
        seats.stirs += 1;
        seats.idle.values_mut().for_each(|idle| *idle = false);
        drop(seats);
        self.0.stirred.notify_waiters();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.board.seats().idle.remove(&self.number);
        self.board.changed.notify_one();
    }
}

/// What to do while nothing is ready.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is left that is worth waiting for.
    Done,
    /// Something should be ready: claim again at once.
    LookAgain,
    /// Something becomes claimable in so long.
    Wait(Duration),
}

/// One pipeline's view of what is left.
#[derive(Debug)]
pub(super) struct IdleWatch {
    wait: Duration,
    since: Option<Instant>,
    empty_looks: u32,
    announced_until: Option<Instant>,
    mends: u32,
    left: Option<Left>,
}

impl IdleWatch {
    pub(super) fn new(until: &UntilIdle, pipeline: &Pipeline) -> Self {
        let wait = until.wait.unwrap_or_else(|| pipeline.lease.max(pipeline.retry.backoff_max()));
        Self { wait, since: None, empty_looks: 0, announced_until: None, mends: 0, left: None }
    }

    /// There was work.
    pub(super) fn busy(&mut self) {
        (self.since, self.empty_looks, self.announced_until, self.left) = (None, 0, None, None);
        self.mends = 0;
    }

    pub(super) fn left(self) -> Option<Left> {
        self.left
    }

    /// Looks at what is left, while this pipeline holds nothing itself.
    pub(super) async fn look(
        &mut self,
        backend: &Shared,
        pipeline: &Pipeline,
        counts: &Counts,
    ) -> Result<Step, Error> {
        let info = backend.group_info(&pipeline.group).await?;
        let own = info.partitions.iter().filter(|p| pipeline.partitions.contains(&p.partition));
        let unsettled: Vec<&GroupPartition> = own.filter(|p| p.lag() + p.redriven > 0).collect();
        let mut pending = Vec::new();
        for p in &unsettled {
            let entries = backend.pending(&pipeline.group, p.partition, None, LOOK_MAX).await?;
            pending.extend(entries.iter().map(|entry| entry.state.claimable_in_ms()));
        }
        let now = Instant::now();
        let left = unsettled.iter().map(|p| p.lag() + p.redriven).sum();
        let mut step = self.step(left, &pending, now);
        if step == Step::Done && left > 0 {
            step = match self.mend(backend, pipeline, counts, &unsettled, now).await {
                Err(error) if matches!(error.class(), ErrorClass::Request | ErrorClass::Fatal) => {
                    tracing::warn!(pipeline = %pipeline.name, %error, "what holds the group back cannot be healed");
                    Step::Done
                }
                other => other?,
            };
        }
        if let Step::Wait(_) = step
            && !pending.is_empty()
        {
            self.announce(pipeline, &pending, now);
        }
        Ok(step)
    }

    /// Before a run gives up what is left: it may be damage that holds the group back, which is healed;
    /// or an append that is under way, which is waited for, since it ends as an event or as a hole.
    async fn mend(
        &mut self,
        backend: &Shared,
        pipeline: &Pipeline,
        counts: &Counts,
        unsettled: &[&GroupPartition],
        now: Instant,
    ) -> Result<Step, Error> {
        let (mut changed, mut unwritten) = (false, false);
        for p in unsettled {
            changed |= sweeper::heal(backend, pipeline, counts, p.partition).await? > 0;
            let explanation = backend.explain(&pipeline.group, p.partition).await?;
            // The sweeper, or another engine, may have been faster.
            changed |= explanation.frontier != p.frontier;
            unwritten |= explanation.holder.is_some_and(|holder| holder.state == HolderState::Unwritten);
        }
        if changed && self.mends < MENDS_MAX {
            self.mends += 1;
            (self.empty_looks, self.left) = (0, None);
            return Ok(Step::LookAgain);
        }
        if unwritten && now < self.since.unwrap_or(now) + self.wait {
            return Ok(Step::Wait(UNWRITTEN_PAUSE));
        }
        Ok(Step::Done)
    }

    /// Says for what is waited and until when, unless that was said before.
    fn announce(&mut self, pipeline: &Pipeline, pending: &[i64], now: Instant) {
        let deadline = self.since.unwrap_or(now) + self.wait;
        let waited_for: Vec<Duration> =
            pending.iter().map(|ms| from_now(*ms)).filter(|w| now + *w <= deadline).collect();
        let last = waited_for.iter().copied().max().unwrap_or_default();
        if self.announced_until.is_none_or(|until| now + last > until + ANNOUNCE_AGAIN) {
            self.announced_until = Some(now + last);
            telemetry::waiting_for_pending(&pipeline.name, waited_for.len(), last);
        }
    }

    /// The decision, without I/O. `pending` holds the milliseconds until each can be claimed.
    fn step(&mut self, unsettled: u64, pending: &[i64], now: Instant) -> Step {
        let since = *self.since.get_or_insert(now);
        self.left = None;
        if unsettled == 0 {
            return Step::Done;
        }
        let deadline = since + self.wait;
        let next = pending.iter().map(|ms| from_now(*ms)).filter(|wait| now + *wait <= deadline).min();
        if let Some(wait) = next.filter(|wait| !wait.is_zero()) {
            return Step::Wait(wait);
        }
        // Something is overdue, or ready and in no one's hands: a claim must find it, though a
        // sweep may need more than one step, and what another program left may never be found.
        let overdue = next.is_some() || pending.is_empty();
        if overdue && (now < deadline && next.is_some() || self.empty_looks < EMPTY_LOOKS_MAX) {
            self.empty_looks += 1;
            return if self.empty_looks <= EMPTY_LOOKS_MAX { Step::LookAgain } else { Step::Wait(PAUSE) };
        }
        self.left =
            Some(Left { lag: unsettled, pending: pending.len(), first_in_ms: pending.iter().copied().min() });
        Step::Done
    }
}

/// How much longer a wait must have become to be said again.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// The wait until something that can be claimed in so many milliseconds; none where it can be now.
fn from_now(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Between two looks for something overdue that the first looks did not find.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(wait_ms: u64) -> IdleWatch {
        IdleWatch {
            wait: Duration::from_millis(wait_ms),
            since: None,
            empty_looks: 0,
            announced_until: None,
            mends: 0,
            left: None,
        }
    }

    #[test]
    fn ends_when_all_is_settled() {
        assert_eq!(watch(100).step(0, &[], Instant::now()), Step::Done);
    }

    #[test]
    fn waits_for_what_falls_due_in_time_and_reports_the_rest() {
        let (mut watch, start) = (watch(1000), Instant::now());
        assert_eq!(watch.step(2, &[400, 5000], start), Step::Wait(Duration::from_millis(400)));
        // The first one was taken by another engine; the other one is not worth waiting for.
        assert_eq!(watch.step(1, &[4600], start + Duration::from_millis(400)), Step::Done);
        assert_eq!(watch.left(), Some(Left { lag: 1, pending: 1, first_in_ms: Some(4600) }));
    }

    #[test]
    fn a_lease_that_its_holder_renews_is_waited_for_only_so_long() {
        let (mut watch, start) = (watch(1000), Instant::now());
        for ms in [0, 300, 600, 900] {
            let step = watch.step(1, &[100], start + Duration::from_millis(ms));
            assert_eq!(step, Step::Wait(Duration::from_millis(100)));
        }
        assert_eq!(watch.step(1, &[100], start + Duration::from_millis(950)), Step::Done);
    }

    #[test]
    fn what_should_be_ready_but_is_not_found_does_not_hold_the_run_for_ever() {
        let (mut watch, start) = (watch(1000), Instant::now());
        for _ in 0..EMPTY_LOOKS_MAX {
            assert_eq!(watch.step(3, &[], start), Step::LookAgain);
        }
        assert_eq!(watch.step(3, &[], start), Step::Done);
        assert_eq!(watch.left(), Some(Left { lag: 3, pending: 0, first_in_ms: None }));
    }

    #[test]
    fn an_overdue_lease_is_looked_for_until_the_wait_is_over() {
        let (mut watch, start) = (watch(1000), Instant::now());
        for _ in 0..EMPTY_LOOKS_MAX {
            assert_eq!(watch.step(1, &[-50], start), Step::LookAgain);
        }
        assert_eq!(watch.step(1, &[-50], start + Duration::from_millis(500)), Step::Wait(PAUSE));
        assert_eq!(watch.step(1, &[-50], start + Duration::from_millis(1000)), Step::Done);
    }

    #[tokio::test]
    async fn the_board_waits_for_the_last_pipeline() {
        let board = Arc::new(Board::default());
        let (first, second) = (board.seat(), board.seat());
        first.idle(&first.stirred());
        let all = tokio::spawn({
            let board = Arc::clone(&board);
            async move { board.all_idle().await }
        });
        tokio::task::yield_now().await;
        assert!(!all.is_finished());
        first.busy();
        second.idle(&second.stirred());
        tokio::task::yield_now().await;
        assert!(!all.is_finished());
        drop(first);
        all.await.unwrap();
    }

    #[tokio::test]
    async fn who_looked_before_another_stirred_looks_again() {
        let board = Arc::new(Board::default());
        let (reader, writer) = (board.seat(), board.seat());
        let before = reader.stirred();
        // Between the reader's look and what it says of it, the writer appends and ends.
        writer.stirrer().stir();
        writer.idle(&writer.stirred());
        reader.idle(&before);
        before.wait().await;
        assert!(board.seats().idle.values().any(|idle| !*idle));
        reader.idle(&reader.stirred());
        board.all_idle().await;
    }
}
