//! Replay: what is above the position comes again, what is below stays, nothing is skipped.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use super::Store;
use super::control_kit::{ensure_afresh, events, split};
use super::kit::{LONG, MANY, Scene, Take, ack, ensure_eq, places, retry, sequences, settlement, until};
use crate::backend::RewindKind::Replay;
use crate::backend::{Error, PendingState, Settled, Start};
use crate::event::NUMBER_MAX;

/// What is above the position is delivered again: the same events, their attempts afresh.
pub async fn delivers_again_what_is_above(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 6).await?;
    let held = scene.claim_all("a", 12).await?;
    scene.ack_all(&held).await?;
    ensure_eq("nothing was pending", scene.rewind(Replay, &[(0, 2), (1, 0)]).await?, 0)?;
    let info = scene.info().await?;
    ensure_eq("the rewind is over", info.rewind, None)?;
    let states: Vec<_> = info.partitions.iter().map(|p| (p.frontier, p.in_flight, p.parked)).collect();
    ensure_eq("the frontier stands at the position", states, vec![(2, 0, 0), (0, 0, 0)])?;
    let again = scene.claim_all("b", 10).await?;
    ensure_afresh(&again)?;
    let expected: Vec<_> = events(&held).into_iter().filter(|e| e.partition == 1 || e.sequence > 2).collect();
    ensure_eq("the same events come again", events(&again), expected)?;
    scene.ensure_nothing("each once").await?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await?;
    ensure_eq("a replay can be repeated", scene.rewind(Replay, &[(0, 5)]).await?, 0)?;
    let last = scene.claim_only("b").await?;
    ensure_eq("with another position", (last.event.partition, last.event.sequence), (0, 6))?;
    scene.done(&last.lease, ack()).await?;
    scene.ensure_drained().await
}

/// What is unsettled at or below the position stays as it is: undelivered, leased or parked.
pub async fn skips_nothing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 9).await?;
    let held = scene.claim("a", 6).await?;
    scene.done(&held[0].lease, ack()).await?;
    scene.done(&held[2].lease, retry(LONG)).await?;
    scene.done(&held[3].lease, ack()).await?;
    // Now 2 is leased, 3 parked, 4 acked, 5 and 6 leased, 7 to 9 undelivered.
    ensure_eq("what was pending above", scene.rewind(Replay, &[(0, 4)]).await?, 2)?;
    let state = scene.partition(0).await?;
    let counts = (state.frontier, state.in_flight, state.parked);
    ensure_eq("the frontier does not pass what is unsettled", counts, (1, 1, 1))?;
    let pending = scene.backend.pending(&scene.group, 0, None, 10).await?;
    let pending: Vec<_> = pending.iter().map(|e| (e.sequence, e.attempt)).collect();
    ensure_eq("what was pending below is", pending, vec![(Some(2), 1), (Some(3), 1)])?;
    scene.ensure_stale(&held[4].lease).await?;
    let again = scene.claim_all("b", 5).await?;
    ensure_afresh(&again)?;
    ensure_eq("what is above comes", sequences(&again), vec![5, 6, 7, 8, 9])?;
    ensure_eq("a lease below is renewed", scene.renew(&held[1].lease, LONG).await?, Settled::Done)?;
    scene.done(&held[1].lease, ack()).await?;
    ensure_eq("the frontier goes on", scene.partition(0).await?.frontier, 2)?;
    scene.ack_all(&again).await?;
    ensure_eq("up to the parked event", scene.partition(0).await?.frontier, 2)?;
    // A position beyond what was delivered passes over nothing either.
    scene.append(0, 3).await?;
    ensure_eq("nothing is pending above", scene.rewind(Replay, &[(0, 11)]).await?, 0)?;
    let new = scene.claim_all("b", 3).await?;
    ensure_eq("new events are not skipped", sequences(&new), vec![10, 11, 12])
}

/// From a replay on, a lease above the position is stale for everything.
pub async fn makes_leases_above_stale(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.claim("a", 4).await?;
    scene.rewind(Replay, &[(0, 1)]).await?;
    for leased in &held[1..] {
        scene.ensure_stale(&leased.lease).await?;
    }
    let again = scene.claim_all("b", 3).await?;
    ensure_eq("they come again", sequences(&again), vec![2, 3, 4])?;
    for (old, new) in held[1..].iter().zip(&again) {
        ensure!(old.lease.id != new.lease.id, "under a new lease");
        scene.ensure_stale(&old.lease).await?;
    }
    ensure_eq("a stale holder changes nothing", scene.partition(0).await?.in_flight, 4)?;
    scene.ack_all(&again).await?;
    scene.done(&held[0].lease, ack()).await?;
    ensure_eq("and leaves no dead letter", scene.info().await?.dead_letters, 0)?;
    scene.ensure_drained().await
}

