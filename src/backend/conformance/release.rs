//! Handing back: a graceful shutdown burns no attempt (invariant 5).

use anyhow::{Result, ensure};

use super::Store;
use super::kit::{
    LONG, MANY, SHORT, Scene, ack, ensure_eq, ensure_none, places, retry, sequences, settlement,
};
use crate::backend::Settled;
use crate::outcome::Verdict;

/// A released event comes back at the same attempt, however often.
pub async fn gives_the_attempt_back(store: &dyn Store) -> Result<()> {
    // With a cap of 2, a release that counted would end in a dead letter or a suspect.
    let scene = Scene::with_events(store, 1, 2, 1).await?;
    for _ in 0..4 {
        let held = scene.claim_one("a", LONG).await?;
        ensure_eq("a released attempt does not count", held.lease.attempt, 1)?;
        scene.done(&held.lease, Verdict::Release).await?;
        let late = scene.verdict(&held.lease, ack()).await?;
        ensure_eq("who released holds nothing any more", late, Settled::Stale)?;
    }
    let held = scene.claim_one("a", LONG).await?;
    scene.done(&held.lease, ack()).await?;
    ensure_eq("nothing died of it", scene.info().await?.dead_letters, 0)?;
    scene.ensure_drained().await
}

/// Released events are claimable at once by anyone, beside what is new, and are not in flight.
pub async fn is_claimable_at_once(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 3).await?;
    let other = scene.through(store.other().await?);
    let held = scene.claim_all("a", 6).await?;
    let batch: Vec<_> = held.iter().map(|l| settlement(&l.lease, Verdict::Release)).collect();
    ensure_eq("releases are taken", scene.settle("a", &batch).await?, vec![Settled::Done; 6])?;
    ensure_eq("what is released is not in flight", scene.partition(0).await?.in_flight, 0)?;
    scene.append(0, 1).await?;
    let again = other.claim_all("b", 7).await?;
    let mut found = places(&again);
    found.sort_unstable();
    let expected = vec![(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3)];
    ensure_eq("released and new events are claimed", found, expected)?;
    ensure_none("each once", &sequences(&scene.claim("a", 10).await?))?;
    ensure!(again.iter().all(|l| l.lease.attempt == 1), "none of them has burnt an attempt");
    other.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// A release gives back its own attempt, not those before it.
pub async fn keeps_earlier_attempts(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let first = scene.claim_one("a", LONG).await?;
    scene.done(&first.lease, retry(std::time::Duration::ZERO)).await?;
    let second = scene.claim_one("a", SHORT).await?;
    ensure_eq("the retry counts", second.lease.attempt, 2)?;
    store.pass(SHORT * 2).await;
    let third = scene.reclaim("b").await?;
    ensure_eq("the expiry counts", third.lease.attempt, 3)?;
    scene.done(&third.lease, Verdict::Release).await?;
    let again = scene.claim_one("b", LONG).await?;
    ensure_eq("the release does not", again.lease.attempt, 3)?;
    scene.done(&again.lease, ack()).await?;
    scene.ensure_drained().await
}
