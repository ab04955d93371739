//! The frontier is exact (invariant 7).

use anyhow::{Context as _, Result, ensure};
use rand::seq::SliceRandom as _;
use tokio::task::JoinSet;

use super::Store;
use super::kit::{LONG, MANY, Scene, ack, ensure_eq, reject, retry, settlement};
use crate::backend::{Settled, Start};

/// With one event unsettled the frontier stands just before it, wherever it is.
pub async fn stands_before_any_hole(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 8;
    let scene = Scene::with_events(store, 1, MANY, EVENTS).await?;
    for hole in 1..=EVENTS as u64 {
        let group = scene.with_group(&format!("hole-{hole}"), MANY, Start::Beginning).await?;
        let mut held = group.claim_all("a", EVENTS).await?;
        let at = held.iter().position(|l| l.event.sequence == hole).context("the hole is held")?;
        let missing = held.remove(at);
        held.shuffle(&mut rand::rng());
        group.ack_all(&held).await?;
        let state = group.partition(0).await?;
        ensure_eq("the frontier stands before the hole", state.frontier, hole - 1)?;
        ensure_eq("lag counts from the frontier", state.lag(), EVENTS as u64 - hole + 1)?;
        group.done(&missing.lease, ack()).await?;
        group.ensure_drained().await?;
    }
    Ok(())
}

/// After each of any sequence of settlements the frontier is what it must be.
pub async fn follows_any_order(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 12;
    let scene = Scene::with_events(store, 1, MANY, EVENTS).await?;
    for round in 0..6 {
        let group = scene.with_group(&format!("round-{round}"), MANY, Start::Beginning).await?;
        let mut held = group.claim_all("a", EVENTS).await?;
        held.shuffle(&mut rand::rng());
        let order: Vec<u64> = held.iter().map(|l| l.event.sequence).collect();
        let mut settled = Vec::new();
        for leased in &held {
            group.done(&leased.lease, ack()).await?;
            settled.push(leased.event.sequence);
            let expected = (1..).take_while(|n| settled.contains(n)).count() as u64;
            let found = group.partition(0).await?.frontier;
            ensure!(
                found == expected,
                "the frontier is exact: expected {expected}, found {found} after {settled:?} of {order:?}"
            );
        }
        group.ensure_drained().await?;
    }
    Ok(())
}

/// A dead letter is settled, a retry is not.
pub async fn passes_dead_letters(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.claim("a", 4).await?;
    let verdicts = [reject(), reject(), retry(LONG), ack()];
    let batch: Vec<_> = held.iter().zip(verdicts).map(|(l, v)| settlement(&l.lease, v)).collect();
    ensure_eq("verdicts are taken", scene.settle("a", &batch).await?, vec![Settled::Done; 4])?;
    let state = scene.partition(0).await?;
    ensure_eq("the frontier passes dead letters and stops at a retry", (state.frontier, state.lag()), (2, 2))
}

/// Each partition has a frontier of its own.
pub async fn counts_lag_per_partition(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 3, MANY, 5).await?;
    let held = scene.claim_all("a", 15).await?;
    // Of partition p the first p events stay unsettled, but for p = 0, which settles whole.
    let settled: Vec<_> =
        held.iter().filter(|l| l.event.sequence > u64::from(l.event.partition)).cloned().collect();
    scene.ack_all(&settled).await?;
    let info = scene.info().await?;
    let frontiers: Vec<u64> = info.partitions.iter().map(|p| p.frontier).collect();
    ensure_eq("frontiers", frontiers, vec![5, 0, 0])?;
    ensure_eq("lag is summed over the partitions asked for", info.lag(|p| p > 0), 10)?;
    let in_flight: Vec<u64> = info.partitions.iter().map(|p| p.in_flight).collect();
    ensure_eq("what is held", in_flight, vec![0, 1, 2])
}

/// With many settlers over two handles no settlement is lost, and the frontier never steps back.
pub async fn follows_concurrent_settlers(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 200;
    const SETTLERS: usize = 8;
    let scene = Scene::with_events(store, 2, MANY, EVENTS).await?;
    let mut held = scene.claim_all("a", 2 * EVENTS).await?;
    held.shuffle(&mut rand::rng());
    let mut tasks = JoinSet::new();
    for (n, part) in held.chunks(2 * EVENTS / SETTLERS).enumerate() {
        let handle = if n % 2 == 0 { store.backend() } else { store.other().await? };
        let (scene, part) = (scene.through(handle), part.to_vec());
        tasks.spawn(async move {
            for batch in part.chunks(n + 1) {
                let verdict = |n| if n % 5 == 0 { reject() } else { ack() };
                let batch: Vec<_> =
                    batch.iter().map(|l| settlement(&l.lease, verdict(l.event.sequence))).collect();
                let settled = scene.settle("a", &batch).await?;
                ensure_eq("live leases settle", settled, vec![Settled::Done; batch.len()])?;
            }
            anyhow::Ok(())
        });
    }
    let mut last = vec![0; 2];
    while !tasks.is_empty() {
        let frontiers: Vec<u64> = scene.info().await?.partitions.iter().map(|p| p.frontier).collect();
        let forward = frontiers.iter().zip(&last).all(|(now, before)| now >= before);
        ensure!(forward, "the frontier never steps back: {last:?}, then {frontiers:?}");
        last = frontiers;
        while let Some(ended) = tasks.try_join_next() {
            ended??;
        }
        tokio::task::yield_now().await;
    }
    ensure_eq("each reject is one dead letter", scene.info().await?.dead_letters, 2 * EVENTS as u64 / 5)?;
    scene.ensure_drained().await
}
