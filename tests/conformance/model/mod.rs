//! Random walks of several consumers, with expiries and crashes, on a backend and on a model of
//! it, compared after each step.

mod control;
mod drive;
mod moves;
mod state;

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use wasmill::backend::RewindKind;
use wasmill::backend::conformance::Store;

use crate::server::RedisServer;
use crate::stores::{self, RedisStore};

/// Partitions of the model's stream.
pub(crate) const PARTITIONS: u32 = 3;

/// How long a lease or a delay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Over at once.
    Zero,
    /// Over when time passes.
    Short,
    /// Over only when much time passes.
    Long,
}

/// What a walk does next. Indices are taken modulo what is there.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Appends events to these partitions; with `broken` also one to a partition that is none.
    Append { partitions: Vec<u32>, broken: bool },
    /// Claims.
    Claim { group: usize, consumer: u8, partitions: Vec<u32>, limit: usize, lease: Span, sweep: bool },
    /// Asks for a suspect.
    Alone { group: usize, consumer: u8, partitions: Vec<u32>, lease: Span },
    /// Settles leases, each picked from those that hold (`true`) or from all that ever were. A
    /// lease that is never picked is that of a consumer that crashed.
    Settle { group: usize, picks: Vec<(bool, Index, Fate)> },
    /// Renews leases, picked in the same way.
    Renew { group: usize, picks: Vec<(bool, Index)>, lease: Span },
    /// Lets time pass: enough for short spans, or for long ones too.
    Pass { long: bool },
    /// Moves a group: replay or reset. Leases are settled while it is under way, and it is finished
    /// by going on with it, or by claims.
    Rewind {
        group: usize,
        kind: RewindKind,
        to: Vec<(u32, Index)>,
        meanwhile: Vec<(bool, Index, Fate)>,
        by_claims: bool,
    },
    /// Deletes a group, and makes it anew.
    Recreate { group: usize, to: Vec<(u32, Index)> },
    /// Purges dead letters.
    Purge { group: usize, picks: Vec<Index> },
    /// Redrives dead letters.
    Redrive { group: usize, picks: Vec<Index> },
    /// Delivers events of the log again.
    Redeliver { group: usize, picks: Vec<(u32, Index)> },
    /// Trims a partition.
    Trim { partition: u32, max_length: Option<u64>, until: Option<Index> },
}

/// The kinds of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Ack,
    Retry(Span),
    Reject,
    Release,
}

/// A walk: the attempts of its two groups, and its steps, each with the handle that it uses.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) max_attempts: [u32; 2],
    pub(crate) steps: Vec<(usize, Step)>,
}

fn spans() -> impl Strategy<Value = Span> {
    prop_oneof![Just(Span::Short), Just(Span::Long)]
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Ack),
        1 => Just(Fate::Retry(Span::Zero)),
        1 => spans().prop_map(Fate::Retry),
        1 => Just(Fate::Reject),
        1 => Just(Fate::Release),
    ]
}

fn some_partitions() -> impl Strategy<Value = Vec<u32>> {
    let all: Vec<u32> = (0..PARTITIONS).collect();
    prop_oneof![
        2 => Just(all.clone()),
        1 => proptest::sample::subsequence(all, 1..=PARTITIONS as usize),
    ]
}

fn picks() -> impl Strategy<Value = Vec<(bool, Index, Fate)>> {
    let pick = (prop::bool::weighted(0.8), any::<Index>(), fates());
    vec(pick, 0..8)
}

/// Appends, deliveries, settlements and time.
fn flow() -> impl Strategy<Value = Step> {
    let group = 0usize..2;
    let pick = (prop::bool::weighted(0.8), any::<Index>());
    prop_oneof![
        3 => (vec(0..PARTITIONS, 1..8), prop::bool::weighted(0.1))
            .prop_map(|(partitions, broken)| Step::Append { partitions, broken }),
        8 => (group.clone(), 0u8..3, some_partitions(), 1usize..9, spans(), any::<bool>()).prop_map(
            |(group, consumer, partitions, limit, lease, sweep)| Step::Claim {
                group, consumer, partitions, limit, lease, sweep,
            }
        ),
        2 => (group.clone(), 0u8..3, some_partitions(), spans()).prop_map(
            |(group, consumer, partitions, lease)| Step::Alone { group, consumer, partitions, lease }
        ),
        7 => (group.clone(), picks()).prop_map(|(group, picks)| Step::Settle { group, picks }),
        2 => (group, vec(pick, 1..8), spans())
            .prop_map(|(group, picks, lease)| Step::Renew { group, picks, lease }),
        4 => prop::bool::weighted(0.25).prop_map(|long| Step::Pass { long }),
    ]
}

/// What operators do.
fn control() -> impl Strategy<Value = Step> {
    let group = 0usize..2;
    let kind = prop_oneof![Just(RewindKind::Replay), Just(RewindKind::Reset)];
    let places = || vec((0..PARTITIONS, any::<Index>()), 0..4);
    let rows = || vec(any::<Index>(), 0..5);
    prop_oneof![
        3 => (group.clone(), kind, places(), picks(), any::<bool>()).prop_map(
            |(group, kind, to, meanwhile, by_claims)| Step::Rewind { group, kind, to, meanwhile, by_claims }
        ),
        1 => (group.clone(), places()).prop_map(|(group, to)| Step::Recreate { group, to }),
        1 => (group.clone(), rows()).prop_map(|(group, picks)| Step::Purge { group, picks }),
        5 => (group.clone(), rows()).prop_map(|(group, picks)| Step::Redrive { group, picks }),
        2 => (group, places()).prop_map(|(group, picks)| Step::Redeliver { group, picks }),
        4 => (0..PARTITIONS, prop::option::of(0u64..6), prop::option::of(any::<Index>()))
            .prop_map(|(partition, max_length, until)| Step::Trim { partition, max_length, until }),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![4 => flow(), 1 => control()]
}

fn walks() -> impl Strategy<Value = Walk> {
    let max_attempts = [1u32..5, 2u32..4];
    (max_attempts, vec((0usize..2, steps()), 1..80))
        .prop_map(|(max_attempts, steps)| Walk { max_attempts, steps })
}

/// Walks `cases` times, each on a store of its own.
fn walk<S: Store>(cases: u32, fresh: impl AsyncFn() -> S) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let walked = TestRunner::new(config).run(&walks(), |walk| {
        let driven = runtime.block_on(async { drive::drive(&fresh().await, &walk).await });
        driven.map_err(|broken| TestCaseError::fail(format!("{broken:#}")))
    });
    walked.unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn sqlite_in_memory_behaves_as_the_model() {
    walk(128, stores::sqlite_memory);
}

#[test]
fn sqlite_in_a_file_behaves_as_the_model() {
    walk(64, stores::sqlite_file);
}

#[test]
fn redis_behaves_as_the_model() {
    // Where time cannot be moved, letting it pass is to sleep: so several walk at once.
    let server = Arc::new(RedisServer::start());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| walk(8, async || RedisStore::on(server.clone()).await));
        }
    });
}
