//! What is delivered and not settled can be seen.

use anyhow::{Context as _, Result, ensure};

use super::Store;
use super::kit::{LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, ensure_none, name, retry};
use crate::backend::{Error, PendingState};
use crate::event::GroupKey;
use crate::outcome::FailureKind;

/// Leased and parked entries, with place, attempt, holder and time left.
pub async fn lists_leased_and_parked(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 3).await?;
    let pending = async || scene.backend.pending(&scene.group, 1, None, 10).await;
    ensure_none("before the first claim nothing is pending", &pending().await?)?;
    let dying = scene.take(Take::by("dying").partitions(&[1]).limit(1).lease(SHORT)).await?.leased;
    ensure_eq("one event of partition 1 is held", dying.len(), 1)?;
    let held = scene.take(Take::by("holder").partitions(&[1]).limit(2)).await?.leased;
    let parked = held.last().context("two more are held")?;
    scene.done(&parked.lease, retry(LONG)).await?;
    store.pass(SHORT * 2).await;
    let found = pending().await?;
    ensure_eq("three entries are pending", found.len(), 3)?;
    let long = i64::try_from(LONG.as_millis())?;
    for (entry, leased) in found.iter().zip(dying.iter().chain(&held)) {
        ensure_eq("its place", (entry.partition, entry.sequence), (1, Some(leased.event.sequence)))?;
        ensure_eq("its receipt", entry.receipt.as_str(), leased.lease.receipt.as_ref())?;
        ensure_eq("its attempts", entry.attempt, 1)?;
        // A store may know the id only once it had reason to write it down.
        ensure!(
            entry.event_id.as_ref().is_none_or(|id| *id == leased.event.id),
            "its id is the event's: found {:?} for {}",
            entry.event_id,
            leased.event.id
        );
        let left = entry.state.claimable_in_ms();
        let (holder, from, to) = match leased.event.sequence {
            1 => (Some("dying"), i64::MIN, 0),
            2 => (Some("holder"), 1, long),
            _ => (None, 1, long),
        };
        ensure!((from..=to).contains(&left), "its time left is {from} to {to} ms: found {entry:?}");
        let consumer = match &entry.state {
            PendingState::Leased { consumer, .. } => Some(consumer.as_str()),
            PendingState::Parked { .. } => None,
        };
        ensure_eq("its holder, where it has one", consumer, holder)?;
        let failure = holder.is_none().then(|| (FailureKind::Retry, "not now".to_owned()));
        ensure_eq("its failure, where it had one", entry.failure.clone(), failure)?;
    }
    ensure_none(
        "the other partition has nothing pending",
        &scene.backend.pending(&scene.group, 0, None, 10).await?,
    )
}

/// Pages of any size give every entry once, in the order of receipts.
pub async fn pages_by_receipt(store: &dyn Store) -> Result<()> {
    const ENTRIES: u64 = 25;
    let scene = Scene::with_events(store, 1, MANY, 30).await?;
    let held = scene.claim_all("a", usize::try_from(ENTRIES)?).await?;
    for leased in held.iter().filter(|l| l.event.sequence % 3 == 0) {
        scene.done(&leased.lease, retry(LONG)).await?;
    }
    for limit in [1, 4, 100] {
        let (mut after, mut found): (Option<String>, Vec<_>) = (None, Vec::new());
        loop {
            let page = scene.backend.pending(&scene.group, 0, after.as_deref(), limit).await?;
            ensure!(page.len() <= limit, "a page has at most {limit} entries: found {}", page.len());
            let Some(last) = page.last() else { break };
            after = Some(last.receipt.clone());
            found.extend(page.into_iter().map(|e| e.sequence));
            ensure!(found.len() <= held.len(), "paging ends");
        }
        let expected: Vec<_> = (1..=ENTRIES).map(Some).collect();
        ensure_eq("every entry once, in the log's order", found, expected)?;
    }
    for cursor in ["no receipt", "", "1-2-3"] {
        let page = scene.backend.pending(&scene.group, 0, Some(cursor), 10).await;
        ensure_err!("a cursor that is no receipt", page, Error::CursorNotFound(text) if text == cursor);
    }
    Ok(())
}

/// What is settled is pending no longer.
pub async fn forgets_what_is_settled(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.claim("a", 4).await?;
    for leased in &held {
        scene.done(&leased.lease, ack()).await?;
        let pending = scene.backend.pending(&scene.group, 0, None, 10).await?;
        let left = held.len() - usize::try_from(leased.event.sequence)?;
        ensure_eq("what is settled is not pending", pending.len(), left)?;
        ensure_eq("nor in flight", scene.partition(0).await?.in_flight, left as u64)?;
    }
    Ok(())
}

/// A missing stream, group or partition is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, MANY).await?;
    let nowhere = GroupKey::new(name("nowhere")?, name("workers")?);
    let nobody = GroupKey::new(scene.group.stream.clone(), name("nobody")?);
    let pending = async |group, partition| scene.backend.pending(group, partition, None, 10).await;
    ensure_err!("pending of a missing stream", pending(&nowhere, 0).await, Error::StreamNotFound(_));
    ensure_err!("pending of a missing group", pending(&nobody, 0).await, Error::GroupNotFound(_));
    ensure_err!(
        "pending of a missing partition",
        pending(&scene.group, 2).await,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    Ok(())
}
