//! Retention: old events go, but none that a group still needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use super::Store;
use super::kit::{
    LONG, MANY, SHORT, Scene, ack, ensure_eq, ensure_none, name, reject, retry, sequences, until,
};
use crate::backend::RewindKind::Delete;
use crate::backend::{Error, Held, Start, Trim, Trimmed};
use crate::outcome::Verdict;

/// A trim without bounds.
const TRIM: Trim = Trim { partition: 0, max_length: None, max_age: None, until: None, force: false };

/// So many events went, and nothing holds the rest.
fn went(removed: u64) -> Trimmed {
    Trimmed { removed, more: false, held: None }
}

/// A stream without groups, with events in each partition.
async fn without_groups(store: &dyn Store, partitions: u32, events: usize) -> Result<Scene> {
    let scene = Scene::with_events(store, partitions, MANY, events).await?;
    scene.rewind(Delete, &[]).await?;
    Ok(scene)
}

/// All but the newest go, as many as the bound says.
pub async fn keeps_the_newest(store: &dyn Store) -> Result<()> {
    let scene = without_groups(store, 2, 10).await?;
    ensure_eq("no bound", scene.trim(TRIM).await?, went(0))?;
    for (max_length, removed) in [(11, 0), (10, 0), (7, 3), (7, 0), (u64::MAX, 0)] {
        let trim = Trim { max_length: Some(max_length), ..TRIM };
        ensure_eq("what is above the length goes", scene.trim(trim).await?, went(removed))?;
    }
    ensure_eq("the newest stay", scene.logged(0).await?, (4..=10).collect::<Vec<_>>())?;
    ensure_eq("another partition is whole", scene.logged(1).await?.len(), 10)?;
    let info = scene.backend.stream_info(&scene.group.stream).await?;
    let states: Vec<_> = info.partitions.iter().map(|p| (p.high_watermark, p.length, p.first)).collect();
    ensure_eq("stream info says so", states, vec![(10, 7, Some(4)), (10, 10, Some(1))])?;
    ensure_eq("all go", scene.trim(Trim { max_length: Some(0), ..TRIM }).await?, went(7))?;
    ensure_eq("nothing is left", scene.trim(Trim { max_length: Some(0), ..TRIM }).await?, went(0))?;
    let info = scene.backend.stream_info(&scene.group.stream).await?;
    let states: Vec<_> = info.partitions.iter().map(|p| (p.high_watermark, p.length, p.first)).collect();
    ensure_eq("an emptied partition keeps its count", states, vec![(10, 0, None), (10, 10, Some(1))])?;
    let appended = scene.backend.append(&scene.group.stream, &[super::kit::numbered_in(0, 1)?]).await?;
    ensure_eq("sequences go on", appended.iter().map(|a| a.sequence).collect::<Vec<_>>(), vec![11])?;
    ensure_eq("with it in the log", scene.logged(0).await?, vec![11])
}

/// What is up to a sequence goes.
pub async fn goes_up_to_a_sequence(store: &dyn Store) -> Result<()> {
    let scene = without_groups(store, 2, 6).await?;
    let up_to = |partition, until| Trim { partition, until: Some(until), ..TRIM };
    let mut gone = 0;
    for (until, removed) in [(0, 0), (2, 2), (1, 0), (2, 0), (5, 3), (1_000_000, 1), (u64::MAX, 0)] {
        let trimmed = scene.trim(up_to(1, until)).await?;
        ensure_eq("what is up to the sequence goes", trimmed, went(removed))?;
        gone += removed;
        ensure_eq("what is above stays", scene.logged(1).await?, (gone + 1..=6).collect::<Vec<_>>())?;
    }
    ensure_eq("another partition is whole", scene.logged(0).await?.len(), 6)
}

