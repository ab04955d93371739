//! Purging dead letters.

use anyhow::Result;

use super::Store;
use super::kit::{MANY, Scene, ensure_eq, ensure_none};
use crate::backend::{Error, REDRIVE_BATCH_MAX, Redriven, Start};

/// The rows named go, each counted once; nothing else changes.
pub async fn removes_the_rows_named(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 3).await?;
    let held = scene.claim_all("a", 6).await?;
    scene.reject_all(&held).await?;
    let before = scene.info().await?;
    let letters = scene.letters().await?;
    let row = |n: usize| letters[n].row.clone();
    let purge = async |rows: Vec<String>| scene.backend.purge(&scene.group, &rows).await;
    ensure_eq("no row", purge(vec![]).await?, 0)?;
    ensure_eq("two rows", purge(vec![row(4), row(1)]).await?, 2)?;
    ensure_eq("they are gone", purge(vec![row(1), row(4)]).await?, 0)?;
    let rows = vec![row(0), row(1), "no row".to_owned(), row(0), String::new(), "1-2-3".to_owned()];
    ensure_eq("each row counts once, where it is there", purge(rows).await?, 1)?;
    let left: Vec<_> = [2, 3, 5].map(|n| letters[n].clone()).into();
    ensure_eq("the others stay", scene.letters().await?, left)?;
    let after = scene.info().await?;
    ensure_eq("group info counts them", after.dead_letters, 3)?;
    ensure_eq("and nothing else changes", after.partitions, before.partitions)?;
    let redriven = scene.backend.redrive(&scene.group, &[row(0), row(2)]).await?;
    ensure_eq("what was purged is not redriven", redriven, vec![Redriven::Gone, Redriven::Done])
}

/// A page begins behind a row that was purged, too.
pub async fn leaves_cursors_working(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 6).await?;
    let held = scene.claim_all("a", 6).await?;
    scene.reject_all(&held).await?;
    let letters = scene.letters().await?;
    let rows: Vec<_> = letters[..3].iter().map(|letter| letter.row.clone()).collect();
    ensure_eq("three rows go", scene.backend.purge(&scene.group, &rows).await?, 3)?;
    for row in &rows {
        let page = scene.backend.dead_letters(&scene.group, Some(row), 10).await?;
        ensure_eq("the page behind a purged row", &page[..], &letters[3..])?;
    }
    Ok(())
}

/// A group's rows are its own.
pub async fn spares_other_groups(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let other = scene.with_group("others", MANY, Start::Beginning).await?;
    for group in [&scene, &other] {
        let held = group.claim_all("a", 2).await?;
        group.reject_all(&held).await?;
    }
    let theirs = other.letters().await?;
    let rows = scene.rows().await?;
    ensure_eq("both rows go", scene.backend.purge(&scene.group, &rows).await?, 2)?;
    ensure_none("of this group", &scene.letters().await?)?;
    ensure_eq("and none of another", other.letters().await?, theirs)
}

/// A batch has a bound.
pub async fn takes_a_batch_up_to_its_bound(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, REDRIVE_BATCH_MAX + 1).await?;
    let held = scene.claim_all("a", REDRIVE_BATCH_MAX + 1).await?;
    scene.reject_all(&held).await?;
    let rows = scene.rows().await?;
    let refused = scene.backend.purge(&scene.group, &rows).await;
    ensure_err!(
        "one row too many",
        refused,
        Error::BatchTooLarge { items, max: REDRIVE_BATCH_MAX } if items == REDRIVE_BATCH_MAX + 1
    );
    ensure_eq("a refused batch removes nothing", scene.rows().await?, rows.clone())?;
    let purged = scene.backend.purge(&scene.group, &rows[1..]).await?;
    ensure_eq("the largest batch", purged, REDRIVE_BATCH_MAX as u64)
}

/// A missing stream or group is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, MANY).await?;
    let (nowhere, nobody) = scene.absent()?;
    let rows = ["1".to_owned()];
    ensure_err!("on a missing stream", scene.backend.purge(&nowhere, &rows).await, Error::StreamNotFound(_));
    ensure_err!("of a missing group", scene.backend.purge(&nobody, &rows).await, Error::GroupNotFound(_));
    Ok(())
}