/// A parked event above the position comes at once, its attempts afresh; one below waits on.
pub async fn brings_parked_events_back_at_once(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    for leased in scene.claim("a", 3).await? {
        scene.done(&leased.lease, retry(Duration::ZERO)).await?;
    }
    for leased in scene.claim_all("a", 3).await? {
        ensure_eq("the second attempt", leased.lease.attempt, 2)?;
        scene.done(&leased.lease, retry(LONG)).await?;
    }
    ensure_eq("parked events are pending", scene.rewind(Replay, &[(0, 1)]).await?, 2)?;
    let again = scene.claim_all("b", 2).await?;
    ensure_eq("parked events above come at once", sequences(&again), vec![2, 3])?;
    ensure_afresh(&again)?;
    scene.ensure_nothing("the one below waits on").await?;
    let pending = scene.backend.pending(&scene.group, 0, None, 1).await?;
    let first = pending.first().context("it is pending")?;
    ensure_eq("with its attempts", (first.sequence, first.attempt), (Some(1), 2))?;
    ensure!(matches!(first.state, PendingState::Parked { .. }), "and parked: found {first:?}");
    // What is retried after a replay counts as if nothing had been before.
    scene.done(&again[0].lease, retry(Duration::ZERO)).await?;
    let second = scene.claim_only("b").await?;
    ensure_eq("its next attempt", (second.event.sequence, second.lease.attempt), (2, 2))
}

/// A partition that is not named stays as it is.
pub async fn touches_only_the_partitions_named(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 3, MANY, 3).await?;
    let held = scene.claim_all("a", 9).await?;
    let (first, rest) = split(held, 1);
    scene.ack_all(&first).await?;
    ensure_eq("only its entries are dropped", scene.rewind(Replay, &[(1, 0)]).await?, 2)?;
    let states: Vec<_> = scene.info().await?.partitions.iter().map(|p| (p.frontier, p.in_flight)).collect();
    ensure_eq("only its frontier moves", states, vec![(1, 2), (0, 0), (1, 2)])?;
    let again = scene.claim_all("b", 3).await?;
    ensure_eq("only its events come", places(&again), vec![(1, 1), (1, 2), (1, 3)])?;
    let (stale, live): (Vec<_>, Vec<_>) = rest.into_iter().partition(|l| l.event.partition == 1);
    for leased in &stale {
        scene.ensure_stale(&leased.lease).await?;
    }
    scene.ack_all(&live).await?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await?;
    ensure_eq("a replay of no partition", scene.rewind(Replay, &[]).await?, 0)?;
    scene.ensure_drained().await
}

/// Another group of the same stream notices nothing.
pub async fn leaves_other_groups_alone(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 5).await?;
    let other = scene.with_group("others", MANY, Start::Beginning).await?;
    let theirs = other.claim("a", 4).await?;
    other.done(&theirs[0].lease, ack()).await?;
    other.done(&theirs[1].lease, retry(LONG)).await?;
    let before = other.info().await?;
    let held = scene.claim_all("a", 5).await?;
    scene.ack_all(&held).await?;
    scene.rewind(Replay, &[(0, 0)]).await?;
    ensure_eq("another group is as it was", other.info().await?, before)?;
    other.ack_all(&theirs[2..]).await?;
    let rest = other.claim("a", 10).await?;
    ensure_eq("and gets only what is new to it", sequences(&rest), vec![5])?;
    ensure_eq("while this one gets it all", scene.claim_all("b", 5).await?.len(), 5)
}

/// A position above the last event is that of the last event.
pub async fn goes_no_further_than_the_end(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let held = scene.claim("a", 2).await?;
    for beyond in [4, NUMBER_MAX, u64::MAX] {
        ensure_eq("nothing is above", scene.rewind(Replay, &[(0, beyond)]).await?, 0)?;
        ensure_eq("the frontier stays", scene.partition(0).await?.frontier, 0)?;
    }
    scene.ack_all(&held).await?;
    scene.append(0, 2).await?;
    let rest = scene.claim_all("a", 3).await?;
    ensure_eq("nothing was skipped", sequences(&rest), vec![3, 4, 5])?;
    scene.ack_all(&rest).await?;
    scene.ensure_drained().await
}

