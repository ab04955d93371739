//! Explaining what holds a group's frontier.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Store;
use super::kit::{LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, reject, retry};
use crate::backend::{Error, Holder, HolderState, PendingEntry, PendingState};
use crate::event::{JsonObject, NewEvent};
use crate::outcome::{FailureKind, Verdict};

/// The holder that there must be, at this sequence.
async fn holder(scene: &Scene, sequence: u64) -> Result<Holder> {
    let explained = scene.explain(0).await?;
    let state = scene.partition(0).await?;
    let found = (explained.frontier, explained.high_watermark, explained.redriven);
    ensure_eq("it agrees with group info", found, (state.frontier, state.high_watermark, state.redriven))?;
    ensure_eq("no rewind is under way", explained.rewind, None)?;
    let holder = explained.holder.context("something holds the frontier")?;
    ensure_eq(
        "the event behind the frontier",
        (explained.frontier, holder.sequence),
        (sequence - 1, sequence),
    )?;
    Ok(holder)
}

/// The pending entry that holds the frontier, at this sequence.
async fn pending(scene: &Scene, sequence: u64) -> Result<PendingEntry> {
    let holder = holder(scene, sequence).await?;
    let HolderState::Pending(entry) = holder.state else { anyhow::bail!("it is pending: found {holder:?}") };
    let listed = scene.backend.pending(&scene.group, 0, None, 100).await?;
    let listed = listed.into_iter().find(|e| e.sequence == Some(sequence)).context("it is listed")?;
    let about = |e: &PendingEntry| (e.sequence, e.receipt.clone(), e.attempt, e.failure.clone());
    ensure_eq("as it is listed", about(&entry), about(&listed))?;
    Ok(entry)
}

/// Nothing holds a frontier that has reached the high watermark.
pub async fn names_nothing_at_the_end(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, MANY).await?;
    ensure_eq("of an empty partition", scene.explain(0).await?.holder, None)?;
    scene.append(0, 2).await?;
    let held = scene.claim_all("a", 2).await?;
    scene.ack_all(&held).await?;
    let explained = scene.explain(0).await?;
    ensure_eq("of one that is settled", &explained.holder, &None)?;
    ensure_eq("its numbers", (explained.frontier, explained.high_watermark), (2, 2))?;
    scene.append(1, 1).await?;
    ensure_eq("another partition is another matter", scene.explain(0).await?.holder, None)?;
    ensure!(scene.explain(1).await?.holder.is_some(), "which has a holder of its own");
    Ok(())
}

/// An event that no one has taken yet, with what is known of it.
pub async fn names_what_was_never_delivered(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let given = NewEvent {
        id: Some("order-17".to_owned()),
        event_type: Some("order.placed".to_owned()),
        timestamp: Some("2020-01-15T12:00:00Z".to_owned()),
        ..NewEvent::new(JsonObject::empty())
    };
    scene.backend.append(&scene.group.stream, &[given]).await?;
    ensure_eq("the first event", holder(&scene, 1).await?.state, HolderState::Undelivered)?;
    let held = scene.claim_one("a", LONG).await?;
    scene.done(&held.lease, ack()).await?;
    let holder = holder(&scene, 2).await?;
    ensure_eq("no one has taken it", &holder.state, &HolderState::Undelivered)?;
    ensure_eq("its id", holder.event_id.as_deref(), Some("order-17"))?;
    ensure_eq("its type", holder.event_type.as_deref(), Some("order.placed"))?;
    ensure_eq("its time", holder.timestamp.as_deref(), Some("2020-01-15T12:00:00Z"))
}

