//! The cap on attempts holds for every way to fail (invariant 5).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Store;
use super::kit::{LONG, SHORT, Scene, Take, ensure_eq, ensure_none, places, retry, until};
use crate::backend::{ClaimDeath, DeadLetter, Settled};
use crate::outcome::{Cause, FailureKind};

/// What a claim that kills an entry must say of it.
async fn ensure_exhausted(
    scene: &Scene,
    death: &ClaimDeath,
    attempts: u32,
    failure: FailureKind,
) -> Result<DeadLetter> {
    ensure_eq("the cause of death", death.cause, Cause::AttemptsExhausted)?;
    ensure!(!death.reason.is_empty(), "a death has a reason in words");
    let mut letters = scene.backend.dead_letters(&scene.group, None, 10).await?;
    let letter = letters.pop().context("a death at claim leaves a dead letter")?;
    ensure_none("one death leaves one dead letter", &letters)?;
    ensure_eq("the letter's cause", letter.cause, Some(Cause::AttemptsExhausted))?;
    ensure_eq("the letter's failure", letter.failure, Some(failure))?;
    ensure_eq("the letter's attempts", letter.attempts, Some(attempts))?;
    ensure_eq("the letter's reason", &letter.reason, &death.reason)?;
    Ok(letter)
}

/// An entry whose every lease runs out is delivered as often as the cap says, then is a dead
/// letter.
pub async fn are_capped_when_leases_run_out(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 3, 1).await?;
    let event = scene.claim_one("a", SHORT).await?.event;
    store.pass(SHORT * 2).await;
    let second = until("the second attempt", async || {
        Ok(scene.take(Take::by("b").lease(SHORT).sweep()).await?.leased.pop())
    })
    .await?;
    ensure_eq("the second attempt", second.lease.attempt, 2)?;
    store.pass(SHORT * 2).await;
    scene.until_suspects("c").await?;
    let last = scene.take_suspect("c", SHORT).await?;
    ensure_eq("the last attempt", last.lease.attempt, 3)?;
    store.pass(SHORT * 2).await;
    let death = scene.until_dead("d").await?;
    ensure_eq("the partition of who died", death.partition, 0)?;
    ensure_eq("the sequence of who died", death.sequence, Some(1))?;
    ensure_eq("the id of who died", death.event_id.as_ref(), Some(&event.id))?;
    ensure_exhausted(&scene, &death, 3, FailureKind::Expired).await?;
    ensure_eq(
        "the last holder is too late",
        scene.verdict(&last.lease, super::kit::ack()).await?,
        Settled::Stale,
    )?;
    scene.ensure_nothing("the dead are not delivered").await?;
    scene.ensure_drained().await
}

/// With a cap of one, one expiry is the end.
pub async fn are_capped_at_one(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 1, 2).await?;
    scene.claim_one("a", SHORT).await?;
    let second = scene.claim_one("a", LONG).await?;
    store.pass(SHORT * 2).await;
    let death = scene.until_dead("b").await?;
    ensure_eq("the sequence of who died", death.sequence, Some(1))?;
    ensure_exhausted(&scene, &death, 1, FailureKind::Expired).await?;
    let state = scene.partition(0).await?;
    ensure_eq("the frontier passes the dead", (state.frontier, state.in_flight), (1, 1))?;
    scene.done(&second.lease, super::kit::ack()).await?;
    scene.ensure_drained().await
}

/// An entry that is parked with its attempts used up dies when it comes back.
pub async fn are_capped_when_retries_come_back(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 2, 1).await?;
    for attempt in 1..=2 {
        let held = scene.claim_one("a", LONG).await?;
        ensure_eq("attempts by retry", held.lease.attempt, attempt)?;
        scene.done(&held.lease, retry(Duration::ZERO)).await?;
    }
    let death = scene.until_dead("a").await?;
    ensure_exhausted(&scene, &death, 2, FailureKind::Retry).await?;
    scene.ensure_drained().await
}

/// Retries and expiries count alike; a retry after an expiry ends the suspicion.
pub async fn count_each_kind_of_end(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 4, 1).await?;
    let first = scene.claim_one("a", LONG).await?;
    scene.done(&first.lease, retry(Duration::ZERO)).await?;
    let second = scene.claim_one("a", SHORT).await?;
    store.pass(SHORT * 2).await;
    let third = scene.reclaim("b").await?;
    let attempts = (first.lease.attempt, second.lease.attempt, third.lease.attempt);
    ensure_eq("each delivery counts once", attempts, (1, 2, 3))?;
    scene.done(&third.lease, retry(Duration::ZERO)).await?;
    let last = scene.take(Take::by("c").lease(SHORT)).await?;
    ensure!(!last.suspects, "an event that was retried is no suspect");
    ensure_eq("the last attempt is an ordinary one", places(&last.leased), vec![(0, 1)])?;
    store.pass(SHORT * 2).await;
    let death = scene.until_dead("d").await?;
    ensure_exhausted(&scene, &death, 4, FailureKind::Expired).await?;
    scene.ensure_drained().await
}
