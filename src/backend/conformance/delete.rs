//! Deleting a group: it goes whole, and its name is free.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Store;
use super::control_kit::ensure_afresh;
use super::kit::{
    LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, ensure_none, reject, retry, sequences, settlement,
};
use crate::backend::RewindKind::Delete;
use crate::backend::{Error, NewGroup, Redriven, Rewind, SettleRequest, Start};

/// A group with leases, parked and dead events, a redriven one, and a lease of it.
async fn full_of_state(store: &dyn Store) -> Result<(Scene, crate::event::Lease)> {
    let scene = Scene::with_events(store, 2, 3, 6).await?;
    let held = scene.claim_all("a", 10).await?;
    let (first, rest) = (&held[0], &held[1..]);
    scene.done(&rest[0].lease, retry(LONG)).await?;
    scene.done(&rest[1].lease, retry(Duration::ZERO)).await?;
    scene.done(&rest[2].lease, reject()).await?;
    scene.redrive_all().await?;
    scene.done(&rest[3].lease, reject()).await?;
    scene.done(&rest[4].lease, ack()).await?;
    Ok((scene, first.lease.clone()))
}

/// A deleted group is gone for every method; the stream and its other groups stay.
pub async fn takes_everything_of_the_group(store: &dyn Store) -> Result<()> {
    let (scene, lease) = full_of_state(store).await?;
    let (backend, group) = (&scene.backend, &scene.group);
    let other = scene.with_group("others", MANY, Start::Beginning).await?;
    let theirs = other.claim_all("a", 12).await?;
    let log = scene.log(0).await?;
    scene.rewind(Delete, &[]).await?;
    let groups = backend.groups(&group.stream).await?;
    ensure_eq("it is listed no longer", groups, vec![other.group.group.clone()])?;
    ensure_err!("its info", backend.group_info(group).await, Error::GroupNotFound(g) if g == *group);
    let letters = backend.dead_letters(group, None, 10).await;
    ensure_err!("its dead letters", letters, Error::GroupNotFound(_));
    ensure_err!("its pending", backend.pending(group, 0, None, 10).await, Error::GroupNotFound(_));
    let settlements = [settlement(&lease, ack())];
    let request = SettleRequest { group, consumer: "a", settlements: &settlements };
    ensure_err!("its settlements", backend.settle(&request).await, Error::GroupNotFound(_));
    let renewed = backend.renew(group, std::slice::from_ref(&lease), LONG).await;
    ensure_err!("its renewals", renewed, Error::GroupNotFound(_));
    ensure_err!("its heal", backend.heal(group, 0).await, Error::GroupNotFound(_));
    let taken = scene.take(Take::by("b").sweep()).await;
    ensure!(taken.is_err(), "a deleted group gives nothing: found {taken:?}");
    ensure_err!("its second deletion", scene.begin(Delete, &[]).await, Error::GroupNotFound(_));
    ensure_eq("the log is as it was", scene.log(0).await?, log)?;
    other.ack_all(&theirs).await?;
    other.ensure_drained().await
}

/// A group of the same name begins with nothing of the old one.
pub async fn frees_the_name(store: &dyn Store) -> Result<()> {
    let (scene, lease) = full_of_state(store).await?;
    scene.rewind(Delete, &[]).await?;
    let new = NewGroup { max_attempts: 7, start: Start::Beginning };
    scene.backend.create_group(&scene.group, new).await?;
    let info = scene.info().await?;
    ensure_eq("attempts and dead letters are its own", (info.max_attempts, info.dead_letters), (7, 0))?;
    ensure_eq("no rewind is under way", info.rewind, None)?;
    for state in info.partitions {
        let counts = (state.frontier, state.in_flight, state.parked, state.redriven, state.missing);
        ensure_eq("nothing is left of the old group", counts, (0, 0, 0, 0, 0))?;
        let pending = scene.backend.pending(&scene.group, state.partition, None, 10).await?;
        ensure_none("nor pending", &pending)?;
    }
    ensure_none("it has no dead letters", &scene.letters().await?)?;
    scene.ensure_stale(&lease).await?;
    let all = scene.claim_all("b", 12).await?;
    ensure_afresh(&all)?;
    scene.ensure_nothing("each event comes once").await?;
    scene.ensure_stale(&lease).await?;
    scene.ack_all(&all).await?;
    scene.ensure_drained().await
}

/// While a deletion is under way the group gives nothing and takes nothing; any handle finishes
/// it.
pub async fn is_finished_by_any_handle(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2500).await?;
    let held = scene.claim_all("a", 2000).await?;
    scene.begin(Delete, &[]).await?;
    let other = scene.through(store.other().await?);
    ensure_eq("it is under way", other.info().await?.rewind, Some(Delete))?;
    other.ensure_stale(&held[0].lease).await?;
    let rows = other.backend.redeliver(&scene.group, &[(0, 1)]).await;
    ensure_err!("a redelivery meanwhile", rows, Error::RewindUnderWay(_));
    let steps = other.finish().await?;
    ensure!(steps.len() > 1, "so many entries take more than one step");
    ensure_none("the group is gone", &other.backend.groups(&scene.group.stream).await?)?;
    let step = scene.backend.continue_rewind(&scene.group).await?;
    ensure!(step.finished, "a group that is gone has finished: found {step:?}");
    Ok(())
}

/// Claims alone finish a deletion that was left half done, and then find no group.
pub async fn is_finished_by_claims_alone(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 5).await?;
    scene.claim_all("a", 6).await?;
    scene.begin(Delete, &[]).await?;
    super::kit::until("claims finish the deletion", async || {
        match scene.backend.groups(&scene.group.stream).await?.as_slice() {
            [] => Ok(Some(())),
            _ => match scene.take(Take::by("b").lease(SHORT)).await {
                Ok(claimed) => {
                    ensure_none("a group that is being deleted gives nothing", &sequences(&claimed.leased))?;
                    Ok(None)
                }
                Err(error) if error.downcast_ref().is_some_and(|e| matches!(e, Error::GroupNotFound(_))) => {
                    Ok(None)
                }
                Err(error) => Err(error),
            },
        }
    })
    .await
}

/// A deletion of what is not there is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let (nowhere, nobody) = scene.absent()?;
    let delete = Rewind { kind: Delete, to: [].into() };
    let begun = scene.backend.begin_rewind(&nowhere, &delete).await;
    ensure_err!("deletion on a missing stream", begun, Error::StreamNotFound(_));
    let begun = scene.backend.begin_rewind(&nobody, &delete).await;
    ensure_err!("deletion of a missing group", begun, Error::GroupNotFound(_));
    let held = scene.claim_all("a", 2).await?;
    scene.reject_all(&held).await?;
    let redriven = scene.backend.redrive(&scene.group, &scene.rows().await?).await?;
    ensure_eq("the group itself is well", redriven, vec![Redriven::Done; 2])
}
