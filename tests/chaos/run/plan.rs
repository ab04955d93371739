//! Which faults come, in which order: all of it follows from the seed.

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use std::time::Duration;

/// Engines of a run.
pub(super) const ENGINES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Redis,
    Sqlite,
}

/// What breaks. A line is the connection of an engine to the store, or the appender's, which comes
/// after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`, and another start.
    Kill {
        engine: usize,
    },
    /// SIGSTOP for longer than a lease: the stale holder wakes and tries to settle.
    Pause {
        engine: usize,
    },
    /// SIGTERM, and another start.
    Drain {
        engine: usize,
    },
    Slow {
        line: usize,
        ms: u64,
    },
    Cut {
        line: usize,
    },
    LoseAnswers {
        line: usize,
        count: u32,
    },
    Stall {
        line: usize,
        after_bytes: u64,
    },
    HalfOpen {
        line: usize,
    },
    Away {
        line: usize,
    },
    /// SIGTERM, and another start.
    Restart,
    /// SIGKILL, and another start.
    KillServer,
    /// SIGSTOP.
    FreezeServer,
    /// Everything is gone: a new history.
    Flush,
    KillClients,
    FlushScripts,
    OutOfMemory,
    /// The primary is a replica for a while, and refuses writes.
    Replica,
    /// A script of someone else's keeps the server busy.
    SlowScript,
    /// The engines can write no file beyond a few bytes.
    DiskFull,
    /// Another process keeps the database locked.
    Locked,
    /// The database is deleted under everyone: a new history.
    Deleted,
}

/// Faults that come together, and how long they last.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) faults: Vec<Fault>,
    pub(super) hold: Duration,
}

pub(super) struct Plan {
    random: StdRng,
    store: StoreKind,
}

impl Plan {
    pub(super) fn new(store: StoreKind, seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), store }
    }

    /// A round has each fault at least once. Everything is lost in its first half, so that the second
    /// one has a history to be checked from beginning to end; some come while an engine dies, too.
    pub(super) fn round(&mut self) -> Vec<Step> {
        let mut faults = self.engine_faults();
        let end = match self.store {
            StoreKind::Redis => {
                faults.extend(self.redis_faults());
                Fault::Flush
            }
            StoreKind::Sqlite => {
                faults.extend(self.engine_faults());
                faults.extend([Fault::DiskFull, Fault::DiskFull, Fault::Locked, Fault::Locked]);
                Fault::Deleted
            }
        };
        faults.shuffle(&mut self.random);
        let at = self.random.random_range(0..faults.len() / 2);
        faults.insert(at, end);
        faults.into_iter().map(|fault| self.step(fault, end)).collect()
    }

    fn step(&mut self, fault: Fault, end: Fault) -> Step {
        let random = &mut self.random;
        let ms = match fault {
            // Longer than a lease.
            Fault::Pause { .. } => random.random_range(1_500..2_500),
            // Longer than anyone waits for a lock, at times.
            Fault::Locked => random.random_range(200..7_000),
            Fault::FreezeServer => random.random_range(200..2_500),
            Fault::Drain { .. } | Fault::Kill { .. } | Fault::Cut { .. } => random.random_range(0..200),
            _ => random.random_range(200..1_500),
        };
        let mut faults = vec![fault];
        let of_engine = matches!(fault, Fault::Kill { .. } | Fault::Pause { .. } | Fault::Drain { .. });
        if !of_engine && fault != end && random.random_bool(0.3) {
            faults.push(Fault::Kill { engine: random.random_range(0..ENGINES) });
        }
        Step { faults, hold: Duration::from_millis(ms) }
    }

    fn engine_faults(&mut self) -> Vec<Fault> {
        let engine = self.random.random_range(0..ENGINES);
        let other = (engine + 1) % ENGINES;
        vec![
            Fault::Kill { engine },
            Fault::Kill { engine: other },
            Fault::Pause { engine },
            Fault::Pause { engine: other },
            Fault::Drain { engine: other },
        ]
    }

    fn redis_faults(&mut self) -> Vec<Fault> {
        let random = &mut self.random;
        let mut line = || random.random_range(0..=ENGINES);
        let lines = [line(), line(), line(), line(), line(), line(), line()];
        let [ms, count, after_bytes] =
            [random.random_range(5..150), random.random_range(1..8), random.random_range(0..3_000)];
        vec![
            Fault::Slow { line: lines[0], ms },
            Fault::Cut { line: lines[1] },
            Fault::LoseAnswers { line: lines[2], count: u32::try_from(count).unwrap() },
            Fault::LoseAnswers { line: lines[3], count: 1 },
            Fault::Stall { line: lines[4], after_bytes },
            Fault::HalfOpen { line: lines[5] },
            Fault::Away { line: lines[6] },
            Fault::Restart,
            Fault::KillServer,
            Fault::FreezeServer,
            Fault::KillClients,
            Fault::FlushScripts,
            Fault::OutOfMemory,
            Fault::Replica,
            Fault::SlowScript,
        ]
    }
}
