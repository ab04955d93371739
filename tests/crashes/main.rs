//! Effects exactly once, whatever is cut off in the middle: consumers move money by hand over each
//! store, as state machines whose every step may be the last of them, or may lose its answer.

// Helpers of tests are tests, which the lint does not know of this kind of crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bank;
mod consumer;
#[path = "../support/redis.rs"]
mod server;
#[path = "../conformance/stores.rs"]
#[allow(dead_code, reason = "the conformance suite uses more of it")]
mod stores;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use wasmill::backend::conformance::Store;

use bank::Bank;
use consumer::Consumer;
use server::RedisServer;
use stores::RedisStore;

/// Accounts between which money moves.
const ACCOUNTS: u8 = 4;

/// Consumers at a time.
const CONSUMERS: usize = 3;

/// How often time passes where that means to sleep.
const SLEEPS_MAX: usize = 3;

/// What an event asks for.
#[derive(Clone, Copy, Debug)]
struct Order {
    from: u8,
    to: u8,
    amount: i64,
    fate: Fate,
}

/// How its handling ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ack,
    /// At the first attempt a retry.
    RetryFirst,
    /// A dead letter, whatever was staged.
    Reject,
}

/// What happens to a step of a consumer.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Nothing: it ends.
    None,
    /// The consumer dies before the step.
    Before,
    /// The consumer dies in the step, after it went on so often.
    Within(u8),
    /// The consumer dies after the step, and learns nothing of its end.
    After,
    /// The answer is lost, and the consumer lives: it does the step again.
    Answer,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Step(usize, Cut),
    /// All leases run out.
    Pass,
}

#[derive(Clone, Debug)]
struct Walk {
    orders: Vec<Order>,
    turns: Vec<Turn>,
}

fn orders() -> impl Strategy<Value = Order> {
    let fate = prop_oneof![6 => Just(Fate::Ack), 1 => Just(Fate::RetryFirst), 1 => Just(Fate::Reject)];
    // The second account is another one than the first.
    (0..ACCOUNTS, 1..ACCOUNTS, 1i64..4, fate).prop_map(|(from, further, amount, fate)| {
        let to = (from + further) % ACCOUNTS;
        Order { from, to, amount, fate }
    })
}

fn turns() -> impl Strategy<Value = Turn> {
    let cut = prop_oneof![
        12 => Just(Cut::None),
        1 => Just(Cut::Before),
        2 => (1u8..6).prop_map(Cut::Within),
        2 => Just(Cut::After),
        2 => Just(Cut::Answer),
    ];
    prop_oneof![
        15 => (0..CONSUMERS, cut).prop_map(|(consumer, cut)| Turn::Step(consumer, cut)),
        1 => Just(Turn::Pass),
    ]
}

fn walks() -> impl Strategy<Value = Walk> {
    (vec(orders(), 4..20), vec(turns(), 20..80)).prop_map(|(orders, turns)| Walk { orders, turns })
}

async fn drive(store: &dyn Store, walk: &Walk) -> Result<()> {
    let bank = Bank::open(store, &walk.orders).await?;
    let mut consumers = Vec::new();
    for _ in 0..CONSUMERS {
        consumers.push(Consumer::new(&bank).await?);
    }
    let mut sleeps = 0;
    for (n, turn) in walk.turns.iter().enumerate() {
        match *turn {
            Turn::Step(which, cut) => {
                let alive = consumers[which].step(&bank, cut).await;
                if !alive.with_context(|| format!("turn {}, {turn:?}", n + 1))? {
                    consumers[which] = Consumer::new(&bank).await?;
                }
            }
            Turn::Pass if store.moves_time() || sleeps < SLEEPS_MAX => {
                sleeps += 1;
                bank.all_leases_end().await;
            }
            Turn::Pass => {}
        }
    }
    let mut last = Consumer::new(&bank).await?;
    bank.work_off(&mut last).await?;
    bank.check().await.context("when all is settled")?;
    // Those that still believe to hold something change nothing any more.
    for consumer in &mut consumers {
        consumer.settle_late(&bank).await?;
    }
    bank.check().await.context("after the late ones")
}

/// Walks `cases` times, each on a store of its own.
fn walk<S: Store>(cases: u32, fresh: impl AsyncFn() -> S) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let walked = TestRunner::new(config).run(&walks(), |walk| {
        let driven = runtime.block_on(async { drive(&fresh().await, &walk).await });
        driven.map_err(|broken| TestCaseError::fail(format!("{broken:#}")))
    });
    walked.unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn on_sqlite_in_memory_effects_happen_exactly_once() {
    walk(160, stores::sqlite_memory);
}

#[test]
fn on_sqlite_in_a_file_effects_happen_exactly_once() {
    // Opening it is to wait for the disk.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| walk(10, stores::sqlite_file));
        }
    });
}

#[test]
fn on_redis_effects_happen_exactly_once() {
    // Where time cannot be moved, letting it pass is to sleep: so several walk at once.
    let server = Arc::new(RedisServer::start());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| walk(25, async || RedisStore::on(server.clone()).await));
        }
    });
}
