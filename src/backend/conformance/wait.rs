//! Waiting ends when there may be work.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinHandle;

use super::Store;
use super::kit::{LONG, MANY, PATIENCE, SHORT, Scene, Take, ensure_eq, name, places, retry};
use crate::backend::{Error, RewindKind};
use crate::event::{GroupKey, Leased};
use crate::outcome::Verdict;

/// Longer than any check's patience: a wait that ends in time did not just time out.
const FOR_EVER: Duration = Duration::from_secs(600);

/// What an idle consumer does: claims, and waits where there is nothing.
fn idle_consumer(scene: &Scene) -> JoinHandle<Result<Vec<Leased>>> {
    let scene = scene.clone();
    tokio::spawn(async move {
        loop {
            let claimed = scene.take(Take::by("idle")).await?.leased;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            scene.backend.wait(&scene.group, &scene.partitions, FOR_EVER).await?;
        }
    })
}

/// The consumer's events; fails where it sleeps on.
async fn woken(what: &str, consumer: JoinHandle<Result<Vec<Leased>>>) -> Result<Vec<Leased>> {
    let abort = consumer.abort_handle();
    let Ok(ended) = tokio::time::timeout(PATIENCE, consumer).await else {
        abort.abort();
        anyhow::bail!("a waiting consumer is woken by {what}: it was not within {PATIENCE:?}");
    };
    ended?
}

/// Gives a consumer the time to begin its wait. Where it needs longer the check still holds, it
/// only sees another order of events.
async fn let_it_begin() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// With nothing to do a wait ends with its timeout.
pub async fn ends_with_its_timeout(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 1).await?;
    scene.claim_all("a", 2).await?;
    let wait = scene.backend.wait(&scene.group, &scene.partitions, SHORT);
    ensure!(tokio::time::timeout(PATIENCE, wait).await.is_ok_and(|ended| ended.is_ok()), "a wait times out");
    let wait = scene.backend.wait(&scene.group, &scene.partitions, Duration::ZERO);
    ensure!(
        tokio::time::timeout(PATIENCE, wait).await.is_ok_and(|ended| ended.is_ok()),
        "so does one of 0 ms"
    );
    Ok(())
}

/// A wait that begins with work at hand ends at once: for a new, a released and a due event.
pub async fn ends_when_work_is_there(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 1).await?;
    let ends = async |what: &str| {
        let began = Instant::now();
        let wait = scene.backend.wait(&scene.group, &scene.partitions, FOR_EVER);
        let ended = tokio::time::timeout(PATIENCE, wait).await;
        ensure!(
            ended.is_ok_and(|ended| ended.is_ok()),
            "a wait ends when {what} is there: it went on for {:?}",
            began.elapsed()
        );
        Ok(())
    };
    ends("a new event").await?;
    let held = scene.claim_all("a", 2).await?;
    scene.done(&held[0].lease, Verdict::Release).await?;
    ends("a released event").await?;
    let again = scene.claim_one("a", LONG).await?;
    scene.done(&again.lease, retry(Duration::ZERO)).await?;
    ends("a due retry").await
}

/// An append wakes who waits, whatever the partition.
pub async fn ends_with_an_append(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 3, MANY).await?;
    for partition in [2, 0, 1] {
        let consumer = idle_consumer(&scene);
        let_it_begin().await;
        scene.append(partition, 1).await?;
        let found = woken("an append", consumer).await?;
        ensure_eq("the new event is delivered", places(&found), vec![(partition, 1)])?;
    }
    Ok(())
}

/// An append by another process wakes who waits.
pub async fn ends_with_an_append_through_another_handle(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, MANY).await?;
    let other = scene.through(store.other().await?);
    let consumer = idle_consumer(&scene);
    let_it_begin().await;
    other.append(1, 1).await?;
    let found = woken("an append through another handle", consumer).await?;
    ensure_eq("the new event is delivered", places(&found), vec![(1, 1)])
}

/// A release wakes who waits, through this handle or another one.
pub async fn ends_with_a_release(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let other = scene.through(store.other().await?);
    let mut held = scene.claim_one("a", LONG).await?;
    for handle in [&scene, &other] {
        let consumer = idle_consumer(&scene);
        let_it_begin().await;
        handle.done(&held.lease, Verdict::Release).await?;
        let found = woken("a release", consumer).await?;
        ensure_eq("the released event is delivered", places(&found), vec![(0, 1)])?;
        held = found.into_iter().next().ok_or_else(|| anyhow::anyhow!("one event is delivered"))?;
    }
    Ok(())
}

/// A retry wakes who waits once it is due, also where it was parked after the wait began.
pub async fn ends_when_a_retry_is_due(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let held = scene.claim_all("a", 2).await?;
    scene.done(&held[0].lease, retry(SHORT)).await?;
    let consumer = idle_consumer(&scene);
    let_it_begin().await;
    store.pass(SHORT * 2).await;
    let found = woken("a retry that is due", consumer).await?;
    ensure_eq("the parked event is delivered", places(&found), vec![(0, 1)])?;
    let consumer = idle_consumer(&scene);
    let_it_begin().await;
    scene.done(&held[1].lease, retry(SHORT)).await?;
    let_it_begin().await;
    store.pass(SHORT * 2).await;
    let found = woken("a retry that was parked meanwhile", consumer).await?;
    ensure_eq("the parked event is delivered", places(&found), vec![(0, 2)])
}

/// A redrive wakes who waits, through this handle or another one.
pub async fn ends_with_a_redrive(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let other = scene.through(store.other().await?);
    let mut held = scene.claim_one("a", LONG).await?;
    for handle in [&scene, &other] {
        scene.reject_all(&[held]).await?;
        let consumer = idle_consumer(&scene);
        let_it_begin().await;
        handle.redrive_all().await?;
        let found = woken("a redrive", consumer).await?;
        ensure_eq("the redriven event is delivered", places(&found), vec![(0, 1)])?;
        held = found.into_iter().next().ok_or_else(|| anyhow::anyhow!("one event is delivered"))?;
    }
    Ok(())
}

/// The end of a replay wakes who waits, through this handle or another one.
pub async fn ends_with_a_replay(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 1).await?;
    let other = scene.through(store.other().await?);
    let held = scene.claim_all("a", 2).await?;
    scene.ack_all(&held).await?;
    for handle in [&scene, &other] {
        let consumer = idle_consumer(&scene);
        let_it_begin().await;
        handle.rewind(RewindKind::Replay, &[(1, 0)]).await?;
        let found = woken("a replay", consumer).await?;
        ensure_eq("the event is delivered again", places(&found), vec![(1, 1)])?;
        scene.ack_all(&found).await?;
    }
    Ok(())
}

/// A missing stream or group is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, MANY).await?;
    let nowhere = GroupKey::new(name("nowhere")?, name("workers")?);
    let nobody = GroupKey::new(scene.group.stream.clone(), name("nobody")?);
    let wait = async |group| scene.backend.wait(group, &[0], SHORT).await;
    ensure_err!("wait on a missing stream", wait(&nowhere).await, Error::StreamNotFound(_));
    ensure_err!("wait for a missing group", wait(&nobody).await, Error::GroupNotFound(_));
    Ok(())
}
