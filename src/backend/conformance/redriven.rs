//! What a redriven event can meet: everything that another event can, and trims and rewinds.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Store;
use super::control_kit::{ensure_afresh, events};
use super::kit::{
    LONG, MANY, SHORT, Scene, ack, ensure_eq, ensure_none, name, reject, retry, sequences, until,
};
use crate::backend::RewindKind::{Replay, Reset};
use crate::backend::{DeadEvent, Held, NewGroup, PendingState, RewindKind, Settled, Start, Trim};
use crate::event::{Event, GroupKey, JsonObject, Leased, NewEvent};
use crate::outcome::{Cause, FailureKind, Verdict};

/// A group of which the given events of its only partition were rejected and redriven, and the
/// others acked.
async fn with_redriven(store: &dyn Store, max_attempts: u32, events: usize, dead: &[u64]) -> Result<Scene> {
    let scene = Scene::with_events(store, 1, max_attempts, events).await?;
    let held = scene.claim_all("a", events).await?;
    let (dead, acked): (Vec<_>, Vec<_>) = held.into_iter().partition(|l| dead.contains(&l.event.sequence));
    scene.ack_all(&acked).await?;
    scene.reject_all(&dead).await?;
    scene.redrive_all().await?;
    Ok(scene)
}

/// Frontier, in flight, parked, redriven.
async fn counts(scene: &Scene) -> Result<(u64, u64, u64, u64)> {
    let state = scene.partition(0).await?;
    Ok((state.frontier, state.in_flight, state.parked, state.redriven))
}

/// The event of the only dead letter, which must have had so many attempts.
async fn only_dead(scene: &Scene, cause: Cause, attempts: u32) -> Result<Event> {
    let mut letters = scene.letters().await?;
    let letter = letters.pop().context("there is a dead letter")?;
    ensure_none("there is one dead letter", &letters)?;
    ensure_eq("its cause and attempts", (letter.cause, letter.attempts), (Some(cause), Some(attempts)))?;
    match letter.event {
        DeadEvent::Event(event) => Ok(*event),
        raw @ DeadEvent::Raw(_) => anyhow::bail!("a dead letter holds the whole event: found {raw:?}"),
    }
}

/// It can be retried, with and without delay, and keeps its attempts and its failure.
pub async fn can_be_retried(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 2, &[1]).await?;
    let first = scene.claim_only("a").await?;
    scene.done(&first.lease, retry(Duration::ZERO)).await?;
    let second = scene.claim_only("a").await?;
    ensure_eq("the next attempt of the same event", second.lease.attempt, 2)?;
    ensure_eq("the event", &second.event, &first.event)?;
    scene.done(&second.lease, retry(LONG)).await?;
    ensure_eq("it is parked", counts(&scene).await?, (2, 0, 1, 1))?;
    scene.ensure_nothing("a parked event waits").await?;
    let pending = scene.backend.pending(&scene.group, 0, None, 10).await?;
    let entry = pending.first().context("a parked event is pending")?;
    ensure_eq("its place and attempts", (entry.sequence, entry.attempt), (Some(1), 2))?;
    ensure!(matches!(entry.state, PendingState::Parked { due_in_ms } if due_in_ms > 0), "parked: {entry:?}");
    ensure_eq("its failure", entry.failure.clone(), Some((FailureKind::Retry, "not now".to_owned())))
}

/// A short delay ends.
pub async fn comes_back_when_its_retry_is_due(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 3, &[2]).await?;
    let first = scene.claim_only("a").await?;
    scene.done(&first.lease, retry(SHORT)).await?;
    store.pass(SHORT * 2).await;
    let again = until("a due retry is claimed", async || Ok(scene.claim("b", 1).await?.pop())).await?;
    ensure_eq("at its next attempt", (again.event.sequence, again.lease.attempt), (2, 2))?;
    scene.done(&again.lease, ack()).await?;
    ensure_eq("and settles", counts(&scene).await?, (3, 0, 0, 0))
}

