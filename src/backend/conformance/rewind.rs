//! A rewind under way: bounded steps behind a durable marker, which any engine goes on with
//! (invariant 9).

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::Store;
use super::control_kit::{ensure_afresh, split};
use super::kit::{
    LONG, MANY, Scene, Take, ack, ensure_eq, ensure_none, places, retry, sequences, settlement, until,
};
use crate::backend::RewindKind::{Delete, Replay, Reset};
use crate::backend::{Error, Held, Settled, Start, Trim};
use crate::event::Leased;

/// More entries than one step may take.
const PENDING: usize = 3000;

/// A group with so many entries pending, a third of them parked, and its leases.
async fn with_many_pending(store: &dyn Store) -> Result<(Scene, Vec<Leased>)> {
    let scene = Scene::with_events(store, 2, MANY, PENDING).await?;
    let mut held = Vec::new();
    until("everything of partition 0 is claimed", async || {
        held.extend(scene.take(Take::by("a").partitions(&[0]).limit(200)).await?.leased);
        Ok((held.len() == PENDING).then_some(()))
    })
    .await?;
    let parked: Vec<_> = held.iter().filter(|l| l.event.sequence % 3 == 0).collect();
    for batch in parked.chunks(200) {
        let batch: Vec<_> = batch.iter().map(|l| settlement(&l.lease, retry(LONG))).collect();
        scene.settle("a", &batch).await?;
    }
    Ok((scene, held))
}

/// However many entries are pending, each is dropped, in steps that are bounded.
pub async fn takes_many_pending_in_several_steps(store: &dyn Store) -> Result<()> {
    let (scene, held) = with_many_pending(store).await?;
    scene.begin(Replay, &[(0, 10)]).await?;
    let steps = scene.finish().await?;
    ensure_eq("each pending entry is dropped", steps.iter().sum::<u64>(), PENDING as u64 - 10)?;
    ensure!(steps.len() > 1, "so many in more than one step");
    let state = scene.partition(0).await?;
    let counts = (state.frontier, state.in_flight, state.parked);
    ensure_eq("what is below stays", counts, (0, 7, 3))?;
    for leased in held.iter().filter(|l| l.event.sequence % 501 == 0) {
        scene.ensure_stale(&leased.lease).await?;
    }
    scene.begin(Reset, &[(0, 0)]).await?;
    ensure_eq("a reset drops the rest", scene.finish().await?.iter().sum::<u64>(), 10)?;
    let (mut last, mut seen) = (0, 0);
    while seen < PENDING {
        let again = scene.take(Take::by("b").partitions(&[0]).limit(200)).await?.leased;
        ensure!(!again.is_empty(), "everything comes again: {seen} did");
        ensure_afresh(&again)?;
        for sequence in sequences(&again) {
            ensure_eq("each once, in order", sequence, last + 1)?;
            last = sequence;
        }
        seen += again.len();
        scene.ack_all(&again).await?;
    }
    let state = scene.partition(0).await?;
    ensure_eq("and is settled", (state.frontier, state.in_flight, state.parked), (PENDING as u64, 0, 0))
}

/// Claims of another engine finish a rewind that was left half done, and give nothing of its
/// partition before.
pub async fn is_finished_by_claims_alone(store: &dyn Store) -> Result<()> {
    let (scene, _) = with_many_pending(store).await?;
    scene.begin(Replay, &[(0, 0)]).await?;
    let step = scene.backend.continue_rewind(&scene.group).await?;
    ensure!(!step.finished, "so many take more than one step: found {step:?}");
    ensure_eq("a rewind that is under way is shown", scene.info().await?.rewind, Some(Replay))?;
    let other = scene.through(store.other().await?);
    let first = until("claims finish the rewind", async || {
        let under_way = other.info().await?.rewind.is_some();
        let claimed = other.take(Take::by("b").partitions(&[0])).await?.leased;
        // What a claim gives comes after the rewind's last step, which may be the claim's own.
        ensure!(
            claimed.is_empty() || other.info().await?.rewind.is_none(),
            "a claim gives nothing while a rewind is under way: found {:?}",
            places(&claimed)
        );
        Ok((!under_way || !claimed.is_empty()).then_some(claimed))
    })
    .await?;
    ensure_eq("nothing is under way", other.info().await?.rewind, None)?;
    let first = if first.is_empty() { other.claim("b", 10).await? } else { first };
    ensure_eq("the first events come", sequences(&first)[..3].to_vec(), vec![1, 2, 3])?;
    ensure_afresh(&first)?;
    let state = other.partition(0).await?;
    let counts = (state.frontier, state.in_flight, state.parked);
    ensure_eq("nothing else is pending", counts, (0, first.len() as u64, 0))
}

