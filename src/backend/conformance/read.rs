//! Reading a range back.

use anyhow::Result;

use super::Store;
use super::kit::{Scene, ensure_eq, ensure_none, name};
use crate::backend::Error;

/// Pages of any size give every event once, in order.
pub async fn pages_through_a_partition(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, 5, 23).await?;
    let stream = &scene.group.stream;
    for limit in [1, 7, 23, 100] {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let page = scene.backend.read(stream, 1, after, limit).await?;
            anyhow::ensure!(page.len() <= limit, "a page has at most {limit} events: found {}", page.len());
            let Some(last) = page.last() else { break };
            after = last.sequence;
            found.extend(page.iter().map(|e| (e.partition, e.sequence, e.payload.as_str().to_owned())));
        }
        let expected: Vec<_> = (1..=23).map(|n| (1, n, format!("{{\"n\":{n}}}"))).collect();
        ensure_eq("every event once, in order", found, expected)?;
    }
    ensure_none("nothing stands after the last event", &scene.backend.read(stream, 0, 23, 10).await?)?;
    ensure_none("nothing stands far beyond it", &scene.backend.read(stream, 0, 1_000_000, 10).await?)
}

/// A settled event can still be read, the same as before.
pub async fn keeps_settled_events(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 5, 3).await?;
    let before = scene.backend.read(&scene.group.stream, 0, 0, 10).await?;
    let all = scene.claim_all("a", 3).await?;
    scene.ack_all(&all).await?;
    let after = scene.backend.read(&scene.group.stream, 0, 0, 10).await?;
    ensure_eq("settling leaves the log alone", after, before)
}

/// A missing stream and a missing partition are errors.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, 5, 1).await?;
    let missing = scene.backend.read(&name("nowhere")?, 0, 0, 10).await;
    ensure_err!("read of a missing stream", missing, Error::StreamNotFound(_));
    let missing = scene.backend.read(&scene.group.stream, 2, 0, 10).await;
    ensure_err!(
        "read of a missing partition",
        missing,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    Ok(())
}