/// It can die again, with the whole event, and be redriven again.
pub async fn can_die_again(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 2, &[2]).await?;
    for _ in 0..3 {
        let held = scene.claim_only("a").await?;
        ensure_eq("attempts afresh", held.lease.attempt, 1)?;
        scene.done(&held.lease, reject()).await?;
        ensure_eq("it is settled", counts(&scene).await?, (2, 0, 0, 0))?;
        ensure_eq("its row is back", only_dead(&scene, Cause::Rejected, 1).await?, held.event)?;
        scene.ensure_nothing("a dead letter is not delivered").await?;
        scene.redrive_all().await?;
    }
    Ok(())
}

/// Its attempts are capped as any other's.
pub async fn is_capped_when_leases_run_out(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, 1, 2, &[1]).await?;
    let held = scene.claim_one("a", SHORT).await?;
    store.pass(SHORT * 2).await;
    let death = scene.until_dead("b").await?;
    let found = (death.sequence, death.event_id, death.cause);
    let expected = (Some(1), Some(held.event.id.clone()), Cause::AttemptsExhausted);
    ensure_eq("it dies at the cap", found, expected)?;
    ensure_eq("with the whole event", only_dead(&scene, Cause::AttemptsExhausted, 1).await?, held.event)?;
    scene.ensure_stale(&held.lease).await?;
    ensure_eq("and is settled", counts(&scene).await?, (2, 0, 0, 0))
}

/// A lease of it that runs out passes on; until then its holder renews and settles.
pub async fn is_leased_like_any_other(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 4, &[1, 3]).await?;
    let first = scene.claim_one("a", SHORT).await?;
    let second = scene.claim_one("a", SHORT).await?;
    ensure_eq("both come", sequences(&[first.clone(), second.clone()]), vec![1, 3])?;
    ensure_eq("a lease is renewed", scene.renew(&second.lease, LONG).await?, Settled::Done)?;
    store.pass(SHORT * 2).await;
    let taken = scene.reclaim("b").await?;
    ensure_eq("a lease that ran out passes on", &taken.event, &first.event)?;
    ensure_eq("at the next attempt", taken.lease.attempt, 2)?;
    scene.ensure_stale(&first.lease).await?;
    scene.ensure_nothing("one that was renewed does not").await?;
    scene.done(&second.lease, ack()).await?;
    scene.done(&taken.lease, ack()).await?;
    scene.ensure_nothing("what is settled is not delivered").await?;
    ensure_eq("both are settled", counts(&scene).await?, (4, 0, 0, 0))
}

/// A release gives the attempt back.
pub async fn can_be_released(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, 2, 1, &[1]).await?;
    for _ in 0..4 {
        let held = scene.claim_only("a").await?;
        ensure_eq("a released attempt does not count", held.lease.attempt, 1)?;
        scene.done(&held.lease, Verdict::Release).await?;
        ensure_eq("it waits again", counts(&scene).await?, (1, 0, 1, 1))?;
    }
    let held = scene.claim_only("a").await?;
    scene.done(&held.lease, ack()).await?;
    ensure_eq("and settles", counts(&scene).await?, (1, 0, 0, 0))
}

/// A trim stops before it, waiting, leased or parked, and goes on once it is settled.
pub async fn is_not_trimmed(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 6, &[3, 5]).await?;
    let trim = Trim { max_length: Some(0), ..Trim::default() };
    let held = |sequence| Some(Held { group: scene.group.group.clone(), sequence });
    let trimmed = scene.trim(trim).await?;
    ensure_eq("what is below it goes", (trimmed.removed, trimmed.held), (2, held(3)))?;
    let leased = scene.claim_all("a", 2).await?;
    ensure_eq("a leased one holds", scene.trim(trim).await?.held, held(3))?;
    scene.done(&leased[0].lease, retry(LONG)).await?;
    ensure_eq("a parked one holds", scene.trim(trim).await?.held, held(3))?;
    scene.done(&leased[1].lease, ack()).await?;
    let trimmed = scene.trim(trim).await?;
    ensure_eq("the lowest one holds", (trimmed.removed, trimmed.held), (0, held(3)))?;
    ensure_eq("what is above it stays", scene.logged(0).await?, vec![3, 4, 5, 6])?;
    scene.rewind(Reset, &[(0, 2)]).await?;
    let again = scene.claim_all("b", 4).await?;
    scene.ack_all(&again).await?;
    let trimmed = scene.trim(trim).await?;
    ensure_eq("once settled it holds no more", (trimmed.removed, trimmed.held), (4, None))
}

