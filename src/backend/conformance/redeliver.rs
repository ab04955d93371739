//! Redelivering settled events of the log.

use anyhow::{Result, ensure};

use super::Store;
use super::control_kit::{ensure_afresh, events};
use super::kit::{LONG, MANY, Scene, ack, ensure_eq, ensure_none, reject, retry, sequences};
use crate::backend::Redriven::{Done, Gone, Underway};
use crate::backend::{Error, Held, REDRIVE_BATCH_MAX, Start, Trim};
use crate::event::NUMBER_MAX;

/// Each event has its own answer, in the order given: settled, under way, gone.
pub async fn answers_each_event_in_order(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 6).await?;
    let held = scene.claim_all("a", 12).await?;
    let (mine, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|l| l.event.partition == 0);
    scene.ack_all(&others).await?;
    scene.ack_all(&mine[..2]).await?;
    scene.done(&mine[2].lease, reject()).await?;
    scene.done(&mine[4].lease, retry(LONG)).await?;
    scene.done(&mine[5].lease, ack()).await?;
    scene.append(0, 1).await?;
    // Of partition 0: 1 and 2 acked, 3 dead, 4 leased, 5 parked, 6 acked, 7 new.
    let redeliver = async |events: &[(u32, u64)]| scene.backend.redeliver(&scene.group, events).await;
    let found = redeliver(&[(0, 6), (0, 1), (1, 4), (0, 3), (0, 1)]).await?;
    ensure_eq("what is settled is delivered again, once", found, vec![Done, Done, Done, Done, Underway])?;
    let found = redeliver(&[(0, 4), (0, 5), (0, 7), (0, 6)]).await?;
    ensure_eq("what is not is under way", found, vec![Underway; 4])?;
    let found = redeliver(&[(0, 8), (0, 0), (1, 7), (0, NUMBER_MAX), (0, u64::MAX)]).await?;
    ensure_eq("what is not there is gone", found, vec![Gone; 5])?;
    ensure_none("an empty batch has no answers", &redeliver(&[]).await?)?;
    let state = scene.partition(0).await?;
    let counts = (state.frontier, state.in_flight, state.parked, state.redriven);
    ensure_eq("it waits, and the frontier stays", counts, (3, 1, 4, 3))?;
    ensure_eq("a dead letter stays", scene.rows().await?.len(), 1)?;
    let again = scene.claim_all("b", 5).await?;
    ensure_afresh(&again)?;
    let mut log = scene.log(0).await?;
    log.extend(scene.log(1).await?);
    log.retain(|e| [(0, 1), (0, 3), (0, 6), (0, 7), (1, 4)].contains(&(e.partition, e.sequence)));
    ensure_eq("the same events", events(&again), log)?;
    scene.ensure_nothing("each once").await
}

/// It settles, dies and waits like what was redriven, and holds a trim.
pub async fn behaves_like_a_redrive(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.claim_all("a", 4).await?;
    scene.ack_all(&held).await?;
    let redriven = scene.backend.redeliver(&scene.group, &[(0, 2), (0, 3)]).await?;
    ensure_eq("both are redelivered", redriven, vec![Done, Done])?;
    let trimmed = scene.trim(Trim { until: Some(4), ..Trim::default() }).await?;
    let expected = Held { group: scene.group.group.clone(), sequence: 2 };
    ensure_eq("a trim stops before it", (trimmed.removed, trimmed.held), (1, Some(expected)))?;
    let again = scene.claim_all("b", 2).await?;
    ensure_eq("both come", sequences(&again), vec![2, 3])?;
    scene.done(&again[0].lease, reject()).await?;
    scene.done(&again[1].lease, retry(std::time::Duration::ZERO)).await?;
    let next = scene.claim_only("b").await?;
    ensure_eq("at its next attempt", (next.event.sequence, next.lease.attempt), (3, 2))?;
    scene.done(&next.lease, ack()).await?;
    let state = scene.partition(0).await?;
    ensure_eq("all is settled", (state.frontier, state.redriven, state.in_flight), (4, 0, 0))?;
    scene.redrive_all().await?;
    let last = scene.claim_only("b").await?;
    ensure_eq("the dead one is redriven", &last.event, &held[1].event)?;
    scene.done(&last.lease, ack()).await?;
    scene.ensure_drained().await
}

/// An event that was trimmed is gone.
pub async fn finds_nothing_that_was_trimmed(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.claim_all("a", 4).await?;
    scene.ack_all(&held).await?;
    scene.cut(0, 2).await?;
    let found = scene.backend.redeliver(&scene.group, &[(0, 1), (0, 2), (0, 3)]).await?;
    ensure_eq("what was trimmed is gone", found, vec![Gone, Gone, Done])?;
    let again = scene.claim_only("b").await?;
    ensure_eq("the rest comes", again.event.sequence, 3)
}

/// A batch has a bound.
pub async fn takes_a_batch_up_to_its_bound(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, REDRIVE_BATCH_MAX + 1).await?;
    let held = scene.claim_all("a", REDRIVE_BATCH_MAX + 1).await?;
    scene.ack_all(&held).await?;
    let all: Vec<(u32, u64)> = (1..).map(|sequence| (0, sequence)).take(held.len()).collect();
    let refused = scene.backend.redeliver(&scene.group, &all).await;
    ensure_err!(
        "one event too many",
        refused,
        Error::BatchTooLarge { items, max: REDRIVE_BATCH_MAX } if items == REDRIVE_BATCH_MAX + 1
    );
    ensure_eq("a refused batch redelivers nothing", scene.partition(0).await?.redriven, 0)?;
    let redriven = scene.backend.redeliver(&scene.group, &all[1..]).await?;
    ensure_eq("the largest batch", redriven, vec![Done; REDRIVE_BATCH_MAX])?;
    ensure_eq("all of it waits", scene.partition(0).await?.redriven, REDRIVE_BATCH_MAX as u64)
}

/// A missing stream, group or partition is an error, and redelivers nothing.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 2).await?;
    let other = scene.with_group("others", MANY, Start::End).await?;
    let held = scene.claim_all("a", 4).await?;
    scene.ack_all(&held).await?;
    let (nowhere, nobody) = scene.absent()?;
    let redriven = scene.backend.redeliver(&nowhere, &[(0, 1)]).await;
    ensure_err!("redelivery on a missing stream", redriven, Error::StreamNotFound(_));
    let redriven = scene.backend.redeliver(&nobody, &[(0, 1)]).await;
    ensure_err!("redelivery in a missing group", redriven, Error::GroupNotFound(_));
    let redriven = scene.backend.redeliver(&scene.group, &[(0, 1), (2, 1)]).await;
    ensure_err!(
        "redelivery in a missing partition",
        redriven,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    let waiting: u64 = scene.info().await?.partitions.iter().map(|p| p.redriven).sum();
    ensure_eq("a refused batch redelivers nothing", waiting, 0)?;
    let skipped = other.backend.redeliver(&other.group, &[(0, 1)]).await?;
    ensure!(skipped == [Done], "what a group began behind can be had: found {skipped:?}");
    let first = other.claim_only("a").await?;
    ensure_eq("and comes", (first.event.sequence, first.lease.attempt), (1, 1))?;
    other.done(&first.lease, ack()).await?;
    other.ensure_drained().await
}