/// What was appended longer ago goes.
pub async fn goes_by_age(store: &dyn Store) -> Result<()> {
    const GAP: Duration = Duration::from_millis(400);
    // Where time cannot be stopped, a look that came too late proves nothing: then once more.
    let mut partition = 0;
    let scene = without_groups(store, 20, 0).await?;
    until("a trim by age comes in time", async || {
        scene.append(partition, 3).await?;
        store.pass(GAP).await;
        let began = Instant::now();
        scene.append(partition, 2).await?;
        let old = Trim { partition, max_age: Some(LONG), ..TRIM };
        ensure_eq("nothing is so old", scene.trim(old).await?, went(0))?;
        let age = if store.moves_time() { GAP / 2 } else { began.elapsed() + GAP / 2 };
        let trimmed = scene.trim(Trim { max_age: Some(age), ..old }).await?;
        ensure!(trimmed.removed >= 3, "what is older goes: found {trimmed:?}");
        let in_time = store.moves_time() || began.elapsed() < age;
        ensure!(!in_time || trimmed == went(3), "and nothing else: found {trimmed:?}");
        partition += 1;
        Ok(in_time.then_some(()))
    })
    .await?;
    let partition = partition - 1;
    ensure_eq("the newer ones stay", scene.logged(partition).await?, vec![4, 5])?;
    store.pass(SHORT).await;
    let trim = Trim { partition, max_age: Some(Duration::ZERO), ..TRIM };
    ensure_eq("in the end all are older", scene.trim(trim).await?, went(2))
}

/// An event goes where one of the bounds says so.
pub async fn goes_where_one_bound_says_so(store: &dyn Store) -> Result<()> {
    let scene = without_groups(store, 1, 12).await?;
    let both = |until, max_length| Trim {
        until: Some(until),
        max_length: Some(max_length),
        max_age: Some(LONG),
        ..TRIM
    };
    ensure_eq("the sequence says so", scene.trim(both(3, 100)).await?, went(3))?;
    ensure_eq("the length says so", scene.trim(both(2, 6)).await?, went(3))?;
    ensure_eq("neither says so", scene.trim(both(6, 6)).await?, went(0))?;
    store.pass(SHORT).await;
    let aged = Trim { max_age: Some(Duration::ZERO), ..both(0, 100) };
    ensure_eq("the age says so", scene.trim(aged).await?, went(6))
}

/// However much there is, each step is bounded, and says whether there is more.
pub async fn goes_in_bounded_steps(store: &dyn Store) -> Result<()> {
    const EVENTS: u64 = 6000;
    let scene = without_groups(store, 1, 6000).await?;
    let trim = Trim { max_length: Some(10), ..TRIM };
    let first = scene.backend.trim(&scene.group.stream, trim).await?;
    ensure!(first.more && first.removed > 0, "so many take more than one step: found {first:?}");
    let left = EVENTS - first.removed;
    let info = scene.backend.stream_info(&scene.group.stream).await?;
    let states: Vec<_> = info.partitions.iter().map(|p| (p.high_watermark, p.length, p.first)).collect();
    let expected = vec![(EVENTS, left, Some(first.removed + 1))];
    ensure_eq("each step leaves a log in order", states, expected)?;
    ensure_eq("the rest goes", scene.trim(trim).await?, went(left - 10))?;
    ensure_eq("down to the bound", scene.logged(0).await?, (EVENTS - 9..=EVENTS).collect::<Vec<_>>())
}