/// An event whose text a parser would not write again as it is.
fn odd() -> Result<NewEvent> {
    Ok(NewEvent {
        id: Some("id/1 é".to_owned()),
        partition: Some(0),
        key: Some("key:漢".to_owned()),
        event_type: Some("order\n".to_owned()),
        timestamp: Some("2020-01-15T12:00:00.123456+02:00".to_owned()),
        metadata: JsonObject::parse("{ \"reason\" : \"mine\",\"same\":1,\"same\":2}")?,
        payload: JsonObject::parse("{ \"n\" : 1.0e5 ,\n\t\"s\":\"\\u0041\\u0000😀\"}")?,
    })
}

/// Goes through the fates of an event that only its copy holds: retry, expiry, release, death,
/// redrive, ack.
async fn ensure_lives_from_its_copy(store: &dyn Store, scene: &Scene, event: &Event) -> Result<()> {
    let the_same = |leased: &Leased, attempt| -> Result<()> {
        ensure_eq("byte for byte the same event", &leased.event, event)?;
        ensure_eq("its attempt", leased.lease.attempt, attempt)
    };
    let held = scene.claim_only("a").await?;
    the_same(&held, 1)?;
    ensure_eq("it is renewed", scene.renew(&held.lease, LONG).await?, Settled::Done)?;
    scene.done(&held.lease, retry(Duration::ZERO)).await?;
    let held = scene.claim_one("a", SHORT).await?;
    the_same(&held, 2)?;
    store.pass(SHORT * 2).await;
    let taken = scene.reclaim("b").await?;
    the_same(&taken, 3)?;
    scene.ensure_stale(&held.lease).await?;
    scene.done(&taken.lease, Verdict::Release).await?;
    let held = scene.claim_only("a").await?;
    the_same(&held, 3)?;
    scene.done(&held.lease, reject()).await?;
    ensure_eq("it dies with the whole event", &only_dead(scene, Cause::Rejected, 3).await?, event)?;
    scene.redrive_all().await?;
    let held = scene.claim_only("a").await?;
    the_same(&held, 1)?;
    scene.done(&held.lease, ack()).await?;
    scene.ensure_nothing("what is settled is not delivered").await?;
    ensure_eq("nothing is redriven", scene.partition(0).await?.redriven, 0)?;
    ensure_none("nor dead", &scene.rows().await?)?;
    scene.ensure_drained().await
}

/// A body that was trimmed before the redrive: the event comes from the dead letter's copy.
pub async fn comes_from_the_copy_of_a_trimmed_event(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, MANY).await?;
    scene.backend.append(&scene.group.stream, &[odd()?]).await?;
    scene.append(0, 2).await?;
    let held = scene.claim_all("a", 3).await?;
    scene.reject_all(&held[..1]).await?;
    scene.ack_all(&held[1..]).await?;
    let trimmed = scene.trim(Trim { until: Some(2), ..Trim::default() }).await?;
    ensure_eq("a dead letter does not keep its event", (trimmed.removed, trimmed.held), (2, None))?;
    scene.redrive_all().await?;
    ensure_eq("it is redriven all the same", counts(&scene).await?, (3, 0, 1, 1))?;
    ensure_lives_from_its_copy(store, &scene, &held[0].event).await
}

