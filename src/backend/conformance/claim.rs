//! Claiming what is new (invariants 3, 8 and 9).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::Store;
use super::kit::{MANY, PATIENCE, Scene, Take, ensure_eq, ensure_none, name, sequences, settlement};
use crate::backend::{ClaimRequest, Error, Settled, Start};
use crate::event::{GroupKey, Leased};
use crate::outcome::Verdict;

/// With enough ready work in a partition a claim gives exactly its limit.
pub async fn gives_exactly_the_limit(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 5, 5).await?;
    let first = scene.claim("a", 2).await?;
    ensure_eq("a claim of 2 from 5", sequences(&first), vec![1, 2])?;
    let second = scene.claim("b", 2).await?;
    ensure_eq("the next claim of 2", sequences(&second), vec![3, 4])?;
    let third = scene.claim("a", 2).await?;
    ensure_eq("what is left", sequences(&third), vec![5])?;
    ensure_none("then there is nothing", &scene.claim("b", 2).await?)?;
    for leased in [first, second, third] {
        scene.ack_all(&leased).await?;
    }
    scene.ensure_drained().await
}

/// Within a partition a claim gives events in sequence order.
pub async fn gives_events_in_order(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 3, 5, 20).await?;
    let mut seen = [0u64; 3];
    while seen.iter().sum::<u64>() < 60 {
        let claimed = scene.claim("a", 7).await?;
        ensure!(!claimed.is_empty(), "a claim gives something while something is ready: after {seen:?}");
        for leased in claimed {
            let seen = &mut seen[leased.event.partition as usize];
            ensure_eq("sequence order within a partition", leased.event.sequence, *seen + 1)?;
            *seen += 1;
        }
    }
    gives_old_and_new_in_order(&scene).await
}

/// The same where some of the events come back and others are new.
async fn gives_old_and_new_in_order(scene: &Scene) -> Result<()> {
    scene.append(0, 10).await?;
    let new = scene.claim_all("a", 10).await?;
    let back: Vec<_> = new
        .iter()
        .filter(|l| l.event.sequence % 2 == 0)
        .map(|l| settlement(&l.lease, Verdict::Release))
        .collect();
    ensure_eq("releases are taken", scene.settle("a", &back).await?, vec![Settled::Done; 5])?;
    scene.append(0, 10).await?;
    let mut claims = 0;
    for _ in 0..5 {
        let found = sequences(&scene.claim("a", 6).await?);
        ensure!(found.is_sorted(), "old and new events of a claim are in sequence order: found {found:?}");
        claims += found.len();
    }
    ensure_eq("all of them come", claims, 15)
}

/// A claimed event is the stored one, with a lease that describes it.
pub async fn gives_the_whole_event(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, 5, 4).await?;
    for leased in scene.claim_all("a", 8).await? {
        let Leased { event, lease } = leased;
        let stored = scene.backend.read(&event.stream, event.partition, event.sequence - 1, 1).await?;
        ensure_eq("the claimed event is the stored one", vec![event.clone()], stored)?;
        let place = (lease.partition, lease.sequence, lease.attempt);
        ensure_eq("the lease names the event's place", place, (event.partition, event.sequence, 1))?;
        ensure_eq("a lease id has 22 characters", lease.id.len(), 22)?;
        ensure!(!lease.receipt.is_empty(), "a lease has a receipt");
    }
    Ok(())
}

/// A claim takes from the partitions that it names, and from no other.
pub async fn takes_only_the_partitions_named(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 3, 5, 3).await?;
    let mut found = Vec::new();
    for _ in 0..6 {
        let claimed = scene.take(Take::by("a").partitions(&[2, 0]).limit(4)).await?;
        found.extend(claimed.leased.iter().map(|l| (l.event.partition, l.event.sequence)));
    }
    found.sort_unstable();
    let expected = vec![(0, 1), (0, 2), (0, 3), (2, 1), (2, 2), (2, 3)];
    ensure_eq("only the partitions named", found, expected)?;
    let state = scene.partition(1).await?;
    ensure_eq("the other partition is untouched", (state.in_flight, state.frontier), (0, 0))
}

/// A missing stream, group or partition is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, 5, 1).await?;
    let backend = &scene.backend;
    let request = |group, partitions| ClaimRequest {
        group,
        consumer: "a",
        partitions,
        limit: 10,
        lease: Duration::from_secs(60),
        sweep: true,
        alone: false,
    };
    let missing = GroupKey::new(name("nowhere")?, name("workers")?);
    ensure_err!(
        "claim on a missing stream",
        backend.claim(&request(&missing, &[0])).await,
        Error::StreamNotFound(stream) if stream == missing.stream
    );
    let missing = GroupKey::new(scene.group.stream.clone(), name("nobody")?);
    ensure_err!(
        "claim for a missing group",
        backend.claim(&request(&missing, &[0])).await,
        Error::GroupNotFound(group) if group == missing
    );
    ensure_err!(
        "claim from a missing partition",
        backend.claim(&request(&scene.group, &[0, 2])).await,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    ensure_eq("a refused claim leases nothing", scene.partition(0).await?.in_flight, 0)
}

/// What one group does leaves the others alone.
pub async fn serves_groups_independently(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, 5, 3).await?;
    let other = scene.with_group("others", 3, Start::Beginning).await?;
    let all = scene.claim_all("a", 6).await?;
    scene.ack_all(&all).await?;
    scene.ensure_drained().await?;
    let info = other.info().await?;
    ensure_eq("the other group's lag is untouched", info.lag(|_| true), 6)?;
    ensure_eq("the other group keeps its own cap", info.max_attempts, 3)?;
    let all = other.claim_all("a", 6).await?;
    ensure!(all.iter().all(|l| l.lease.attempt == 1), "another group's attempts do not count here");
    ensure_eq("all of it is in flight", other.partition(0).await?.in_flight, 3)
}

/// However many consumers claim at once, no event is leased twice.
pub async fn leases_each_event_once_among_many(store: &dyn Store) -> Result<()> {
    const CONSUMERS: usize = 8;
    const EVENTS: usize = 120;
    let scene = Scene::with_events(store, 4, MANY, EVENTS).await?;
    let taken = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..CONSUMERS {
        let handle = if n % 2 == 0 { store.backend() } else { store.other().await? };
        let (scene, taken) = (scene.through(handle), taken.clone());
        tasks.spawn(async move {
            let (consumer, mut held) = (format!("consumer-{n}"), Vec::new());
            let deadline = Instant::now() + PATIENCE;
            while taken.load(Ordering::Relaxed) < 4 * EVENTS && Instant::now() < deadline {
                // Sweeps must not take what others have just been given.
                let claimed = scene.take(Take::by(&consumer).limit(7).sweep()).await?;
                taken.fetch_add(claimed.leased.len(), Ordering::Relaxed);
                held.extend(claimed.leased);
            }
            anyhow::Ok(held)
        });
    }
    let mut all = Vec::new();
    while let Some(held) = tasks.join_next().await {
        all.extend(held??);
    }
    let places: HashSet<_> = all.iter().map(|l| (l.event.partition, l.event.sequence)).collect();
    ensure_eq("every event is leased", places.len(), 4 * EVENTS)?;
    ensure_eq("no event is leased twice while its lease holds", all.len(), 4 * EVENTS)?;
    ensure!(all.iter().all(|l| l.lease.attempt == 1), "each is at its first attempt");
    scene.ensure_nothing("nothing is left").await?;
    scene.ack_all(&all).await?;
    scene.ensure_drained().await
}
