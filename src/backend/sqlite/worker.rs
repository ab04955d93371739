//! A thread that owns a connection and carries out operations on it, several in one transaction.
//!
//! What has queued up while one transaction ran goes into the next one together: under load a
//! commit (and its wait for the disk) is shared, and a lone operation is never delayed. One that fails
//! undoes nothing of the others, and each is answered only after the commit.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::clock::{Moment, Time};
use super::failure::{Failure, is_contention};
use super::moved::Identity;
use crate::backend::{Error, Result};

/// Operations that wait for the thread; above that, callers wait to queue.
const QUEUE_MAX: usize = 256;

/// Operations in one transaction.
const BATCH_MAX: usize = 64;

/// A transaction takes no further operations once it has run for so long.
const BATCH_TIME_MAX: Duration = Duration::from_millis(10);

/// Pause between two tries to get the lock that another process holds.
const LOCK_PAUSE: Duration = Duration::from_micros(700);

/// After so long without a pause between transactions, one is made, for another process to come
/// in: SQLite's lock goes to whoever asks at the right moment, not to who waited longest.
const HOG_TIME_MAX: Duration = Duration::from_millis(50);

/// What an operation works with.
pub(super) struct Op<'a> {
    /// The connection, inside a transaction.
    pub(super) conn: &'a Connection,
    /// The namespace of everything that the operation may touch.
    pub(super) namespace: &'a str,
    /// The time of the transaction.
    pub(super) time: Moment,
    /// How often each group (by row id) has claimed: who is served first goes round.
    pub(super) turns: &'a mut HashMap<i64, usize>,
    /// To be set by an operation that may have given others something to claim.
    pub(super) stirred: bool,
}

/// How a worker uses its connection.
pub(super) struct Session {
    pub(super) conn: Connection,
    pub(super) namespace: String,
    pub(super) time: Arc<Time>,
    pub(super) access: Access,
    /// The file, where there is one.
    pub(super) identity: Option<Identity>,
    /// Whether another process may want to write, too.
    pub(super) shared: bool,
    /// Told of every commit that may have given someone something to claim.
    pub(super) commits: watch::Sender<u64>,
    /// How long to wait for another process's lock.
    pub(super) lock_wait_max: Duration,
}

/// What a worker's operations do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// They read, each in a snapshot of its own: one that was taken before a caller's own write
    /// was committed would hide that write.
    Read,
    /// They write (and may read).
    Write,
}

impl Access {
    fn begin(self) -> &'static str {
        match self {
            Self::Read => "BEGIN",
            // A deferred transaction that reads first and then writes fails at once when another
            // process wrote in between.
            Self::Write => "BEGIN IMMEDIATE",
        }
    }

    fn batch_max(self) -> usize {
        match self {
            Self::Read => 1,
            Self::Write => BATCH_MAX,
        }
    }
}

/// The handle of the thread. Dropping it ends the thread and closes the connection.
pub(super) struct Worker {
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    pub(super) fn start(session: Session) -> Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        let name = match session.access {
            Access::Read => "sqlite-read",
            Access::Write => "sqlite-write",
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || session.serve(queue));
        let thread = thread.map_err(|error| Error::Unavailable(format!("no thread to be had: {error}")))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has `work` carried out. If the caller gives up before it was begun, it never is.
    pub(super) async fn call<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Op<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let ended = || Error::Unavailable("the store's thread has ended".to_owned());
        let job = Box::new(Call { work: Some(work), result: None, reply });
        self.jobs.as_ref().ok_or_else(ended)?.send(job).await.map_err(|_| ended())?;
        answer
            .await
            .map_err(|_| Error::Ambiguous("the store's thread ended in the middle of the work".into()))?
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Waiting lets SQLite fold its log into the file, so that nothing is left beside it.
            // No one can be waiting for an answer any more, so there is nothing else to finish.
            let _ = thread.join();
        }
    }
}

/// What an operation left in its transaction.
enum Ran {
    /// What it wrote, and whether that gives others something to claim.
    Kept { stirred: bool },
    /// Nothing.
    Undone,
    /// Part of what it should have written, as the first of the transaction that wrote anything: the
    /// transaction is to be undone.
    LeftHalfDone,
}