/// A body that is trimmed by force after the redrive: the event comes from the record's copy.
pub async fn survives_a_forced_trim(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, MANY).await?;
    scene.backend.append(&scene.group.stream, &[odd()?]).await?;
    scene.append(0, 2).await?;
    let held = scene.claim_all("a", 3).await?;
    scene.reject_all(&held[..1]).await?;
    scene.ack_all(&held[1..]).await?;
    scene.redrive_all().await?;
    scene.cut(0, 3).await?;
    ensure_eq("it waits as before", counts(&scene).await?, (3, 0, 1, 1))?;
    for _ in 0..3 {
        ensure_none("there is nothing to mend", &scene.backend.heal(&scene.group, 0).await?)?;
    }
    ensure_lives_from_its_copy(store, &scene, &held[0].event).await?;
    ensure_eq("nothing is missing", scene.partition(0).await?.missing, 0)
}

/// The same while it is under lease, or parked.
pub async fn survives_a_forced_trim_in_any_state(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 4, &[1, 2, 3]).await?;
    let held = scene.claim_all("a", 3).await?;
    scene.done(&held[1].lease, retry(Duration::ZERO)).await?;
    scene.done(&held[2].lease, Verdict::Release).await?;
    scene.cut(0, 4).await?;
    ensure_eq("they are as before", counts(&scene).await?, (4, 1, 2, 3))?;
    scene.done(&held[0].lease, reject()).await?;
    ensure_eq("a lease settles", only_dead(&scene, Cause::Rejected, 1).await?, held[0].event.clone())?;
    let again = scene.claim_all("b", 2).await?;
    ensure_eq("the others come", events(&again), events(&held[1..]))?;
    let attempts: Vec<u32> = again.iter().map(|l| l.lease.attempt).collect();
    ensure_eq("with their attempts", attempts, vec![2, 1])?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// A rewind leaves it where it lies at or below the position; above, it comes with the others,
/// once.
async fn ensure_rewound(store: &dyn Store, kind: RewindKind, trimmed: bool) -> Result<()> {
    let scene = with_redriven(store, MANY, 6, &[2, 5]).await?;
    if trimmed {
        scene.cut(0, 3).await?;
    }
    scene.rewind(kind, &[(0, 3)]).await?;
    ensure_eq("the one below stays", counts(&scene).await?, (3, 0, 1, 1))?;
    let again = scene.claim_all("b", 4).await?;
    ensure_eq("each comes once", sequences(&again), vec![2, 4, 5, 6])?;
    ensure_afresh(&again)?;
    scene.ensure_nothing("and not again").await?;
    ensure_eq("the one above is an ordinary one", counts(&scene).await?, (3, 4, 0, 1))?;
    scene.ack_all(&again[1..]).await?;
    ensure_eq("which holds the frontier", counts(&scene).await?, (6, 1, 0, 1))?;
    scene.done(&again[0].lease, ack()).await?;
    ensure_eq("all is settled", counts(&scene).await?, (6, 0, 0, 0))
}

/// A replay leaves what was redriven at or below its position.
pub async fn outlives_a_replay(store: &dyn Store) -> Result<()> {
    ensure_rewound(store, Replay, false).await
}

/// A reset leaves what was redriven at or below its position, even where the log has it no more.
pub async fn outlives_a_reset(store: &dyn Store) -> Result<()> {
    ensure_rewound(store, Reset, true).await
}

/// A reset takes its lease away; the event comes again, its attempts afresh.
pub async fn comes_again_after_a_reset(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 5, &[1, 2, 3]).await?;
    let held = scene.claim_all("a", 3).await?;
    scene.done(&held[1].lease, retry(LONG)).await?;
    scene.done(&held[2].lease, Verdict::Release).await?;
    scene.rewind(Reset, &[(0, 5)]).await?;
    ensure_eq("all of them wait", counts(&scene).await?, (5, 0, 3, 3))?;
    scene.ensure_stale(&held[0].lease).await?;
    let again = scene.claim_all("b", 3).await?;
    ensure_eq("and come at once", events(&again), events(&held))?;
    ensure_afresh(&again)?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// A replay leaves its lease, and what it waits for.