/// Dead letters stay, and their events come again with the others.
pub async fn leaves_dead_letters_where_they_are(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let held = scene.claim("a", 3).await?;
    scene.reject_all(&held).await?;
    let letters = scene.letters().await?;
    scene.rewind(Replay, &[(0, 1)]).await?;
    ensure_eq("the dead letters are as they were", scene.letters().await?, letters)?;
    ensure_eq("and are counted", scene.info().await?.dead_letters, 3)?;
    let again = scene.claim_all("b", 2).await?;
    ensure_afresh(&again)?;
    ensure_eq("their events come again", events(&again), events(&held[1..]))?;
    scene.reject_all(&again).await?;
    ensure_eq("and can die again", scene.info().await?.dead_letters, 5)?;
    scene.ensure_drained().await
}

/// After a replay to before what was trimmed, the rest comes, and the frontier reaches the end.
pub async fn reaches_the_end_of_a_trimmed_stream(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 6).await?;
    let held = scene.claim_all("a", 6).await?;
    scene.ack_all(&held).await?;
    scene.cut(0, 4).await?;
    scene.rewind(Replay, &[(0, 1)]).await?;
    let again = scene.claim_all("b", 2).await?;
    ensure_eq("what is left comes again", sequences(&again), vec![5, 6])?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await?;
    ensure_eq("what was settled is not missing", scene.partition(0).await?.missing, 0)
}

/// While consumers are busy the group is replayed again and again: in the end everything was acked
/// after the last replay had begun.
pub async fn loses_nothing_among_busy_consumers(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 80;
    let scene = Scene::with_events(store, 2, MANY, EVENTS).await?;
    let (stop, epoch) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for n in 0..4 {
        let handle = if n % 2 == 0 { store.backend() } else { store.other().await? };
        let (scene, stop, epoch) = (scene.through(handle), stop.clone(), epoch.clone());
        workers.spawn(async move {
            let (consumer, mut acked) = (format!("worker-{n}"), Vec::new());
            while !stop.load(Ordering::SeqCst) {
                let held = scene.take(Take::by(&consumer).limit(5).sweep()).await?.leased;
                let batch: Vec<_> = held.iter().map(|l| settlement(&l.lease, ack())).collect();
                let settled = scene.settle(&consumer, &batch).await?;
                let now = epoch.load(Ordering::SeqCst);
                let done = places(&held).into_iter().zip(settled).filter(|(_, s)| *s == Settled::Done);
                acked.extend(done.map(|(place, _)| (now, place)));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            anyhow::Ok(acked)
        });
    }
    let watcher = scene.through(store.other().await?);
    for round in 1..=5 {
        epoch.store(round, Ordering::SeqCst);
        watcher.rewind(Replay, &[(0, 0), (1, 0)]).await?;
        let some = round * 30;
        until("the group gets on after a replay", async || {
            Ok((watcher.info().await?.lag(|_| true) <= 2 * EVENTS as u64 - some).then_some(()))
        })
        .await?;
    }
    until("everything is settled in the end", async || {
        Ok((watcher.info().await?.lag(|_| true) == 0).then_some(()))
    })
    .await?;
    stop.store(true, Ordering::SeqCst);
    let mut last = HashSet::new();
    while let Some(acked) = workers.join_next().await {
        last.extend(acked??.into_iter().filter(|(epoch, _)| *epoch == 5).map(|(_, place)| place));
    }
    ensure_eq("each was acked after the last replay had begun", last.len(), 2 * EVENTS)?;
    watcher.ensure_nothing("nothing is left").await?;
    watcher.ensure_drained().await
}

/// A missing stream, group or partition is an error, and moves nothing.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 2).await?;
    let held = scene.claim_all("a", 4).await?;
    let (nowhere, nobody) = scene.absent()?;
    let rewind = crate::backend::Rewind { kind: Replay, to: [(0, 0)].into() };
    let begun = scene.backend.begin_rewind(&nowhere, &rewind).await;
    ensure_err!("replay on a missing stream", begun, Error::StreamNotFound(_));
    let begun = scene.backend.begin_rewind(&nobody, &rewind).await;
    ensure_err!("replay of a missing group", begun, Error::GroupNotFound(group) if group == nobody);
    let begun = scene.begin(Replay, &[(0, 0), (2, 0)]).await;
    ensure_err!(
        "replay of a missing partition",
        begun,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    let step = scene.backend.continue_rewind(&nowhere).await;
    ensure_err!("going on on a missing stream", step, Error::StreamNotFound(_));
    let step = scene.backend.continue_rewind(&nobody).await?;
    ensure!(step.finished, "a group that is gone has finished: found {step:?}");
    ensure_eq("nothing is under way", scene.info().await?.rewind, None)?;
    scene.ack_all(&held).await?;
    scene.ensure_drained().await
}
