//! Retries: parked until their time, in nobody's way (invariant 6).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::Store;
use super::kit::{
    LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, ensure_none, places, retry, sequences, until,
};
use crate::backend::PendingState;
use crate::outcome::{FailureKind, Verdict};

/// By how much a store's clock of whole milliseconds may seem early.
const CLOCK_SLACK: Duration = Duration::from_millis(5);

/// A retry is not claimable before its delay, and is after it, at the next attempt.
pub async fn waits_for_its_time(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let first = scene.claim_one("a", LONG).await?;
    let began = Instant::now();
    scene.done(&first.lease, retry(SHORT * 2)).await?;
    if store.moves_time() {
        store.pass(SHORT).await;
        scene.ensure_nothing("a parked event is not claimable before its time").await?;
        store.pass(SHORT * 2).await;
    }
    let second =
        until("a retry that is due is claimed", async || Ok(scene.claim("b", 1).await?.pop())).await?;
    ensure!(
        store.moves_time() || began.elapsed() + CLOCK_SLACK >= SHORT * 2,
        "a parked event is not claimable before its time: came after {:?}",
        began.elapsed()
    );
    ensure_eq("the same event comes back", &second.event, &first.event)?;
    ensure_eq("at the next attempt", second.lease.attempt, 2)?;
    ensure!(second.lease.id != first.lease.id, "under a new lease");
    scene.done(&second.lease, ack()).await?;
    scene.ensure_drained().await
}

/// A parked event keeps its place under the frontier, is not in flight, and holds nothing else up.
pub async fn blocks_nothing_else(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let first = scene.claim_one("a", LONG).await?;
    scene.done(&first.lease, retry(LONG)).await?;
    let rest = scene.claim("a", 10).await?;
    ensure_eq("the others are delivered", sequences(&rest), vec![2, 3])?;
    scene.ack_all(&rest).await?;
    scene.append(0, 2).await?;
    let later = scene.claim("a", 10).await?;
    ensure_eq("what comes later is delivered", sequences(&later), vec![4, 5])?;
    scene.ack_all(&later).await?;
    let state = scene.partition(0).await?;
    ensure_eq("parked, not in flight", (state.parked, state.in_flight), (1, 0))?;
    ensure_eq("the frontier stands before it", (state.frontier, state.lag()), (0, 5))?;
    scene.ensure_nothing("a parked event is not claimable before its time, sweep or not").await
}

/// The failure of a parked event is kept where it can be seen.
pub async fn keeps_its_failure(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let held = scene.claim_one("a", LONG).await?;
    let reason = "wasm trap: unreachable — größer\n".to_owned();
    let verdict = Verdict::Retry { delay: LONG, reason: reason.clone(), failure: FailureKind::Trap };
    scene.done(&held.lease, verdict).await?;
    let mut pending = scene.backend.pending(&scene.group, 0, None, 10).await?;
    let entry = pending.pop().context("a parked event is pending")?;
    ensure_eq("kind and reason of its failure", entry.failure, Some((FailureKind::Trap, reason)))?;
    ensure_eq("its attempts so far", entry.attempt, 1)?;
    let due = match entry.state {
        PendingState::Parked { due_in_ms } => due_in_ms,
        state @ PendingState::Leased { .. } => anyhow::bail!("a retry is parked: found {state:?}"),
    };
    let delay = i64::try_from(LONG.as_millis())?;
    ensure!(due > 0 && due <= delay, "its time is at most its delay away: {due} of {delay} ms");
    ensure_none("nothing else is pending", &pending)
}

/// A retry without delay is claimable at once, by an ordinary claim.
pub async fn comes_back_at_once_without_a_delay(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 2).await?;
    let held = scene.claim_all("a", 4).await?;
    for leased in &held {
        scene.done(&leased.lease, retry(Duration::ZERO)).await?;
    }
    let again = scene.claim_all("b", 4).await?;
    ensure!(again.iter().all(|l| l.lease.attempt == 2), "each is at its second attempt");
    scene.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// A retry that is due is found however many leases stand before and behind it.
pub async fn is_found_behind_many_live_leases(store: &dyn Store) -> Result<()> {
    const LIVE: usize = 320;
    let scene = Scene::with_events(store, 1, MANY, 2 * LIVE + 1).await?;
    let mut live = scene.claim_all("living", LIVE).await?;
    let held = scene.claim_one("a", LONG).await?;
    live.extend(scene.claim_all("living", LIVE).await?);
    scene.done(&held.lease, retry(SHORT)).await?;
    store.pass(SHORT * 2).await;
    let back = until("a due retry among live leases is claimed", async || {
        let claimed = scene.take(Take::by("b").limit(1)).await?;
        Ok(claimed.leased.into_iter().next())
    })
    .await?;
    ensure_eq("it is the retry that comes", places(&[back]), places(&[held]))?;
    scene.ack_all(&live).await?;
    ensure_eq("the rest settles around it", scene.partition(0).await?.frontier, LIVE as u64)
}