/// An operation in the queue.
trait Job: Send {
    /// Carries it out; whether its writes are to be kept.
    fn run(&mut self, op: &mut Op<'_>) -> bool;
    /// Answers the caller: what `run` gave, unless the transaction failed.
    fn answer(self: Box<Self>, failure: Option<&Failure>);
    /// Whether the caller has given up.
    fn is_abandoned(&self) -> bool;
}

struct Call<T, F> {
    work: Option<F>,
    result: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnOnce(&mut Op<'_>) -> Result<T> + Send,
{
    fn run(&mut self, op: &mut Op<'_>) -> bool {
        self.result = self.work.take().map(|work| work(op));
        matches!(self.result, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, failure: Option<&Failure>) {
        let result = match (self.result, failure) {
            (Some(Err(error)), _) => Err(error),
            (_, Some(failure)) => Err(failure.into()),
            (Some(Ok(value)), None) => Ok(value),
            (None, None) => return,
        };
        // The caller may have given up in the meantime.
        let _ = self.reply.send(result);
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

impl Session {
    fn serve(self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        let mut turns = HashMap::new();
        let mut busy_since = Instant::now();
        loop {
            let first = match queue.try_recv() {
                Ok(job) => {
                    if self.shared && busy_since.elapsed() > HOG_TIME_MAX {
                        std::thread::sleep(2 * LOCK_PAUSE);
                        busy_since = Instant::now();
                    }
                    job
                }
                Err(_) => {
                    let Some(job) = queue.blocking_recv() else { return };
                    busy_since = Instant::now();
                    job
                }
            };
            if !first.is_abandoned() {
                self.carry_out(first, &mut queue, &mut turns);
            }
        }
    }

    fn carry_out(
        &self,
        first: Box<dyn Job>,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        turns: &mut HashMap<i64, usize>,
    ) {
        if let Err(failure) = self.begin() {
            // Whoever queued up meanwhile has waited for the same lock. All are gathered before the
            // first is answered: what comes after an answer is a new try.
            let mut waiting = vec![first];
            while waiting.len() <= QUEUE_MAX
                && let Ok(job) = queue.try_recv()
            {
                waiting.push(job);
            }
            for job in waiting {
                job.answer(Some(&failure));
            }
            return;
        }
        let mut done = Vec::new();
        let failure = self.transact(first, queue, turns, &mut done).err();
        if failure.is_some() && !self.conn.is_autocommit() {
            // Closing the connection would undo it too; nothing more can be done about an error.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        for job in done {
            job.answer(failure.as_ref());
        }
    }

    /// Begins a transaction, waiting for another process's lock for a bounded time.
    fn begin(&self) -> Result<(), Failure> {
        let asked = Instant::now();
        loop {
            match self.run(self.access.begin()) {
                Ok(()) => break,
                Err(error) if is_contention(&error) && asked.elapsed() < self.lock_wait_max => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let Some(moved) = self.identity.as_ref().and_then(Identity::moved) else { return Ok(()) };
        self.run("ROLLBACK")?;
        Err(Failure::refused(moved))
    }

    /// Carries out `first` and what waits behind it, and commits. All that was begun is in `done`
    /// afterwards, whatever happened.
    fn transact(
        &self,
        first: Box<dyn Job>,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        turns: &mut HashMap<i64, usize>,
        done: &mut Vec<Box<dyn Job>>,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let mut next = Some(first);
        let mut moment = None;
        let mut stirred = false;
        let changes = self.conn.total_changes();
        while let Some(mut job) = next.take() {
            let ran = self.run_one(job.as_mut(), &mut moment, turns, changes);
            done.push(job);
            match ran? {
                Ran::Kept { stirred: stirs } => stirred |= stirs,
                Ran::Undone => {}
                Ran::LeftHalfDone => {
                    self.run("ROLLBACK")?;
                    return Ok(());
                }
            }
            if done.len() < self.access.batch_max() && began.elapsed() < BATCH_TIME_MAX {
                next = queue.try_recv().ok().filter(|job| !job.is_abandoned());
            }
        }
        if let Some(time) = moment
            && self.conn.total_changes() != changes
        {
            let mut statement = self.conn.prepare_cached("UPDATE clock SET now_ms = ?1 WHERE now_ms < ?1")?;
            statement.execute([time.now_ms])?;
        }
        self.run("COMMIT").map_err(|error| Failure::from(error).at_commit())?;
        if stirred {
            self.commits.send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok(())
    }

    /// Carries out one operation of a transaction that began when the connection had made so many
    /// `changes`.
    ///
    /// It stands in a savepoint only where there is something to save: while one is open, SQLite copies
    /// every page before it changes it.
    fn run_one(
        &self,
        job: &mut dyn Job,
        moment: &mut Option<Moment>,
        turns: &mut HashMap<i64, usize>,
        changes: u64,
    ) -> Result<Ran, Failure> {
        let time = match *moment {
            Some(time) => time,
            // Read inside the transaction: what another process stored before is seen.
            None => *moment.insert(self.time.moment(self.stored_ms()?)),
        };
        let mut op = Op { conn: &self.conn, namespace: &self.namespace, time, turns, stirred: false };
        let guarded = self.conn.total_changes() != changes;
        if guarded {
            self.run("SAVEPOINT operation")?;
        }
        let keep = job.run(&mut op);
        let stirred = op.stirred;
        if self.conn.is_autocommit() {
            // Some errors (a full disk, no memory) make SQLite undo the whole transaction.
            return Err(Failure::undone("the database undid the transaction; is the disk full?"));
        }
        if guarded {
            if !keep {
                self.run("ROLLBACK TO operation")?;
            }
            self.run("RELEASE operation")?;
        }
        Ok(match keep {
            true => Ran::Kept { stirred },
            false if guarded || self.conn.total_changes() == changes => Ran::Undone,
            false => Ran::LeftHalfDone,
        })
    }

    fn stored_ms(&self) -> rusqlite::Result<i64> {
        self.conn.prepare_cached("SELECT now_ms FROM clock")?.query_row([], |row| row.get(0))
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(|_| ())
    }
}
