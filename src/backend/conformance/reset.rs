//! Reset: the group stands as if it had been created at the position.

use std::time::Duration;

use anyhow::Result;

use super::Store;
use super::control_kit::{ensure_afresh, events};
use super::kit::{LONG, MANY, SHORT, Scene, Take, ensure_eq, ensure_none, retry, sequences};
use crate::backend::RewindKind::Reset;
use crate::backend::{Error, Start};
use crate::event::NUMBER_MAX;

/// Of a partition: an acked event, a leased, a parked, an expired one, then new ones.
async fn of_all_kinds(store: &dyn Store) -> Result<Scene> {
    let scene = Scene::with_events(store, 2, MANY, 4).await?;
    for partition in 0..2 {
        let partitions = [partition];
        let take = Take::by("a").partitions(&partitions);
        let held = scene.take(take.limit(4)).await?.leased;
        scene.ack_all(&held[..1]).await?;
        scene.done(&held[2].lease, retry(LONG)).await?;
        scene.done(&held[3].lease, retry(Duration::ZERO)).await?;
        let again = scene.take(take.limit(1).lease(SHORT)).await?.leased;
        ensure_eq("the retry comes back", sequences(&again), vec![4])?;
        scene.append(partition, 3).await?;
    }
    store.pass(SHORT * 2).await;
    Ok(scene)
}

/// To the beginning: everything is delivered again, all that was pending is dropped.
pub async fn begins_again(store: &dyn Store) -> Result<()> {
    let scene = of_all_kinds(store).await?;
    ensure_eq("what was pending is dropped", scene.rewind(Reset, &[(0, 0), (1, 0)]).await?, 6)?;
    let info = scene.info().await?;
    ensure_eq("the rewind is over", info.rewind, None)?;
    let states: Vec<_> = info.partitions.iter().map(|p| (p.frontier, p.in_flight, p.parked)).collect();
    ensure_eq("nothing is left of before", states, vec![(0, 0, 0); 2])?;
    ensure_none("nor pending", &scene.backend.pending(&scene.group, 0, None, 10).await?)?;
    let again = scene.claim_all("b", 14).await?;
    ensure_afresh(&again)?;
    let mut log = scene.log(0).await?;
    log.extend(scene.log(1).await?);
    ensure_eq("everything comes", events(&again), log)?;
    scene.ensure_nothing("each once").await?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// To the end: nothing is left to do but what is appended then.
pub async fn skips_to_the_end(store: &dyn Store) -> Result<()> {
    let scene = of_all_kinds(store).await?;
    ensure_eq("what was pending is dropped", scene.rewind(Reset, &[(0, 7), (1, NUMBER_MAX)]).await?, 6)?;
    scene.ensure_drained().await?;
    scene.ensure_nothing("what was there is not delivered").await?;
    scene.append(0, 1).await?;
    scene.append(1, 1).await?;
    let new = scene.claim_all("b", 2).await?;
    ensure_eq("what comes then is", sequences(&new), vec![8, 8])?;
    scene.ack_all(&new).await?;
    scene.ensure_drained().await
}

/// Behind a sequence: what is at or below it is settled, whatever it was.
pub async fn goes_behind_a_sequence(store: &dyn Store) -> Result<()> {
    let scene = of_all_kinds(store).await?;
    ensure_eq("all of it is dropped", scene.rewind(Reset, &[(0, 3)]).await?, 3)?;
    let state = scene.partition(0).await?;
    let counts = (state.frontier, state.in_flight, state.parked);
    ensure_eq("the frontier stands at the position", counts, (3, 0, 0))?;
    let state = scene.partition(1).await?;
    let counts = (state.frontier, state.in_flight, state.parked);
    ensure_eq("the other partition is as it was", counts, (1, 2, 1))?;
    let again = scene.take(Take::by("b").partitions(&[0])).await?.leased;
    ensure_eq("what is above comes", sequences(&again), vec![4, 5, 6, 7])?;
    ensure_afresh(&again)?;
    scene.ack_all(&again).await?;
    ensure_eq("and moves the frontier", scene.partition(0).await?.frontier, 7)
}

/// All leases of its partitions are stale, at the position, above and below.
pub async fn makes_every_lease_stale(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.claim("a", 4).await?;
    scene.rewind(Reset, &[(0, 2)]).await?;
    for leased in &held {
        scene.ensure_stale(&leased.lease).await?;
    }
    let again = scene.claim_all("b", 2).await?;
    ensure_eq("what is above comes", sequences(&again), vec![3, 4])?;
    for leased in &held {
        scene.ensure_stale(&leased.lease).await?;
    }
    scene.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// Dead letters survive, and other groups.
pub async fn leaves_dead_letters_and_other_groups(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let other = scene.with_group("others", MANY, Start::Beginning).await?;
    let theirs = other.claim("a", 3).await?;
    let before = other.info().await?;
    let held = scene.claim("a", 4).await?;
    scene.reject_all(&held[1..3]).await?;
    let letters = scene.letters().await?;
    for position in [0, 4, 2] {
        scene.rewind(Reset, &[(0, position)]).await?;
        ensure_eq("dead letters survive", scene.letters().await?, letters.clone())?;
        ensure_eq("and are counted", scene.info().await?.dead_letters, 2)?;
    }
    ensure_eq("another group is as it was", other.info().await?, before)?;
    other.ack_all(&theirs).await?;
    ensure_eq("its frontier moves", other.partition(0).await?.frontier, 3)
}

/// To before what was trimmed: as a group that is created there.
pub async fn reaches_the_end_of_a_trimmed_stream(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 5).await?;
    scene.cut(0, 3).await?;
    scene.cut(1, 5).await?;
    for _ in 0..2 {
        scene.rewind(Reset, &[(0, 1), (1, 0)]).await?;
        let again = scene.claim_all("b", 2).await?;
        ensure_eq("what is left comes", sequences(&again), vec![4, 5])?;
        scene.ack_all(&again).await?;
        scene.ensure_drained().await?;
    }
    Ok(())
}

/// A missing stream, group or partition is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let (nowhere, nobody) = scene.absent()?;
    let reset = crate::backend::Rewind { kind: Reset, to: [(0, 0)].into() };
    let begun = scene.backend.begin_rewind(&nowhere, &reset).await;
    ensure_err!("reset on a missing stream", begun, Error::StreamNotFound(_));
    let begun = scene.backend.begin_rewind(&nobody, &reset).await;
    ensure_err!("reset of a missing group", begun, Error::GroupNotFound(_));
    let begun = scene.begin(Reset, &[(1, 0)]).await;
    ensure_err!("reset of a missing partition", begun, Error::PartitionNotFound { partition: 1, .. });
    ensure_eq("nothing is under way", scene.info().await?.rewind, None)
}
