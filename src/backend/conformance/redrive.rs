//! Redrive: a dead letter's event is delivered again, once (invariants 5 and 7).

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use super::Store;
use super::control_kit::{ensure_afresh, events};
use super::kit::{LONG, MANY, Scene, Take, ack, ensure_eq, ensure_none, places, reject, sequences, until};
use crate::backend::RewindKind::Replay;
use crate::backend::{Error, PendingState, REDRIVE_BATCH_MAX, Redriven, Start};
use crate::event::{JsonObject, NewEvent};

/// The same event, id and sequence comes at attempt 1; its row goes, its frontier stays.
pub async fn delivers_the_same_event_afresh(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, 3).await?;
    let given = NewEvent {
        id: Some("order-17".to_owned()),
        partition: Some(1),
        key: Some("kü".to_owned()),
        event_type: Some("order.placed".to_owned()),
        timestamp: Some("2020-01-15T12:00:00.123456+02:00".to_owned()),
        metadata: JsonObject::parse("{ \"reason\" : \"mine\", \"cause\":\"x\" }")?,
        payload: JsonObject::parse("{\"total\": 1.0e2, \"x\":\"\\u0041\"}")?,
    };
    scene.backend.append(&scene.group.stream, &[given]).await?;
    let first = scene.claim_one("a", LONG).await?;
    scene.done(&first.lease, reject()).await?;
    scene.redrive_all().await?;
    ensure_none("its row goes", &scene.letters().await?)?;
    ensure_eq("and is counted no more", scene.info().await?.dead_letters, 0)?;
    let state = scene.partition(1).await?;
    let counts = (state.frontier, state.in_flight, state.parked, state.redriven);
    ensure_eq("it waits, and the frontier stays", counts, (1, 0, 1, 1))?;
    let again = scene.claim_only("b").await?;
    ensure_eq("the same event", &again.event, &first.event)?;
    ensure_eq("at its first attempt", again.lease.attempt, 1)?;
    ensure!(again.lease.id != first.lease.id, "under a new lease");
    scene.ensure_stale(&first.lease).await?;
    let state = scene.partition(1).await?;
    let counts = (state.frontier, state.in_flight, state.parked, state.redriven);
    ensure_eq("it is under lease, and the frontier stays", counts, (1, 1, 0, 1))?;
    scene.done(&again.lease, ack()).await?;
    ensure_eq("once settled it is redriven no more", scene.partition(1).await?.redriven, 0)?;
    scene.ensure_nothing("nor delivered").await?;
    scene.ensure_drained().await
}

/// Each row of a batch has its own answer, in the order given; a row is redriven once.
pub async fn answers_each_row_in_order(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 3).await?;
    let held = scene.claim_all("a", 6).await?;
    scene.reject_all(&held).await?;
    let rows = scene.rows().await?;
    let redrive = async |rows: &[&str]| {
        let rows: Vec<String> = rows.iter().map(|row| (*row).to_owned()).collect();
        scene.backend.redrive(&scene.group, &rows).await
    };
    use Redriven::{Done, Gone};
    let found = redrive(&[&rows[3], "no row", &rows[0], &rows[3], "", "1-2-3"]).await?;
    ensure_eq("one answer a row, in order", found, vec![Done, Gone, Done, Gone, Gone, Gone])?;
    ensure_eq("a second redrive", redrive(&[&rows[0], &rows[3]]).await?, vec![Gone, Gone])?;
    ensure_none("an empty batch has no answers", &redrive(&[]).await?)?;
    let left: Vec<_> = [1, 2, 4, 5].map(|n| rows[n].clone()).into();
    ensure_eq("the other rows stay", scene.rows().await?, left)?;
    let again = scene.claim_all("b", 2).await?;
    ensure_afresh(&again)?;
    scene.ensure_nothing("only what was redriven comes, once").await?;
    scene.redrive_all().await?;
    let rest = scene.claim_all("b", 4).await?;
    ensure_afresh(&rest)?;
    let all: Vec<_> = again.into_iter().chain(rest).collect();
    ensure_eq("in the end each came again", events(&all), events(&held))?;
    scene.ack_all(&all).await?;
    scene.ensure_drained().await
}

