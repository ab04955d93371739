//! An entry that may have killed its consumer runs its last attempt alone (invariant 5).

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Store;
use super::kit::{LONG, SHORT, Scene, Take, ack, ensure_eq, ensure_none, places, retry, sequences};
use crate::backend::{PendingState, Settled};
use crate::event::Leased;
use crate::outcome::{Cause, Effects, Verdict};
use crate::state::{Bucket, StateWrite};

/// A stream whose first `count` events have let one lease run out, with a cap of two.
async fn with_suspects(store: &dyn Store, count: usize, events: usize) -> Result<(Scene, Vec<Leased>)> {
    let scene = Scene::with_events(store, 1, 2, events).await?;
    let dying = scene.take(Take::by("dying").limit(count).lease(SHORT)).await?.leased;
    ensure_eq("the first events are claimed", dying.len(), count)?;
    store.pass(SHORT * 2).await;
    Ok((scene, dying))
}

/// Suspects are passed over by ordinary claims, which say so, and are taken when asked for alone.
pub async fn are_passed_over_and_taken_alone(store: &dyn Store) -> Result<()> {
    let (scene, _) = with_suspects(store, 1, 4).await?;
    let others = scene.claim_all("a", 3).await?;
    ensure_eq("the others are delivered", sequences(&others), vec![2, 3, 4])?;
    scene.ack_all(&others).await?;
    scene.until_suspects("a").await?;
    let suspect = scene.take_suspect("a", LONG).await?;
    ensure_eq("the suspect, at its last attempt", (suspect.event.sequence, suspect.lease.attempt), (1, 2))?;
    scene.done(&suspect.lease, ack()).await?;
    let after = scene.take(Take::by("a").sweep()).await?;
    ensure!(!after.suspects, "a settled suspect is reported no longer");
    scene.ensure_drained().await
}

/// Each claim takes one suspect, and nothing else.
pub async fn come_one_at_a_time(store: &dyn Store) -> Result<()> {
    let (scene, dying) = with_suspects(store, 3, 5).await?;
    let others = scene.claim_all("a", 2).await?;
    ensure_eq("the others are delivered", sequences(&others), vec![4, 5])?;
    // A sweep is one step: ask until all three are taken.
    let mut suspects = Vec::new();
    for _ in 0..dying.len() {
        scene.until_suspects("a").await?;
        let taken = scene.take_suspect("a", LONG).await?;
        scene.append(0, 1).await?;
        let new = scene.claim_all("a", 1).await?;
        ensure!(new[0].event.sequence > 5, "new events come beside suspects: found {:?}", places(&new));
        suspects.push(taken);
    }
    suspects.sort_by_key(|l| l.event.sequence);
    ensure_eq("each suspect is taken once", sequences(&suspects), vec![1, 2, 3])?;
    let none = scene.take(Take::by("a").alone()).await?;
    ensure_none("then there is none", &places(&none.leased))?;
    scene.ack_all(&suspects).await?;
    ensure_eq("they settle like any other", scene.partition(0).await?.frontier, 3)
}

/// A suspect whose last lease runs out too is a dead letter, its neighbours are not.
pub async fn die_of_a_second_expiry(store: &dyn Store) -> Result<()> {
    let (scene, _) = with_suspects(store, 1, 3).await?;
    let others = scene.claim_all("a", 2).await?;
    scene.until_suspects("a").await?;
    scene.take_suspect("a", SHORT).await?;
    store.pass(SHORT * 2).await;
    let death = scene.until_dead("b").await?;
    ensure_eq("the suspect dies", (death.sequence, death.cause), (Some(1), Cause::AttemptsExhausted))?;
    ensure_eq("alone", scene.info().await?.dead_letters, 1)?;
    scene.ack_all(&others).await?;
    scene.ensure_drained().await
}

/// A suspect that is handed back is a suspect still, at the same attempt.
pub async fn stay_suspects_when_released(store: &dyn Store) -> Result<()> {
    let (scene, _) = with_suspects(store, 1, 1).await?;
    for _ in 0..3 {
        scene.until_suspects("a").await?;
        let suspect = scene.take_suspect("a", LONG).await?;
        ensure_eq("a released suspect keeps its last attempt", suspect.lease.attempt, 2)?;
        scene.done(&suspect.lease, Verdict::Release).await?;
        ensure_released(&scene).await?;
        // Found again it is still in no one's hands.
        scene.until_suspects("b").await?;
        ensure_released(&scene).await?;
    }
    let suspect = scene.take_suspect("a", LONG).await?;
    scene.done(&suspect.lease, ack()).await?;
    scene.ensure_drained().await
}

