//! Leases: fenced, renewed, passed on when they run out (invariants 3 and 4).

use std::collections::HashSet;

use anyhow::{Result, ensure};

use super::Store;
use super::kit::{
    LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, ensure_none, places, reject, retry, sequences, settlement,
};
use crate::backend::{PendingState, Settled, Start};
use crate::outcome::Verdict;

/// While a lease holds, no one else gets its event, sweep or not.
pub async fn are_left_alone_while_they_hold(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 5).await?;
    let held = scene.claim_all("a", 10).await?;
    store.pass(SHORT).await;
    scene.ensure_nothing("a live lease is not taken over").await?;
    let claimed = scene.take(Take::by("a").sweep()).await?;
    ensure_none("nor by its own holder", &places(&claimed.leased))?;
    scene.ack_all(&held).await
}

/// A lease that ran out passes to another consumer: the same event, one attempt more, a new lease.
pub async fn pass_on_when_they_run_out(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let first = scene.claim_one("a", SHORT).await?;
    store.pass(SHORT * 2).await;
    let second = scene.reclaim("b").await?;
    ensure_eq("the same event", &second.event, &first.event)?;
    ensure_eq("the attempts", (first.lease.attempt, second.lease.attempt), (1, 2))?;
    ensure_eq("the receipt stays", &second.lease.receipt, &first.lease.receipt)?;
    ensure!(second.lease.id != first.lease.id, "a new lease has a new id");
    scene.done(&second.lease, ack()).await?;
    scene.ensure_drained().await
}

/// No two deliveries of an entry share a lease id.
pub async fn give_a_new_token_each_time(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let mut tokens = HashSet::new();
    for attempt in 1..=20 {
        for leased in scene.claim_all("a", 2).await? {
            ensure_eq("each delivery counts", leased.lease.attempt, attempt)?;
            let new = tokens.insert((leased.event.sequence, leased.lease.id.clone()));
            ensure!(new, "no two deliveries share a lease id: found {:?} again", leased.lease);
            scene.done(&leased.lease, retry(std::time::Duration::ZERO)).await?;
        }
    }
    Ok(())
}

/// Whose lease was taken over can neither renew nor settle, and changes nothing by trying.
pub async fn refuse_a_stale_holder_everything(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let old = scene.claim_one("a", SHORT).await?.lease;
    store.pass(SHORT * 2).await;
    let new = scene.reclaim("b").await?.lease;
    let before = (scene.info().await?, scene.backend.pending(&scene.group, 0, None, 10).await?);
    for verdict in [ack(), retry(std::time::Duration::ZERO), reject(), Verdict::Release] {
        let what = format!("{verdict:?} under a lease that was taken over");
        ensure_eq(&what, scene.verdict(&old, verdict).await?, Settled::Stale)?;
    }
    ensure_eq("renewal of a lease that was taken over", scene.renew(&old, LONG).await?, Settled::Stale)?;
    let after = (scene.info().await?, scene.backend.pending(&scene.group, 0, None, 10).await?);
    ensure_eq("a stale holder leaves the group's state", after.0, before.0)?;
    let holders = |entries: &[crate::backend::PendingEntry]| -> Vec<_> {
        let holder = |state: &PendingState| match state {
            PendingState::Leased { consumer, .. } => consumer.clone(),
            PendingState::Parked { .. } => "parked".to_owned(),
        };
        entries.iter().map(|e| (e.sequence, e.attempt, holder(&e.state))).collect()
    };
    ensure_eq("a stale holder leaves the lease to who has it", holders(&after.1), holders(&before.1))?;
    scene.ensure_nothing("a stale holder frees nothing").await?;
    scene.done(&new, ack()).await?;
    scene.ensure_drained().await
}

/// A lease that ran out and was not taken over still settles, whatever the verdict.
pub async fn outlive_their_time_until_taken(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 4).await?;
    let held = scene.take(Take::by("a").limit(4).lease(SHORT)).await?.leased;
    store.pass(SHORT * 2).await;
    let verdicts = [ack(), retry(LONG), reject(), Verdict::Release];
    let batch: Vec<_> = held.iter().zip(verdicts).map(|(l, verdict)| settlement(&l.lease, verdict)).collect();
    let settled = scene.settle("a", &batch).await?;
    ensure_eq("expired leases that no one took settle", settled, vec![Settled::Done; 4])?;
    let left = scene.claim("b", 10).await?;
    ensure_eq("only the released event is ready", sequences(&left), vec![4])?;
    let state = scene.partition(0).await?;
    ensure_eq("the ack moved the frontier, the retry holds it", state.frontier, 1)?;
    ensure_eq("the reject is a dead letter", scene.info().await?.dead_letters, 1)
}

