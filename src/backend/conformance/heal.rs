//! Healing leaves alone what is well.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Store;
use super::kit::{
    LONG, MANY, SHORT, Scene, ack, ensure_eq, ensure_none, reject, retry, sequences, settlement,
};
use crate::backend::RewindKind::{Replay, Reset};
use crate::backend::{Error, GroupInfo, Start, Trim};
use crate::event::Leased;
use crate::outcome::Verdict;

/// More steps than a walk through so little takes.
const STEPS: usize = 6;

/// What healing may not change.
async fn state(scene: &Scene) -> Result<(GroupInfo, Vec<(Option<u64>, u32)>, usize)> {
    let mut pending = Vec::new();
    for partition in &scene.partitions {
        let entries = scene.backend.pending(&scene.group, *partition, None, 1000).await?;
        pending.extend(entries.iter().map(|e| (e.sequence, e.attempt)));
    }
    Ok((scene.info().await?, pending, scene.letters().await?.len()))
}

/// Nothing is found, and nothing changed, by any handle.
async fn ensure_well(store: &dyn Store, scene: &Scene, moment: &str) -> Result<()> {
    let before = state(scene).await?;
    for handle in [store.backend(), store.other().await?] {
        for partition in &scene.partitions {
            for _ in 0..STEPS {
                let repairs = handle.heal(&scene.group, *partition).await?;
                ensure_none(&format!("nothing is to be mended {moment}"), &repairs)?;
            }
        }
    }
    ensure_eq(&format!("healing changes nothing {moment}"), state(scene).await?, before)
}

/// While events are delivered and settled in every way.
pub async fn finds_nothing_while_events_are_handled(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, MANY).await?;
    ensure_well(store, &scene, "in an empty stream").await?;
    scene.append(0, 8).await?;
    ensure_well(store, &scene, "before the first delivery").await?;
    let held = scene.claim("a", 7).await?;
    ensure_well(store, &scene, "under leases").await?;
    scene.done(&held[1].lease, ack()).await?;
    scene.done(&held[3].lease, reject()).await?;
    ensure_well(store, &scene, "with events settled out of order").await?;
    scene.done(&held[2].lease, retry(LONG)).await?;
    scene.done(&held[4].lease, retry(Duration::ZERO)).await?;
    scene.done(&held[5].lease, Verdict::Release).await?;
    ensure_well(store, &scene, "with events parked and released").await?;
    scene.renew(&held[0].lease, SHORT).await?;
    store.pass(SHORT * 2).await;
    ensure_well(store, &scene, "with a lease that ran out").await?;
    scene.done(&held[0].lease, ack()).await?;
    ensure_eq("an expired lease settles after it", scene.partition(0).await?.frontier, 2)?;
    let rest = scene.claim_all("b", 3).await?;
    ensure_eq("all is delivered after it", sequences(&rest), vec![5, 6, 8])?;
    scene.ack_all(&rest).await?;
    scene.done(&held[6].lease, ack()).await?;
    ensure_well(store, &scene, "with one event left").await?;
    let late = scene.with_group("late", MANY, Start::End).await?;
    ensure_well(store, &late, "in a group that began at the end").await
}

/// While dead letters are redriven.
pub async fn finds_nothing_while_events_are_redriven(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 5).await?;
    let held = scene.claim_all("a", 4).await?;
    scene.reject_all(&held[..3]).await?;
    scene.redrive_all().await?;
    ensure_well(store, &scene, "with redriven events that wait").await?;
    let again: Vec<Leased> = scene.claim_all("b", 4).await?;
    ensure_well(store, &scene, "with redriven events under lease").await?;
    scene.done(&again[0].lease, retry(LONG)).await?;
    scene.done(&again[1].lease, ack()).await?;
    scene.done(&again[2].lease, reject()).await?;
    ensure_well(store, &scene, "with redriven events settled and parked").await?;
    scene.ack_all(&[held[3].clone(), again[3].clone()]).await?;
    ensure_well(store, &scene, "with a redriven event left").await
}

/// While a group is moved, and its log trimmed.
pub async fn finds_nothing_while_groups_are_moved(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 9).await?;
    let held = scene.claim_all("a", 14).await?;
    scene.ack_all(&held[..6]).await?;
    scene.begin(Replay, &[(0, 4), (1, 2)]).await?;
    let mut finished = false;
    while !finished {
        ensure_well(store, &scene, "while a replay is under way").await?;
        finished = scene.backend.continue_rewind(&scene.group).await?.finished;
    }
    ensure_well(store, &scene, "after a replay").await?;
    scene.rewind(Reset, &[(0, 5)]).await?;
    ensure_well(store, &scene, "after a reset").await?;
    scene.rewind(Reset, &[(1, 9)]).await?;
    ensure_well(store, &scene, "after a reset to the end").await?;
    for partition in 0..2 {
        scene.trim(Trim { partition, max_length: Some(2), ..Trim::default() }).await?;
    }
    ensure_well(store, &scene, "after a trim").await?;
    let rest = scene.claim_all("b", 4).await?;
    let batch: Vec<_> = rest.iter().rev().map(|l| settlement(&l.lease, ack())).collect();
    scene.settle("b", &batch).await?;
    ensure_well(store, &scene, "when all is done").await?;
    scene.ensure_drained().await?;
    let early = scene.with_group("early", MANY, Start::Beginning).await?;
    ensure_well(store, &early, "in a group that began on a trimmed log").await
}

/// A missing stream, group or partition is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, MANY).await?;
    let (nowhere, nobody) = scene.absent()?;
    let heal = async |group, partition| scene.backend.heal(group, partition).await;
    ensure_err!("heal on a missing stream", heal(&nowhere, 0).await, Error::StreamNotFound(_));
    ensure_err!("heal of a missing group", heal(&nobody, 0).await, Error::GroupNotFound(_));
    let healed = heal(&scene.group, 2).await;
    ensure_err!(
        "heal of a missing partition",
        healed,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    ensure!(heal(&scene.group, 1).await?.is_empty(), "an empty partition is well");
    Ok(())
}