/// Nothing goes that a group has not settled: the one that holds the lowest event is named.
pub async fn stops_before_what_a_group_needs(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 8).await?;
    let slow = scene.with_group("slow", MANY, Start::Beginning).await?;
    let held = |scene: &Scene, sequence| Some(Held { group: scene.group.group.clone(), sequence });
    let all = Trim { max_length: Some(0), ..TRIM };
    let fast_held = scene.claim_all("a", 16).await?;
    scene.ack_all(&fast_held).await?;
    let slow_held = slow.claim_all("a", 16).await?;
    let mine: Vec<_> = slow_held.into_iter().filter(|l| l.event.partition == 0).collect();
    let trimmed = scene.trim(all).await?;
    ensure_eq("leased events hold", (trimmed.removed, trimmed.held), (0, held(&slow, 1)))?;
    slow.ack_all(&mine[..2]).await?;
    slow.done(&mine[2].lease, retry(LONG)).await?;
    slow.ack_all(&mine[3..5]).await?;
    let trimmed = scene.trim(Trim { until: Some(2), ..TRIM }).await?;
    ensure_eq("what is settled goes", trimmed, went(2))?;
    let trimmed = scene.trim(all).await?;
    ensure_eq("a parked event holds", (trimmed.removed, trimmed.held), (0, held(&slow, 3)))?;
    ensure_eq("and all above it", scene.logged(0).await?, (3..=8).collect::<Vec<_>>())?;
    let late = scene.with_group("late", MANY, Start::Beginning).await?;
    let trimmed = scene.trim(all).await?;
    let holder = trimmed.held.map(|held| held.sequence);
    ensure_eq("a new group holds too", (trimmed.removed, holder), (0, Some(3)))?;
    slow.rewind(Delete, &[]).await?;
    let trimmed = scene.trim(all).await?;
    ensure_eq("an undelivered event holds", (trimmed.removed, trimmed.held), (0, held(&late, 3)))?;
    let mine = late.take(super::kit::Take::by("a").partitions(&[0])).await?.leased;
    late.ack_all(&mine).await?;
    ensure_eq("once all have settled, all goes", scene.trim(all).await?, went(6))?;
    let trimmed = scene.trim(Trim { partition: 1, ..all }).await?;
    ensure_eq("each partition for itself", (trimmed.removed, trimmed.held), (0, held(&late, 1)))
}

/// Groups go on over a trimmed log.
pub async fn leaves_groups_at_work(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 6).await?;
    let held = scene.claim("a", 4).await?;
    scene.ack_all(&held[..2]).await?;
    let trimmed = scene.trim(Trim { until: Some(2), ..TRIM }).await?;
    ensure_eq("what is settled goes", trimmed, went(2))?;
    let state = scene.partition(0).await?;
    let counts = (state.frontier, state.in_flight, state.missing);
    ensure_eq("a group is as it was", counts, (2, 2, 0))?;
    scene.done(&held[3].lease, ack()).await?;
    scene.done(&held[2].lease, retry(Duration::ZERO)).await?;
    let rest = scene.claim_all("b", 3).await?;
    ensure_eq("and goes on", sequences(&rest), vec![3, 5, 6])?;
    scene.ack_all(&rest).await?;
    scene.ensure_drained().await?;
    ensure_eq("then all goes", scene.trim(Trim { until: Some(6), ..TRIM }).await?, went(4))?;
    scene.ensure_drained().await?;
    scene.append(0, 1).await?;
    let next = scene.claim_only("b").await?;
    scene.done(&next.lease, ack()).await?;
    scene.ensure_drained().await
}

/// By force it goes whatever the groups need; they count what they miss, and go on behind it.
pub async fn goes_by_force(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 9).await?;
    let other = scene.with_group("others", MANY, Start::End).await?;
    let held = scene.claim("a", 5).await?;
    scene.ack_all(&held[..1]).await?;
    scene.ack_all(&held[3..4]).await?;
    scene.done(&held[2].lease, retry(Duration::ZERO)).await?;
    // 1 and 4 are acked, 2 and 5 leased, 3 parked, 6 to 9 new.
    let forced = Trim { until: Some(7), force: true, ..TRIM };
    ensure_eq("nothing holds", scene.trim(forced).await?, went(7))?;
    let rest = scene.claim_all("b", 2).await?;
    ensure_eq("what is left is delivered", sequences(&rest), vec![8, 9])?;
    scene.ack_all(&rest).await?;
    until("the group passes what went", async || {
        scene.backend.heal(&scene.group, 0).await?;
        ensure_none("nothing of it is delivered", &scene.claim("b", 10).await?)?;
        Ok((scene.partition(0).await?.lag() == 0).then_some(()))
    })
    .await?;
    scene.ensure_drained().await?;
    let state = scene.partition(0).await?;
    ensure_eq("what was not settled is missing", state.missing, 5)?;
    other.ensure_drained().await?;
    ensure_eq("for a group that had settled it nothing is", other.partition(0).await?.missing, 0)
}