/// Without a sweep a claim does not look for leases that ran out.
pub async fn are_taken_back_by_sweeps_only(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let held = scene.take(Take::by("a").lease(SHORT)).await?.leased;
    store.pass(SHORT * 2).await;
    for _ in 0..5 {
        ensure_none("a claim without sweep takes no expired lease", &scene.claim("b", 10).await?)?;
    }
    ensure_eq("a lease that ran out is in flight", scene.partition(0).await?.in_flight, 3)?;
    let mut taken = Vec::new();
    for _ in 0..held.len() {
        taken.push(scene.reclaim("b").await?);
    }
    taken.sort_by_key(|l| l.event.sequence);
    ensure_eq("sweeps take them all", sequences(&taken), vec![1, 2, 3])
}

/// A renewed lease holds past its old end, under the same id and attempt.
pub async fn last_as_long_as_they_are_renewed(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 2).await?;
    let held = scene.take(Take::by("a").limit(4).lease(SHORT)).await?.leased;
    ensure_eq("everything is held", held.len(), 4)?;
    let leases: Vec<_> = held.iter().map(|l| l.lease.clone()).collect();
    let renewed = scene.backend.renew(&scene.group, &leases, LONG).await?;
    ensure_eq("live leases are renewed", renewed, vec![Settled::Done; 4])?;
    store.pass(SHORT * 2).await;
    scene.ensure_nothing("a renewed lease is not taken over").await?;
    for entry in scene.backend.pending(&scene.group, 0, None, 10).await? {
        let left = entry.state.claimable_in_ms();
        ensure!(left > i64::try_from(SHORT.as_millis())?, "renewal moves the end: {left} ms left");
        ensure_eq("renewal leaves the attempt", entry.attempt, 1)?;
    }
    scene.ack_all(&held).await?;
    scene.ensure_drained().await
}

/// A lease that ran out and was not taken over is renewed.
pub async fn renew_after_their_time_until_taken(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let held = scene.claim_one("a", SHORT).await?;
    store.pass(SHORT * 2).await;
    ensure_eq("an expired lease that no one took", scene.renew(&held.lease, LONG).await?, Settled::Done)?;
    scene.ensure_nothing("once renewed it holds again").await?;
    scene.done(&held.lease, ack()).await?;
    ensure_eq("a settled lease is not renewed", scene.renew(&held.lease, LONG).await?, Settled::Stale)?;
    scene.ensure_drained().await
}

/// Leases that ran out are found behind, between and before many that hold.
pub async fn are_found_behind_many_live_ones(store: &dyn Store) -> Result<()> {
    const LIVE: usize = 350;
    let scene = Scene::with_events(store, 1, MANY, 2 * LIVE + 3).await?;
    let mut expired = vec![scene.claim_one("dying", SHORT).await?];
    let mut live = scene.claim_all("living", LIVE).await?;
    expired.push(scene.claim_one("dying", SHORT).await?);
    live.extend(scene.claim_all("living", LIVE).await?);
    expired.push(scene.claim_one("dying", SHORT).await?);
    store.pass(SHORT * 2).await;
    let mut found = Vec::new();
    for _ in 0..expired.len() {
        found.push(scene.reclaim("b").await?);
    }
    found.sort_by_key(|l| l.event.sequence);
    ensure_eq("every expired lease is found", sequences(&found), sequences(&expired))?;
    scene.ensure_nothing("and no live one is taken").await?;
    scene.ack_all(&live).await?;
    scene.ack_all(&found).await?;
    scene.ensure_drained().await
}

/// A lease of one group settles nothing in another.
pub async fn belong_to_one_group(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let other = scene.with_group("others", MANY, Start::Beginning).await?;
    let here = scene.claim_one("a", LONG).await?;
    ensure_eq(
        "a lease in a group that never delivered",
        other.verdict(&here.lease, ack()).await?,
        Settled::Stale,
    )?;
    let there = other.claim_one("a", LONG).await?;
    ensure_eq("a lease of another group", other.verdict(&here.lease, ack()).await?, Settled::Stale)?;
    ensure_eq("its renewal", other.renew(&here.lease, LONG).await?, Settled::Stale)?;
    scene.done(&here.lease, ack()).await?;
    ensure_eq("the other group still holds its own", other.partition(0).await?.in_flight, 1)?;
    other.done(&there.lease, ack()).await
}