/// What waits is pending, with no attempt spent, and is served beside a backlog of new events.
pub async fn waits_its_turn_beside_new_events(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 5).await?;
    let held = scene.claim_all("a", 5).await?;
    scene.reject_all(&held[1..4]).await?;
    scene.append(0, 400).await?;
    scene.redrive_all().await?;
    let pending = scene.backend.pending(&scene.group, 0, None, 10).await?;
    let mut found = Vec::new();
    for entry in &pending {
        let waits = matches!(entry.state, PendingState::Parked { .. });
        found.push((entry.sequence, entry.attempt, waits));
        ensure!(!waits || entry.state.claimable_in_ms() <= 0, "it waits for nothing: found {entry:?}");
    }
    let leased = |sequence| (Some(sequence), 1, false);
    let waiting = |sequence| (Some(sequence), 0, true);
    let expected = vec![leased(1), waiting(2), waiting(3), waiting(4), leased(5)];
    found.sort_unstable();
    ensure_eq("what is pending", found, expected)?;
    let mut seen = Vec::new();
    for _ in 0..20 {
        let claimed = scene.claim("b", 10).await?;
        ensure!(claimed.iter().map(|l| l.event.sequence).is_sorted(), "in order: {:?}", places(&claimed));
        seen.extend(claimed.into_iter().filter(|l| l.event.sequence <= 5));
    }
    seen.sort_by_key(|l| l.event.sequence);
    ensure_eq("it does not starve behind new events", sequences(&seen), vec![2, 3, 4])?;
    ensure_afresh(&seen)
}

/// An event that the group has before it anyway is left alone, with its row.
pub async fn leaves_alone_what_is_unsettled(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let held = scene.claim_all("a", 2).await?;
    scene.reject_all(&held).await?;
    let rows = scene.rows().await?;
    scene.rewind(Replay, &[(0, 1)]).await?;
    let redrive = async || scene.backend.redrive(&scene.group, &rows).await;
    use Redriven::{Done, Gone, Underway};
    ensure_eq("what is replayed is under way", redrive().await?, vec![Done, Underway])?;
    ensure_eq("its row stays", scene.rows().await?, rows[1..].to_vec())?;
    let again = scene.claim_all("b", 2).await?;
    ensure_eq("both come, each once", sequences(&again), vec![1, 2])?;
    ensure_eq("what is leased is under way", redrive().await?, vec![Gone, Underway])?;
    scene.done(&again[0].lease, ack()).await?;
    scene.done(&again[1].lease, reject()).await?;
    // Now there are two rows for one event.
    let both = scene.rows().await?;
    ensure_eq("each death has its row", both.len(), 2)?;
    let redriven = scene.backend.redrive(&scene.group, &both).await?;
    ensure_eq("only one of them is redriven", redriven, vec![Done, Underway])?;
    let third = scene.claim_only("b").await?;
    ensure_eq("it comes once", (third.event.sequence, third.lease.attempt), (2, 1))?;
    let redriven = scene.backend.redrive(&scene.group, &both).await?;
    ensure_eq("while it is held too", redriven, vec![Gone, Underway])?;
    scene.done(&third.lease, ack()).await?;
    let redriven = scene.backend.redrive(&scene.group, &both).await?;
    ensure_eq("then the other one may be", redriven, vec![Gone, Done])?;
    let last = scene.claim_only("b").await?;
    scene.done(&last.lease, ack()).await?;
    ensure_none("no row is left", &scene.rows().await?)?;
    scene.ensure_drained().await
}

/// The frontier neither goes back for a redriven event nor waits for one above a hole.
pub async fn leaves_the_frontier_alone(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 5).await?;
    let held = scene.claim_all("a", 5).await?;
    scene.reject_all(&held[..1]).await?;
    scene.reject_all(&held[3..4]).await?;
    scene.ack_all(&held[4..]).await?;
    // 1 and 4 are dead, 5 is acked, 2 and 3 are held.
    scene.redrive_all().await?;
    ensure_eq("it does not go back", scene.partition(0).await?.frontier, 1)?;
    let again = scene.claim_all("b", 2).await?;
    ensure_eq("both come", sequences(&again), vec![1, 4])?;
    scene.ack_all(&held[1..3]).await?;
    let state = scene.partition(0).await?;
    ensure_eq("it does not wait", (state.frontier, state.redriven, state.in_flight), (5, 2, 2))?;
    scene.done(&again[0].lease, ack()).await?;
    scene.done(&again[1].lease, reject()).await?;
    let state = scene.partition(0).await?;
    ensure_eq("nor move when they settle", (state.frontier, state.redriven, state.in_flight), (5, 0, 0))?;
    scene.append(0, 1).await?;
    let next = scene.claim_only("b").await?;
    scene.done(&next.lease, ack()).await?;
    scene.ensure_drained().await
}