pub async fn keeps_its_state_through_a_replay(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 4, &[1, 2]).await?;
    let held = scene.claim_all("a", 2).await?;
    scene.done(&held[1].lease, retry(LONG)).await?;
    scene.rewind(Replay, &[(0, 3)]).await?;
    ensure_eq("they are as they were", counts(&scene).await?, (3, 1, 1, 2))?;
    let again = scene.claim_only("b").await?;
    ensure_eq("only what is above comes", again.event.sequence, 4)?;
    scene.done(&held[0].lease, ack()).await?;
    scene.done(&again.lease, ack()).await?;
    ensure_eq("the parked one waits", counts(&scene).await?, (4, 0, 1, 1))
}

/// Where the log has it no more, no rewind lets it go, however far back the group is moved.
pub async fn outlives_a_rewind_to_before_what_was_trimmed(store: &dyn Store) -> Result<()> {
    for kind in [Replay, Reset] {
        let stream = name(&format!("events-of-a-{kind}"))?;
        store.backend().create_stream(&stream, 1).await?;
        let group = GroupKey::new(stream, name("workers")?);
        let new = NewGroup { max_attempts: MANY, start: Start::Beginning };
        store.backend().create_group(&group, new).await?;
        let scene = Scene { backend: store.backend(), group, partitions: vec![0] };
        scene.append(0, 5).await?;
        let held = scene.claim_all("a", 5).await?;
        scene.reject_all(&held[1..2]).await?;
        scene.ack_all(&[&held[..1], &held[2..]].concat()).await?;
        scene.redrive_all().await?;
        scene.cut(0, 3).await?;
        scene.rewind(kind, &[(0, 0)]).await?;
        let again = scene.claim_all("b", 3).await?;
        ensure_eq("it comes beside what the log has", sequences(&again), vec![2, 4, 5])?;
        ensure_eq("as it was", events(&again), events(&[&held[1..2], &held[3..]].concat()))?;
        ensure_afresh(&again)?;
        scene.ack_all(&again).await?;
        scene.ensure_drained().await?;
    }
    Ok(())
}

/// It is listed among what is pending, whatever the size of a page, in the log or from its copy.
pub async fn is_listed_with_what_is_pending(store: &dyn Store) -> Result<()> {
    let scene = with_redriven(store, MANY, 5, &[1, 3]).await?;
    scene.cut(0, 2).await?;
    scene.append(0, 4).await?;
    let held = scene.claim_all("a", 6).await?;
    ensure_eq("all is delivered", sequences(&held), vec![1, 3, 6, 7, 8, 9])?;
    scene.done(&held[0].lease, retry(LONG)).await?;
    scene.done(&held[3].lease, retry(LONG)).await?;
    scene.done(&held[4].lease, ack()).await?;
    for limit in [1, 2, 3, 100] {
        let (mut after, mut found): (Option<String>, Vec<_>) = (None, Vec::new());
        loop {
            let page = scene.backend.pending(&scene.group, 0, after.as_deref(), limit).await?;
            ensure!(page.len() <= limit, "a page has at most {limit} entries: found {}", page.len());
            let Some(last) = page.last() else { break };
            after = Some(last.receipt.clone());
            found.extend(page.iter().map(|e| (e.sequence, matches!(e.state, PendingState::Parked { .. }))));
            ensure!(found.len() < 100, "paging ends");
        }
        found.sort_unstable();
        let expected = [(1, true), (3, false), (6, false), (7, true), (9, false)];
        let expected: Vec<_> = expected.map(|(sequence, parked)| (Some(sequence), parked)).into();
        ensure_eq("every entry once", found, expected)?;
    }
    Ok(())
}
