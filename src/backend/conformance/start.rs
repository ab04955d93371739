//! Where a new group begins.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::Store;
use super::control_kit::ensure_afresh;
use super::kit::{MANY, Scene, ensure_eq, ensure_none, name, places};
use crate::backend::{Error, NewGroup, Start};
use crate::event::{GroupKey, NUMBER_MAX};

/// Behind these sequences.
fn after(positions: &[(u32, u64)]) -> Start {
    Start::After(BTreeMap::from_iter(positions.iter().copied()))
}

/// What a group gets, in the order of places; it acks all of it, and has no lag then.
async fn gets(scene: &Scene, events: usize) -> Result<Vec<(u32, u64)>> {
    let held = scene.claim_all("a", events).await?;
    ensure_none("nothing more is delivered", &places(&scene.claim("a", 10).await?))?;
    ensure_afresh(&held)?;
    scene.ack_all(&held).await?;
    scene.ensure_drained().await?;
    let mut found = places(&held);
    found.sort_unstable();
    Ok(found)
}

/// Behind the sequences that are named; a partition that is not begins with its first event.
pub async fn begins_behind_the_sequences_named(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 3, MANY, 4).await?;
    let group = scene.with_group("after", MANY, after(&[(0, 3), (2, 0)])).await?;
    let frontiers: Vec<u64> = group.info().await?.partitions.iter().map(|p| p.frontier).collect();
    ensure_eq("the frontier stands at the position", frontiers, vec![3, 0, 0])?;
    ensure_eq("lag counts from there", group.info().await?.lag(|_| true), 9)?;
    let mut expected = vec![(0, 4)];
    expected.extend((1..=4).map(|sequence| (1, sequence)));
    expected.extend((1..=4).map(|sequence| (2, sequence)));
    ensure_eq("what is above the position is delivered", gets(&group, 9).await?, expected)?;
    let group = scene.with_group("behind-all", MANY, after(&[(0, 4), (1, 4), (2, 4)])).await?;
    group.ensure_drained().await?;
    group.ensure_nothing("nothing is above the last event").await?;
    ensure_eq("another group is where it was", scene.partition(0).await?.frontier, 0)
}

/// A position above the last event is that of the last event: nothing to come is skipped.
pub async fn begins_no_later_than_the_end(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 3).await?;
    for (n, beyond) in [4, 1_000_000, NUMBER_MAX, u64::MAX].into_iter().enumerate() {
        let group = scene.with_group(&format!("beyond-{n}"), MANY, after(&[(1, beyond)])).await?;
        let state = group.partition(1).await?;
        ensure_eq("clamped to the high watermark", state.frontier, state.high_watermark)?;
        scene.append(1, 1).await?;
        let next = state.high_watermark + 1;
        let expected = vec![(0, 1), (0, 2), (0, 3), (1, next)];
        ensure_eq("the next event is delivered", gets(&group, 4).await?, expected)?;
    }
    Ok(())
}

/// A partition that the stream does not have creates no group.
pub async fn refuses_an_unknown_partition(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 3).await?;
    let group = GroupKey::new(scene.group.stream.clone(), name("wrong")?);
    for positions in [&[(2, 1)][..], &[(0, 1), (7, 1)]] {
        let new = NewGroup { max_attempts: 5, start: after(positions) };
        let created = scene.backend.create_group(&group, new).await;
        ensure_err!(
            "a start in a missing partition",
            created,
            Error::PartitionNotFound { partitions: 2, .. }
        );
    }
    let groups = scene.backend.groups(&scene.group.stream).await?;
    ensure_eq("a refused create_group creates nothing", groups, vec![scene.group.group.clone()])
}

/// The end is that of each partition.
pub async fn begins_at_the_end_of_each_partition(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 3, MANY).await?;
    scene.append(0, 4).await?;
    scene.append(2, 1).await?;
    let group = scene.with_group("late", MANY, Start::End).await?;
    let frontiers: Vec<u64> = group.info().await?.partitions.iter().map(|p| p.frontier).collect();
    ensure_eq("the frontier stands at the end", frontiers, vec![4, 0, 1])?;
    group.ensure_nothing("what was there before is not delivered").await?;
    for partition in 0..3 {
        scene.append(partition, 1).await?;
    }
    ensure_eq("what comes after is", gets(&group, 3).await?, vec![(0, 5), (1, 1), (2, 2)])
}

/// A group that begins before what was trimmed gets what is left, and its frontier the end.
pub async fn reaches_the_end_of_a_trimmed_stream(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 5).await?;
    scene.cut(0, 3).await?;
    scene.cut(1, 5).await?;
    for (n, start) in
        [Start::Beginning, after(&[(0, 2)]), after(&[(0, 3)]), after(&[(1, 1)])].into_iter().enumerate()
    {
        let group = scene.with_group(&format!("group-{n}"), MANY, start).await?;
        ensure_eq("it gets what is left", gets(&group, 2).await?, vec![(0, 4), (0, 5)])?;
        let missing: Vec<u64> = group.info().await?.partitions.iter().map(|p| p.missing).collect();
        ensure_eq("what went before the group came is not missing", missing, vec![0, 0])?;
    }
    let group = scene.with_group("all-gone", MANY, after(&[(0, 5)])).await?;
    group.ensure_drained().await?;
    for partition in 0..2 {
        scene.append(partition, 1).await?;
    }
    let found = gets(&group, 2).await?;
    ensure!(found == [(0, 6), (1, 6)], "a partition without events goes on: found {found:?}");
    Ok(())
}
