//! `on_fault`: a dead letter at once, or a pipeline that pauses before it spends more attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use wasmill::engine::{Condition, Handler, PipelineError, Slot};
use wasmill::event::Event;
use wasmill::outcome::{Cause, Effects, FailureKind, Fault, FaultKind, OnFault, Outcome};
use wasmill::plugin::Delivery;

use crate::kit::{self, Engine, wait_until};

/// A build that faults always, or never.
struct Build {
    digest: &'static str,
    faults: bool,
    calls: AtomicU32,
    attempts_max: AtomicU32,
}

fn build(digest: &'static str, faults: bool) -> Arc<Build> {
    Arc::new(Build { digest, faults, calls: AtomicU32::new(0), attempts_max: AtomicU32::new(0) })
}

#[async_trait]
impl Handler for Build {
    fn name(&self) -> &str {
        "x"
    }

    fn digest(&self) -> Arc<str> {
        self.digest.into()
    }

    async fn handle(&self, _: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.attempts_max.fetch_max(delivery.attempt, Ordering::SeqCst);
        match self.faults {
            true => Err(Fault { kind: FaultKind::Trap, message: "it broke".to_owned() }),
            false => Ok(Outcome::Ack(Effects::default())),
        }
    }
}

const PAUSE: OnFault = OnFault::Pause { after: 5, of: 10 };
const EVENTS: usize = 200;

async fn paused(engine: &Engine) {
    wait_until("it pauses", async || {
        matches!(engine.conditions.snapshot().get("p"), Some(Condition::Paused(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_paused_spends_no_attempt_until_there_is_a_new_build() {
    let backend = kit::store().await;
    let group = kit::group(&backend, "p").await;
    let bad = build("bad", true);
    let slot = Slot::new(Arc::clone(&bad) as Arc<dyn Handler>);
    let concurrency = 4;
    let pipelines = vec![kit::pipeline(&group, Arc::clone(&slot), concurrency, PAUSE)];
    let engine = Engine::start(backend, pipelines, false);
    engine.append(&group, "x", EVENTS).await;
    paused(&engine).await;
    let snapshot = engine.conditions.snapshot();
    let Some(Condition::Paused(pause)) = snapshot.get("p") else { panic!("{snapshot:?}") };
    assert_eq!((pause.faults, pause.attempts, &*pause.digest, &*pause.fault), (5, 5, "bad", "it broke"));
    // What it held and had not begun goes back.
    wait_until("nothing is held", async || {
        let info = engine.backend.group_info(&group).await.unwrap();
        info.partitions[0].in_flight == 0
    })
    .await;
    let spent = bad.calls.load(Ordering::SeqCst);
    assert!((5..5 + concurrency as u32).contains(&spent), "{spent} attempts");
    // Longer than the backoff of those that were tried: they are due, and are left alone.
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(bad.calls.load(Ordering::SeqCst), spent);

    let good = build("good", false);
    slot.replace(Arc::clone(&good) as Arc<dyn Handler>);
    wait_until("all are settled", async || engine.lag(&group).await == 0).await;
    assert_eq!(engine.conditions.snapshot().get("p"), Some(&Condition::Running));
    assert_eq!(good.calls.load(Ordering::SeqCst), EVENTS as u32);
    assert_eq!(good.attempts_max.load(Ordering::SeqCst), 2, "no event lost more than the one attempt");
    let conditions = Arc::clone(&engine.conditions);
    let ended = engine.stop().await;
    assert_eq!(ended[0].summary.acked, EVENTS as u64);
    assert!(conditions.snapshot().is_empty(), "{conditions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_paused_goes_on_when_it_is_told_to() {
    let backend = kit::store().await;
    let group = kit::group(&backend, "p").await;
    let bad = build("bad", true);
    let slot = Slot::new(Arc::clone(&bad) as Arc<dyn Handler>);
    let engine = Engine::start(backend, vec![kit::pipeline(&group, slot, 1, PAUSE)], false);
    engine.append(&group, "x", EVENTS).await;
    for round in 1..=3 {
        paused(&engine).await;
        assert_eq!(bad.calls.load(Ordering::SeqCst), round * 5, "five more each time it goes on");
        engine.remote.resume().await;
        wait_until("it goes on", async || bad.calls.load(Ordering::SeqCst) > round * 5).await;
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_until_idle_ends_where_it_would_pause() {
    let backend = kit::store().await;
    let (bad, good) = (kit::group(&backend, "bad").await, kit::group(&backend, "good").await);
    let pipelines = vec![
        kit::pipeline(&bad, Slot::new(build("bad", true)), 4, PAUSE),
        kit::pipeline(&good, Slot::new(build("good", false)), 4, PAUSE),
    ];
    for group in [&bad, &good] {
        let event = wasmill::event::NewEvent::new(wasmill::event::JsonObject::empty());
        backend.append(&group.stream, &vec![event; EVENTS]).await.unwrap();
    }
    let ended = Engine::start(backend, pipelines, true).end().await;
    assert!(matches!(ended[0].error, Some(PipelineError::Faults)), "{:?}", ended[0]);
    assert!(ended[1].error.is_none(), "{:?}", ended[1]);
    assert_eq!(ended[1].summary.acked, EVENTS as u64);
    assert_eq!(ended[0].summary.dead_lettered, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_can_be_a_dead_letter_at_once() {
    let backend = kit::store().await;
    let group = kit::group(&backend, "p").await;
    let slot = Slot::new(build("bad", true));
    let engine = Engine::start(backend, vec![kit::pipeline(&group, slot, 4, OnFault::DeadLetter)], false);
    engine.append(&group, "x", 20).await;
    wait_until("all are settled", async || engine.lag(&group).await == 0).await;
    let dead = engine.backend.dead_letters(&group, None, 100).await.unwrap();
    assert_eq!(dead.len(), 20);
    for letter in &dead {
        assert_eq!(letter.cause, Some(Cause::Faulted), "{letter:?}");
        assert_eq!((letter.failure, letter.attempts), (Some(FailureKind::Trap), Some(1)), "{letter:?}");
    }
    engine.stop().await;
}