/// Until it is finished, a rewind's partitions take no verdict; others go on.
pub async fn holds_only_its_partitions(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 6).await?;
    for kind in [Replay, Reset] {
        let group = scene.with_group(kind.as_str(), MANY, Start::Beginning).await?;
        let mine = group.take(Take::by("a").partitions(&[0])).await?.leased;
        let theirs = group.take(Take::by("a").partitions(&[1]).limit(2)).await?.leased;
        group.begin(kind, &[(0, 2)]).await?;
        ensure_eq("what is under way is shown", group.info().await?.rewind, Some(kind))?;
        ensure_eq("and explained", group.explain(0).await?.rewind, Some(kind))?;
        for leased in &mine {
            if kind == Replay && leased.event.sequence <= 2 {
                let renewed = group.renew(&leased.lease, LONG).await?;
                ensure_eq("a replay leaves leases below", renewed, Settled::Done)?;
                group.done(&leased.lease, ack()).await?;
            } else {
                group.ensure_stale(&leased.lease).await?;
            }
        }
        group.ack_all(&theirs).await?;
        let rest = group.take(Take::by("b").partitions(&[1])).await?.leased;
        ensure_eq("the other partition is served", sequences(&rest), vec![3, 4, 5, 6])?;
        group.finish().await?;
        let state = group.partition(0).await?;
        let counts = (state.frontier, state.in_flight, state.parked);
        ensure_eq("at the end the group stands at the position", counts, (2, 0, 0))?;
        let again = group.claim_all("b", 4).await?;
        ensure_eq("and goes on from there", places(&again), vec![(0, 3), (0, 4), (0, 5), (0, 6)])?;
        ensure_afresh(&again)?;
        group.ack_all(&again).await?;
        group.ack_all(&rest).await?;
        group.ensure_drained().await?;
    }
    Ok(())
}

/// Only one rewind of a group is under way, and no redrive meanwhile.
pub async fn refuses_another_meanwhile(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 3).await?;
    let held = scene.claim_all("a", 6).await?;
    scene.reject_all(&held[..1]).await?;
    let rows = scene.rows().await?;
    let other = scene.through(store.other().await?);
    scene.begin(Replay, &[(0, 0)]).await?;
    for kind in [Replay, Reset, Delete] {
        let to: &[(u32, u64)] = if kind == Delete { &[] } else { &[(1, 0)] };
        let begun = other.begin(kind, to).await;
        ensure_err!("a second rewind", begun, Error::RewindUnderWay(group) if group == scene.group);
    }
    let redriven = other.backend.redrive(&scene.group, &rows).await;
    ensure_err!("a redrive meanwhile", redriven, Error::RewindUnderWay(_));
    let (partition, sequence) = (held[0].event.partition, held[0].event.sequence);
    let redriven = other.backend.redeliver(&scene.group, &[(partition, sequence)]).await;
    ensure_err!("a redelivery meanwhile", redriven, Error::RewindUnderWay(_));
    ensure_eq("the row stays", scene.rows().await?, rows)?;
    // The first one's positions stand.
    other.finish().await?;
    let frontiers: Vec<u64> = scene.info().await?.partitions.iter().map(|p| p.frontier).collect();
    ensure_eq("what was refused moves nothing", frontiers.first().copied(), Some(0))?;
    let step = scene.backend.continue_rewind(&scene.group).await?;
    ensure!(step.finished && step.dropped == 0, "nothing is under way: found {step:?}");
    scene.rewind(Reset, &[(1, 3)]).await?;
    ensure_eq("then another is carried out", scene.partition(1).await?.frontier, 3)
}

/// Of many that rewind at once each is carried out, one after the other, and nothing is lost.
pub async fn is_one_among_many(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 50).await?;
    let (low, _) = split(scene.claim_all("a", 80).await?, 20);
    scene.ack_all(&low).await?;
    let mut tasks = JoinSet::new();
    for n in 0..6u64 {
        let handle = if n % 2 == 0 { store.backend() } else { store.other().await? };
        let scene = scene.through(handle);
        tasks.spawn(async move { scene.rewind(Replay, &[(0, n), (1, 6 - n)]).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let frontiers: Vec<u64> = scene.info().await?.partitions.iter().map(|p| p.frontier).collect();
    ensure_eq("the lowest position holds", frontiers, vec![0, 1])?;
    let again = scene.claim_all("b", 99).await?;
    ensure_afresh(&again)?;
    scene.ensure_nothing("each event comes once").await?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// What a rewind is about to deliver is not trimmed, nor passed by a repair.
pub async fn keeps_what_it_will_deliver(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 6).await?;
    let held = scene.claim_all("a", 6).await?;
    scene.ack_all(&held).await?;
    let settled = scene.with_group("settled", MANY, Start::End).await?;
    for (kind, position) in [(Replay, 2), (Reset, 3)] {
        scene.begin(kind, &[(0, position)]).await?;
        ensure_kept(&scene, position).await?;
        scene.finish().await?;
        ensure_kept(&scene, position).await?;
        let again = scene.claim_all("b", 6 - usize::try_from(position)?).await?;
        ensure_afresh(&again)?;
        scene.ack_all(&again).await?;
        scene.ensure_drained().await?;
    }
    settled.ensure_drained().await
}

/// Neither a trim nor a repair passes the position.
async fn ensure_kept(scene: &Scene, position: u64) -> Result<()> {
    let trim = Trim { until: Some(6), max_length: Some(0), ..Trim::default() };
    let trimmed = scene.trim(Trim { until: Some(1), ..Trim::default() }).await?;
    ensure!(trimmed.held.is_none(), "up to its position a group holds nothing: found {trimmed:?}");
    let held = scene.trim(trim).await?.held;
    let expected = Held { group: scene.group.group.clone(), sequence: position + 1 };
    ensure_eq("a trim stops at the position", held, Some(expected))?;
    for _ in 0..3 {
        ensure_none("there is nothing to mend", &scene.backend.heal(&scene.group, 0).await?)?;
    }
    let kept: Vec<u64> = (position + 1..=6).collect();
    ensure!(scene.logged(0).await?.ends_with(&kept), "what is above the position stays in the log");
    Ok(())
}