/// A leased, an expired, a parked and a released event, as they are pending.
pub async fn names_what_is_pending(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let held = scene.take(Take::by("holder").lease(SHORT)).await?.leased;
    scene.done(&held[1].lease, ack()).await?;
    let leased = |entry: &PendingEntry| match &entry.state {
        PendingState::Leased { consumer, expires_in_ms } => Some((consumer.clone(), *expires_in_ms)),
        PendingState::Parked { .. } => None,
    };
    store.pass(SHORT * 2).await;
    let (consumer, left) = leased(&pending(&scene, 1).await?).context("an expired lease is one")?;
    ensure_eq("its holder", consumer.as_str(), "holder")?;
    ensure!(left <= 0, "it has ended: {left} ms left");
    scene.renew(&held[0].lease, LONG).await?;
    let (_, left) = leased(&pending(&scene, 1).await?).context("a live lease is one")?;
    ensure!(left > 0, "it holds: {left} ms left");
    let id = holder(&scene, 1).await?.event_id;
    ensure_eq("its event", id.as_ref(), Some(&held[0].event.id))?;
    scene.done(&held[0].lease, retry(LONG)).await?;
    let entry = pending(&scene, 1).await?;
    ensure!(matches!(entry.state, PendingState::Parked { due_in_ms } if due_in_ms > 0), "parked: {entry:?}");
    ensure_eq("its failure", entry.failure, Some((FailureKind::Retry, "not now".to_owned())))?;
    let other = scene.with_group("others", MANY, crate::backend::Start::Beginning).await?;
    let theirs = other.claim_one("a", LONG).await?;
    other.done(&theirs.lease, Verdict::Release).await?;
    let entry = pending(&other, 1).await?;
    ensure!(entry.state.claimable_in_ms() <= 0, "a released event is claimable: {entry:?}");
    ensure_eq("with no attempt spent", entry.attempt, 0)
}

/// A redriven event holds nothing, and is counted.
pub async fn passes_over_what_was_redriven(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let held = scene.claim_all("a", 2).await?;
    scene.done(&held[0].lease, reject()).await?;
    scene.redrive_all().await?;
    let explained = scene.explain(0).await?;
    ensure_eq("it is counted", explained.redriven, 1)?;
    pending(&scene, 2).await?;
    scene.done(&held[1].lease, ack()).await?;
    ensure_eq("the next one holds", holder(&scene, 3).await?.state, HolderState::Undelivered)?;
    let again = scene.claim_all("b", 2).await?;
    scene.done(&again[1].lease, ack()).await?;
    let explained = scene.explain(0).await?;
    ensure_eq("nothing holds", (explained.holder, explained.redriven), (None, 1))?;
    scene.done(&again[0].lease, retry(Duration::ZERO)).await?;
    ensure_eq("parked it is counted too", scene.explain(0).await?.redriven, 1)
}

/// An event that was removed before it was settled, until a repair passes it.
pub async fn names_what_is_gone(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.claim_all("a", 3).await?;
    scene.done(&held[0].lease, ack()).await?;
    scene.cut(0, 2).await?;
    let explained = scene.explain(0).await?;
    let holder = explained.holder.context("something holds the frontier")?;
    match holder.state {
        HolderState::Missing => ensure_eq("the event that went", holder.sequence, 2)?,
        // A store may pass at once what it removes.
        HolderState::Pending(_) => ensure_eq("the event behind it", holder.sequence, 3)?,
        state => anyhow::bail!("an event that went is missing: found {state:?}"),
    }
    super::kit::until("a repair passes it", async || {
        scene.backend.heal(&scene.group, 0).await?;
        Ok((scene.explain(0).await?.frontier == 2).then_some(()))
    })
    .await?;
    pending(&scene, 3).await?;
    ensure_eq("and counts it", scene.partition(0).await?.missing, 1)
}

/// A missing stream, group or partition is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, MANY).await?;
    let (nowhere, nobody) = scene.absent()?;
    let explain = async |group, partition| scene.backend.explain(group, partition).await;
    ensure_err!("on a missing stream", explain(&nowhere, 0).await, Error::StreamNotFound(_));
    ensure_err!("of a missing group", explain(&nobody, 0).await, Error::GroupNotFound(_));
    ensure_err!(
        "of a missing partition",
        explain(&scene.group, 2).await,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    Ok(())
}