/// A group's redrive is its own.
pub async fn belongs_to_one_group(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let other = scene.with_group("others", MANY, Start::Beginning).await?;
    for group in [&scene, &other] {
        let held = group.claim_all("a", 2).await?;
        group.reject_all(&held).await?;
    }
    scene.redrive_all().await?;
    ensure_eq("another group keeps its rows", other.rows().await?.len(), 2)?;
    ensure_eq("and has nothing redriven", other.partition(0).await?.redriven, 0)?;
    other.ensure_nothing("nor delivered").await?;
    ensure_eq("while this one gets them", scene.claim_all("a", 2).await?.len(), 2)
}

/// Of many that redrive the same rows at once, one redrives each.
pub async fn happens_once_among_many(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 60;
    let scene = Scene::with_events(store, 2, MANY, EVENTS / 2).await?;
    let held = scene.claim_all("a", EVENTS).await?;
    scene.reject_all(&held).await?;
    let rows = scene.rows().await?;
    let mut tasks = JoinSet::new();
    for n in 0..6 {
        let handle = if n % 2 == 0 { store.backend() } else { store.other().await? };
        let (scene, rows) = (scene.through(handle), rows.clone());
        tasks.spawn(async move {
            let (mut done, mut taken) = (0, Vec::new());
            for batch in rows.chunks(7) {
                let redriven = scene.backend.redrive(&scene.group, batch).await?;
                done += redriven.iter().filter(|answer| **answer == Redriven::Done).count();
                taken.extend(scene.take(Take::by(&format!("worker-{n}")).sweep()).await?.leased);
            }
            anyhow::Ok((done, taken))
        });
    }
    let (mut done, mut taken) = (0, Vec::new());
    while let Some(ended) = tasks.join_next().await {
        let (their_done, their_taken) = ended??;
        done += their_done;
        taken.extend(their_taken);
    }
    ensure_eq("each row is redriven once", done, EVENTS)?;
    taken.extend(scene.claim_all("last", EVENTS - taken.len()).await?);
    ensure_eq("each event comes once", events(&taken), events(&held))?;
    ensure_afresh(&taken)?;
    scene.ensure_nothing("and not again").await?;
    scene.ack_all(&taken).await?;
    ensure_none("no row is left", &scene.rows().await?)?;
    scene.ensure_drained().await
}

/// A redriven event is seen by every handle, and settled through any.
pub async fn is_seen_by_other_handles(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let other = scene.through(store.other().await?);
    let held = scene.claim_one("a", LONG).await?;
    scene.reject_all(&[held]).await?;
    other.redrive_all().await?;
    ensure_eq("it is seen", scene.partition(0).await?.redriven, 1)?;
    let again = until("it comes through any handle", async || Ok(scene.claim("a", 1).await?.pop())).await?;
    other.done(&again.lease, ack()).await?;
    let state = scene.info().await?.partitions.pop().context("a group has its partitions")?;
    ensure_eq("and is settled through any", (state.redriven, state.in_flight), (0, 0))
}

/// A batch has a bound.
pub async fn takes_a_batch_up_to_its_bound(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, REDRIVE_BATCH_MAX + 1).await?;
    let held = scene.claim_all("a", REDRIVE_BATCH_MAX + 1).await?;
    scene.reject_all(&held).await?;
    let rows = scene.rows().await?;
    let refused = scene.backend.redrive(&scene.group, &rows).await;
    ensure_err!(
        "one row too many",
        refused,
        Error::BatchTooLarge { items, max: REDRIVE_BATCH_MAX } if items == REDRIVE_BATCH_MAX + 1
    );
    ensure_eq("a refused batch redrives nothing", scene.rows().await?, rows.clone())?;
    scene.ensure_nothing("nor delivers").await?;
    let redriven = scene.backend.redrive(&scene.group, &rows[1..]).await?;
    ensure_eq("the largest batch", redriven, vec![Redriven::Done; REDRIVE_BATCH_MAX])?;
    let again = scene.claim_all("b", REDRIVE_BATCH_MAX).await?;
    ensure_afresh(&again)?;
    scene.ack_all(&again).await?;
    scene.ensure_drained().await
}

/// A missing stream or group is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, MANY).await?;
    let (nowhere, nobody) = scene.absent()?;
    let rows = ["1".to_owned()];
    let redriven = scene.backend.redrive(&nowhere, &rows).await;
    ensure_err!("redrive on a missing stream", redriven, Error::StreamNotFound(_));
    let redriven = scene.backend.redrive(&nobody, &rows).await;
    ensure_err!("redrive of a missing group", redriven, Error::GroupNotFound(_));
    Ok(())
}
