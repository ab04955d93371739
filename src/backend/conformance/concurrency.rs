//! Everything at once: nothing is lost, nothing settles twice (invariants 1, 3 and 4).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::Store;
use super::kit::{LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, places, reject, retry, settlement, until};
use crate::backend::{Claimed, Settled};
use crate::outcome::Verdict;

/// What a worker saw the store settle for good.
#[derive(Default)]
struct Seen {
    acked: Vec<(u32, u64)>,
    dead: Vec<(u32, u64)>,
}

/// What a worker does with an event; `None`: it dies with it.
fn roll() -> Option<Verdict> {
    match rand::random_range(0..100) {
        0..55 => Some(ack()),
        55..70 => Some(retry(Duration::ZERO)),
        70..75 => Some(reject()),
        75..85 => Some(Verdict::Release),
        _ => None,
    }
}

/// Claims and settles at random until told to stop.
async fn work(scene: Scene, consumer: String, stop: Arc<AtomicBool>) -> Result<Seen> {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let claimed = scene.take(Take::by(&consumer).limit(9).lease(SHORT).sweep()).await?;
        let suspects = claimed.suspects;
        settle_at_random(&scene, &consumer, claimed, &mut seen).await?;
        if suspects {
            let claimed = scene.take(Take::by(&consumer).lease(SHORT).alone()).await?;
            settle_at_random(&scene, &consumer, claimed, &mut seen).await?;
        }
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..5))).await;
    }
    Ok(seen)
}

/// Gives each event of a claim its verdict, and notes what the store took for good.
async fn settle_at_random(scene: &Scene, consumer: &str, claimed: Claimed, seen: &mut Seen) -> Result<()> {
    for death in &claimed.dead_lettered {
        let sequence = death.sequence.ok_or_else(|| anyhow::anyhow!("our own event has a sequence"))?;
        seen.dead.push((death.partition, sequence));
    }
    let batch: Vec<_> = claimed.leased.iter().filter_map(|l| Some(settlement(&l.lease, roll()?))).collect();
    for (answer, settlement) in scene.settle(consumer, &batch).await?.into_iter().zip(&batch) {
        let place = (settlement.lease.partition, settlement.lease.sequence);
        match (answer, &settlement.verdict) {
            (Settled::Done, Verdict::Ack(_)) => seen.acked.push(place),
            (Settled::Done, Verdict::DeadLetter { .. }) => seen.dead.push(place),
            (Settled::Done | Settled::Stale, _) => {}
            (Settled::Conflict | Settled::Refused(_), _) => {
                anyhow::bail!("without effects there is nothing to refuse: {settlement:?}")
            }
            (Settled::ReceiptMismatch, _) => anyhow::bail!("a lease keeps its receipt: {settlement:?}"),
        }
    }
    Ok(())
}

/// Consumers over two handles claim, settle, retry, release and die at random while events are
/// appended: every event ends acked or dead-lettered, once.
pub async fn settles_each_event_once(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 60;
    const PARTITIONS: u32 = 3;
    let scene = Scene::with_events(store, PARTITIONS, 4, EVENTS / 2).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = JoinSet::new();
    for n in 0..6 {
        let handle = if n % 2 == 0 { store.backend() } else { store.other().await? };
        workers.spawn(work(scene.through(handle), format!("worker-{n}"), stop.clone()));
    }
    for partition in 0..PARTITIONS {
        scene.append(partition, EVENTS - EVENTS / 2).await?;
    }
    let drained = until("random consumers settle everything", async || {
        if store.moves_time() {
            store.pass(SHORT / 4).await;
        }
        // A worker that failed says why; the others would only wait for what it held.
        if let Some(ended) = workers.try_join_next() {
            ended??;
        }
        Ok((scene.info().await?.lag(|_| true) == 0).then_some(()))
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let (mut acked, mut dead) = (HashMap::new(), HashMap::new());
    while let Some(seen) = workers.join_next().await {
        let seen = seen??;
        seen.acked.into_iter().for_each(|place| *acked.entry(place).or_insert(0) += 1);
        seen.dead.into_iter().for_each(|place| *dead.entry(place).or_insert(0) += 1);
    }
    drained?;
    for partition in 0..PARTITIONS {
        for sequence in 1..=EVENTS as u64 {
            let place = (partition, sequence);
            let ends = (acked.get(&place).unwrap_or(&0), dead.get(&place).unwrap_or(&0));
            ensure!(
                matches!(ends, (1, 0) | (0, 1)),
                "every event ends acked or dead-lettered, once: {place:?} ended {ends:?} times"
            );
        }
    }
    ensure_eq("a dead letter is kept for each death", scene.info().await?.dead_letters, dead.len() as u64)?;
    scene.ensure_drained().await
}

/// A consumer that says farewell is forgotten, unless it still holds something.
pub async fn forgets_consumers_that_hold_nothing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let first = scene.claim_one("leaving", LONG).await?;
    scene.backend.retire(&scene.group, "leaving").await?;
    ensure_eq("who holds something is left alone", scene.partition(0).await?.in_flight, 1)?;
    ensure_eq("and renews", scene.renew(&first.lease, LONG).await?, Settled::Done)?;
    scene.done(&first.lease, ack()).await?;
    scene.backend.retire(&scene.group, "leaving").await?;
    scene.backend.retire(&scene.group, "never-seen").await?;
    let parked = scene.claim_one("leaving", LONG).await?;
    scene.done(&parked.lease, retry(Duration::ZERO)).await?;
    scene.backend.retire(&scene.group, "leaving").await?;
    let rest = scene.claim_all("staying", 2).await?;
    let mut found = places(&rest);
    found.sort_unstable();
    ensure_eq("a farewell loses neither a parked nor a new event", found, vec![(0, 2), (0, 3)])?;
    scene.ack_all(&rest).await?;
    scene.ensure_drained().await
}
