//! Scanning the log: both ways, within bounds, complete while others append.

use anyhow::{Result, ensure};

use super::Store;
use super::kit::{MANY, Scene, ensure_eq, ensure_none, name};
use crate::backend::{Error, Order, ScanRange, Shared};
use crate::event::{NUMBER_MAX, Name};

/// The whole log, oldest first.
const WHOLE: ScanRange = ScanRange { after: 0, until: NUMBER_MAX, order: Order::Ascending, limit: 100 };

/// Pages through a range; `meanwhile` happens between two pages.
async fn scan(
    backend: &Shared,
    stream: &Name,
    partition: u32,
    range: ScanRange,
    mut meanwhile: impl AsyncFnMut() -> Result<()>,
) -> Result<Vec<u64>> {
    let (mut found, mut rest) = (Vec::new(), Some(range));
    let mut looked = 0;
    while let Some(range) = rest {
        let page = backend.scan(stream, partition, range).await?;
        let limit = range.limit;
        ensure!(page.events.len() <= limit, "a page keeps its limit of {limit}: found {}", page.events.len());
        ensure_none("our own entries are readable", &page.unreadable)?;
        found.extend(page.events.iter().map(|event| event.sequence));
        rest = page.next.map(|next| range.behind(next));
        ensure!(rest != Some(range), "each page gets on: stands at {:?}", page.next);
        looked += 1;
        ensure!(looked < 10_000, "a scan comes to its end");
        meanwhile().await?;
    }
    Ok(found)
}

/// A scan of a log at rest.
async fn at_rest(scene: &Scene, partition: u32, range: ScanRange) -> Result<Vec<u64>> {
    scan(&scene.backend, &scene.group.stream, partition, range, async || Ok(())).await
}

/// Whatever the size of its pages, a scan gives every event once, in the order asked for.
pub async fn reads_both_ways(store: &dyn Store) -> Result<()> {
    const EVENTS: u64 = 23;
    let scene = Scene::with_events(store, 2, MANY, 23).await?;
    let up: Vec<u64> = (1..=EVENTS).collect();
    let down: Vec<u64> = (1..=EVENTS).rev().collect();
    for limit in [1, 7, 23, 100, 100_000] {
        for (order, expected) in [(Order::Ascending, &up), (Order::Descending, &down)] {
            let found = at_rest(&scene, 1, ScanRange { order, limit, ..WHOLE }).await?;
            ensure_eq("every event once, in the order asked for", &found, expected)?;
        }
    }
    let page = scene.backend.scan(&scene.group.stream, 0, ScanRange { limit: 2, ..WHOLE }).await?;
    let read = scene.backend.read(&scene.group.stream, 0, 0, 2).await?;
    ensure_eq("what is scanned is what is read", page.events, read)
}

/// The lower bound is exclusive, the upper one inclusive; an impossible range is empty.
pub async fn keeps_its_bounds(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 9).await?;
    for (after, until) in [(0, 9), (2, 7), (0, 1), (8, 9), (3, 4), (4, 1_000_000), (0, NUMBER_MAX)] {
        let mut expected: Vec<u64> = (after + 1..=until.min(9)).collect();
        for order in [Order::Ascending, Order::Descending] {
            for limit in [1, 2, 100] {
                let found = at_rest(&scene, 0, ScanRange { after, until, order, limit }).await?;
                ensure_eq("above the one bound, up to the other", &found, &expected)?;
            }
            expected.reverse();
        }
    }
    for (after, until) in
        [(9, NUMBER_MAX), (5, 5), (7, 2), (0, 0), (1_000_000, NUMBER_MAX), (u64::MAX, u64::MAX)]
    {
        for order in [Order::Ascending, Order::Descending] {
            let found = at_rest(&scene, 0, ScanRange { after, until, order, limit: 10 }).await?;
            ensure_none("a range that holds nothing", &found)?;
        }
    }
    scene.backend.create_stream(&name("empty")?, 1).await?;
    let page = scene.backend.scan(&name("empty")?, 0, WHOLE).await?;
    ensure!(page.events.is_empty() && page.next.is_none(), "an empty log: found {page:?}");
    Ok(())
}

/// What others append while someone pages through the log is found, and nothing twice.
pub async fn is_complete_while_others_append(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 40).await?;
    let other = scene.through(store.other().await?);
    let mut rounds = 0;
    let append = async || {
        rounds += 1;
        if rounds <= 20 { other.append(0, 3).await } else { Ok(()) }
    };
    let range = ScanRange { limit: 4, ..WHOLE };
    let found = scan(&scene.backend, &scene.group.stream, 0, range, append).await?;
    ensure_eq("whatever was appended is found", found, (1..=100).collect::<Vec<_>>())?;
    let append = async || other.append(0, 3).await;
    let range = ScanRange { order: Order::Descending, ..range };
    let found = scan(&scene.backend, &scene.group.stream, 0, range, append).await?;
    ensure_eq("backward too nothing comes twice", found, (1..=100).rev().collect::<Vec<_>>())
}

/// A scan of a log that was trimmed begins with its first event that is left.
pub async fn begins_behind_what_was_trimmed(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 12).await?;
    scene.cut(1, 5).await?;
    for (after, until) in [(0, NUMBER_MAX), (3, 9), (5, 8), (6, 7), (0, 5), (2, 4)] {
        let mut expected: Vec<u64> = (after.max(5) + 1..=until.min(12)).collect();
        for order in [Order::Ascending, Order::Descending] {
            for limit in [1, 3, 100] {
                let found = at_rest(&scene, 1, ScanRange { after, until, order, limit }).await?;
                ensure_eq("what is left of the range", &found, &expected)?;
            }
            expected.reverse();
        }
    }
    ensure_eq("another partition is whole", at_rest(&scene, 0, WHOLE).await?.len(), 12)
}

/// A missing stream or partition is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 1).await?;
    let found = scene.backend.scan(&name("nowhere")?, 0, WHOLE).await;
    ensure_err!("scan of a missing stream", found, Error::StreamNotFound(_));
    let found = scene.backend.scan(&scene.group.stream, 2, WHOLE).await;
    ensure_err!(
        "scan of a missing partition",
        found,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    Ok(())
}
