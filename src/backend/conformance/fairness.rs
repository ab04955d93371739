//! Ready work is served fairly (invariant 8).

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Store;
use super::kit::{MANY, Scene, Take, ack, ensure_eq, retry, settlement};
use crate::backend::{Settled, Start};

/// A big backlog in one partition does not keep the others waiting.
pub async fn serves_every_partition(store: &dyn Store) -> Result<()> {
    const FEW: u64 = 5;
    let streams = Scene::new(store, 4, MANY).await?;
    // Each round has a group of its own, which sees nothing of the rounds before it.
    for backlog in [0, 2, 3] {
        let scene = streams.with_group(&format!("round-{backlog}"), MANY, Start::End).await?;
        for partition in 0..4 {
            scene.append(partition, if partition == backlog { 600 } else { usize::try_from(FEW)? }).await?;
        }
        let mut served = HashMap::new();
        // Eight claims of 8 are 64 events: a fair share of a quarter is 16, of which 5 suffice.
        for _ in 0..8 {
            for leased in scene.claim("a", 8).await? {
                *served.entry(leased.event.partition).or_insert(0) += 1;
            }
        }
        for partition in (0..4).filter(|p| *p != backlog) {
            let found = served.get(&partition).copied().unwrap_or(0);
            ensure!(
                found == FEW,
                "a backlog in partition {backlog} starves no other: {found} of {FEW} events of \
                 partition {partition} came within 8 claims of 8, in all {served:?}"
            );
        }
    }
    Ok(())
}

/// Retries that are due come while new events keep coming.
pub async fn serves_retries_beside_new_events(store: &dyn Store) -> Result<()> {
    const RETRIES: usize = 20;
    let scene = Scene::with_events(store, 1, MANY, RETRIES + 600).await?;
    for leased in scene.claim_all("a", RETRIES).await? {
        scene.done(&leased.lease, retry(Duration::ZERO)).await?;
    }
    let mut back = 0;
    // The 600 new events outlast these claims, so there is always something else to give.
    for _ in 0..50 {
        let claimed = scene.claim("a", 10).await?;
        back += claimed.iter().filter(|l| l.lease.attempt == 2).count();
        scene.ack_all(&claimed).await?;
    }
    ensure_eq("due retries come within 50 claims of 10 beside a backlog", back, RETRIES)
}

/// New events come while retries keep coming back.
pub async fn serves_new_events_beside_retries(store: &dyn Store) -> Result<()> {
    const STUBBORN: u64 = 30;
    const NEW: usize = 20;
    let scene = Scene::with_events(store, 1, MANY, usize::try_from(STUBBORN)? + NEW).await?;
    for leased in scene.claim_all("a", usize::try_from(STUBBORN)?).await? {
        scene.done(&leased.lease, retry(Duration::ZERO)).await?;
    }
    let mut new = 0;
    for _ in 0..50 {
        // There are always more retries due than a claim can take.
        let claimed = scene.take(Take::by("a").limit(10)).await?.leased;
        new += claimed.iter().filter(|l| l.event.sequence > STUBBORN).count();
        let verdict = |n| if n > STUBBORN { ack() } else { retry(Duration::ZERO) };
        let batch: Vec<_> = claimed.iter().map(|l| settlement(&l.lease, verdict(l.event.sequence))).collect();
        let settled = scene.settle("a", &batch).await?;
        ensure_eq("verdicts are taken", settled, vec![Settled::Done; batch.len()])?;
    }
    ensure_eq("new events come within 50 claims of 10 beside endless retries", new, NEW)
}

/// Partitions without work leave their share to those that have some.
pub async fn gives_the_whole_budget_to_who_has_work(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 8, MANY).await?;
    scene.append(3, 100).await?;
    let mut claims = 0;
    let mut found = 0;
    while found < 100 {
        let claimed = scene.claim("a", 20).await?;
        ensure!(!claimed.is_empty(), "a claim gives something while something is ready");
        found += claimed.len();
        claims += 1;
    }
    ensure!(claims <= 10, "100 events of one partition of 8 come within 10 claims of 20: took {claims}");
    Ok(())
}
