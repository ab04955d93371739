//! A pipeline whose guests compute without end leaves the others their share.

use std::time::{Duration, Instant};

use wasmill::engine::Slot;
use wasmill::event::GroupKey;
use wasmill::outcome::OnFault;

use crate::kit::{self, Engine, wait_until};

/// How long the good pipeline takes for `count` events.
async fn time(engine: &Engine, group: &GroupKey, count: usize) -> Duration {
    let start = Instant::now();
    engine.append(group, "ok", count).await;
    wait_until("the good pipeline is done", async || engine.lag(group).await == 0).await;
    start.elapsed()
}

/// On two processors, endless loops in one pipeline may cost another one half of its handlers' time.
/// Much more would be a queue that it has to stand in: with all handlers on the same threads, 64 loops
/// left it 0.05 to 0.08.
#[tokio::test(flavor = "multi_thread")]
async fn endless_loops_leave_other_pipelines_their_share() {
    const EVENTS: usize = 2_000;
    const LOOPS: usize = 64;
    let backend = kit::store().await;
    let (bad, good) = (kit::group(&backend, "bad").await, kit::group(&backend, "good").await);
    let hostile = Slot::new(kit::plugin("hostile", Duration::from_secs(3600)).await);
    let passthrough = Slot::new(kit::plugin("passthrough", Duration::from_secs(60)).await);
    let pipelines = vec![
        kit::pipeline(&bad, hostile, LOOPS, OnFault::Retry),
        kit::pipeline(&good, passthrough, 8, OnFault::Retry),
    ];
    let engine = Engine::start(backend, pipelines, false);
    time(&engine, &good, EVENTS).await;
    let mut alone = Vec::new();
    for _ in 0..3 {
        alone.push(time(&engine, &good, EVENTS).await);
    }
    engine.append(&bad, "loop", LOOPS).await;
    wait_until("all loops run", async || {
        let info = engine.backend.group_info(&bad).await.unwrap();
        info.partitions.iter().map(|partition| partition.in_flight).sum::<u64>() == LOOPS as u64
    })
    .await;
    let mut beside = Vec::new();
    for _ in 0..3 {
        beside.push(time(&engine, &good, EVENTS).await);
    }
    alone.sort();
    beside.sort();
    let share = alone[1].as_secs_f64() / beside[1].as_secs_f64();
    eprintln!(
        "{EVENTS} events alone: {:?}; beside {LOOPS} endless loops: {:?}; share {share:.2}",
        alone[1], beside[1]
    );
    assert!(share > 0.15, "a share of {share:.2}: alone {alone:?}, beside loops {beside:?}");
    engine.stop().await;
}