/// While events are appended, handled, redriven and read, trims take nothing that is needed.
pub async fn loses_nothing_among_busy_consumers(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 150;
    let scene = Scene::new(store, 1, MANY).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = JoinSet::new();
    for n in 0..3 {
        let handle = if n % 2 == 0 { store.backend() } else { store.other().await? };
        workers.spawn(handle_events(scene.through(handle), format!("worker-{n}"), stop.clone()));
    }
    let other = scene.through(store.other().await?);
    let (mut removed, mut read) = (0, 0);
    let trim = Trim { max_length: Some(3), ..TRIM };
    for _ in 0..EVENTS / 5 {
        scene.append(0, 5).await?;
        let rows = scene.rows().await?;
        scene.backend.redrive(&scene.group, &rows[..rows.len().min(50)]).await?;
        removed += other.trim(trim).await?.removed;
        for event in other.backend.read(&scene.group.stream, 0, read, 20).await? {
            ensure!(event.sequence > read, "a scan goes forward: {} after {read}", event.sequence);
            read = event.sequence;
        }
    }
    until("everything is settled, and trimmed", async || {
        removed += other.trim(trim).await?.removed;
        let state = scene.partition(0).await?;
        // Looked at in this order: once nothing is unsettled, no new row comes.
        let rows = scene.rows().await?;
        scene.backend.redrive(&scene.group, &rows[..rows.len().min(50)]).await?;
        let settled = state.lag() == 0 && state.redriven == 0 && rows.is_empty();
        Ok((settled && removed == EVENTS as u64 - 3).then_some(()))
    })
    .await?;
    stop.store(true, Ordering::SeqCst);
    let mut acked = Vec::new();
    while let Some(ended) = workers.join_next().await {
        acked.extend(ended??);
    }
    acked.sort_unstable();
    let all: Vec<u64> = (1..=EVENTS as u64).collect();
    ensure_eq("each event was acked, once", acked, all)?;
    ensure_eq("nothing is missing", scene.partition(0).await?.missing, 0)?;
    scene.ensure_drained().await
}

/// Claims, and rejects some, acks others, until told to stop. The sequences that it acked.
async fn handle_events(scene: Scene, consumer: String, stop: Arc<AtomicBool>) -> Result<Vec<u64>> {
    let mut acked = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        for leased in scene.claim(&consumer, 4).await? {
            let verdict = if rand::random_range(0..4) == 0 { reject() } else { ack() };
            if matches!(verdict, Verdict::Ack(_)) {
                acked.push(leased.event.sequence);
            }
            scene.done(&leased.lease, verdict).await?;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(acked)
}

/// A missing stream or partition is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 2).await?;
    let trimmed = scene.backend.trim(&name("nowhere")?, TRIM).await;
    ensure_err!("trim of a missing stream", trimmed, Error::StreamNotFound(_));
    let trimmed = scene.backend.trim(&scene.group.stream, Trim { partition: 2, ..TRIM }).await;
    ensure_err!(
        "trim of a missing partition",
        trimmed,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    let empty = name("empty")?;
    scene.backend.create_stream(&empty, 1).await?;
    let trimmed = scene.backend.trim(&empty, Trim { max_length: Some(0), ..TRIM }).await?;
    ensure_eq("an empty log has nothing to lose", trimmed, went(0))
}