/// The only event is under no lease.
async fn ensure_released(scene: &Scene) -> Result<()> {
    ensure_eq("a released suspect is not in flight", scene.partition(0).await?.in_flight, 0)?;
    let pending = scene.backend.pending(&scene.group, 0, None, 10).await?;
    let [entry] = &pending[..] else { anyhow::bail!("a released suspect is pending: found {pending:?}") };
    let parked = matches!(entry.state, PendingState::Parked { .. });
    ensure!(parked, "a released suspect waits for whoever takes it: found {entry:?}");
    Ok(())
}

/// A claim for suspects looks into the partitions that it names.
pub async fn are_taken_from_the_partitions_named(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, 2, 1).await?;
    let dying = scene.take(Take::by("dying").partitions(&[1]).lease(SHORT)).await?.leased;
    ensure_eq("an event of partition 1 is claimed", places(&dying), vec![(1, 1)])?;
    store.pass(SHORT * 2).await;
    let first = scene.take(Take::by("a").partitions(&[0]).sweep()).await?;
    ensure_eq("partition 0 is served", places(&first.leased), vec![(0, 1)])?;
    scene.until_suspects("a").await?;
    let none = scene.take(Take::by("a").partitions(&[0]).alone()).await?;
    ensure_none("a suspect of another partition stays", &places(&none.leased))?;
    let ordinary = scene.take(Take::by("a").partitions(&[0]).sweep()).await?;
    ensure!(!ordinary.suspects, "suspects are reported for the partitions that a claim names");
    let suspect = scene.take(Take::by("a").partitions(&[1]).alone()).await?;
    ensure_eq("it is taken from its own", places(&suspect.leased), vec![(1, 1)])
}

/// Only an expiry just before the last attempt makes a suspect.
pub async fn need_an_expiry_just_before(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 3, 1).await?;
    scene.claim_one("a", SHORT).await?;
    store.pass(SHORT * 2).await;
    let second = scene.reclaim("a").await?;
    ensure_eq("the middle attempt is an ordinary one", second.lease.attempt, 2)?;
    scene.done(&second.lease, retry(Duration::ZERO)).await?;
    let none = scene.take(Take::by("a").alone()).await?;
    ensure_none("who failed in good order is no suspect", &places(&none.leased))?;
    let last = scene.take(Take::by("a").sweep()).await?;
    ensure!(!last.suspects, "who failed in good order is not reported");
    let attempts: Vec<u32> = last.leased.iter().map(|l| l.lease.attempt).collect();
    ensure_eq("its last attempt is an ordinary one", attempts, vec![3])
}

/// Until a suspect is taken, its old holder settles or renews it as ever.
pub async fn still_settle_for_their_holder(store: &dyn Store) -> Result<()> {
    let (scene, dying) = with_suspects(store, 3, 3).await?;
    scene.until_suspects("a").await?;
    let [first, second, third] = &dying[..] else { anyhow::bail!("three leases ran out: found {dying:?}") };
    ensure_eq("renewal of a suspect", scene.renew(&first.lease, LONG).await?, Settled::Done)?;
    scene.done(&second.lease, ack()).await?;
    let write = StateWrite { bucket: Bucket::own("p", "b")?, key: "k".to_owned(), value: Some(vec![1]) };
    let effects = Effects { writes: vec![write], ..Effects::default() };
    scene.done(&third.lease, Verdict::Ack(effects)).await?;
    let after = scene.take(Take::by("a").sweep()).await?;
    ensure!(!after.suspects, "a suspect that was renewed or settled is reported no longer");
    let none = scene.take(Take::by("a").alone()).await?;
    ensure_none("a suspect that was renewed or settled is not taken", &places(&none.leased))?;
    scene.ensure_nothing("nor delivered").await?;
    scene.done(&first.lease, ack()).await?;
    scene.ensure_drained().await
}
