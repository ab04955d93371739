//! Dead letters keep everything (invariant 11).

use anyhow::{Context as _, Result, ensure};

use super::Store;
use super::kit::{LONG, MANY, Scene, ack, ensure_eq, ensure_none, name, reject, settlement};
use crate::backend::{DeadEvent, DeadLetter, Error, Settled, Start};
use crate::event::{GroupKey, JsonObject, NewEvent};
use crate::outcome::{Cause, FailureKind, Settlement, Verdict};

/// The one dead letter that there must be.
async fn only_letter(scene: &Scene) -> Result<DeadLetter> {
    let mut letters = scene.backend.dead_letters(&scene.group, None, 10).await?;
    let letter = letters.pop().context("there is a dead letter")?;
    ensure_none("there is one dead letter", &letters)?;
    Ok(letter)
}

/// The whole event, reason, cause, failure, attempts, consumer, plugin and time.
pub async fn keep_the_whole_event(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 3, MANY).await?;
    let given = NewEvent {
        id: Some("order-17".to_owned()),
        partition: Some(2),
        key: Some("kü".to_owned()),
        event_type: Some("order.placed".to_owned()),
        timestamp: None,
        metadata: JsonObject::parse("{ \"reason\" : \"mine\", \"cause\":\"x\" }")?,
        payload: JsonObject::parse("{\"total\": 1.0e2, \"x\":\"\\u0041\"}")?,
    };
    scene.backend.append(&scene.group.stream, &[given]).await?;
    let held = scene.claim_one("consumer-7", LONG).await?;
    let reason = "größer als erlaubt\nat line 2".to_owned();
    let verdict = Verdict::DeadLetter {
        cause: Cause::AttemptsExhausted,
        reason: reason.clone(),
        failure: Some(FailureKind::Memory),
    };
    let settlement = Settlement { plugin: Some("sha256:abc".into()), ..settlement(&held.lease, verdict) };
    ensure_eq("it settles", scene.settle("consumer-7", &[settlement]).await?, vec![Settled::Done])?;
    let letter = only_letter(&scene).await?;
    ensure_eq("the whole event", letter.event, DeadEvent::Event(Box::new(held.event.clone())))?;
    ensure_eq("reason", letter.reason, reason)?;
    ensure_eq("cause", letter.cause, Some(Cause::AttemptsExhausted))?;
    ensure_eq("failure", letter.failure, Some(FailureKind::Memory))?;
    ensure_eq("attempts", letter.attempts, Some(1))?;
    ensure_eq("consumer", letter.consumer.as_deref(), Some("consumer-7"))?;
    ensure_eq("plugin", letter.plugin.as_deref(), Some("sha256:abc"))?;
    let at = letter.dead_lettered_at.context("a dead letter has its time")?;
    ensure!(at.parse::<jiff::Timestamp>().is_ok(), "the time is ISO 8601: found {at}");
    let read = scene.backend.read(&scene.group.stream, 2, 0, 10).await?;
    ensure_eq("the event stays in the log", read, vec![held.event])?;
    scene.ensure_drained().await
}

/// A reject has no failure, and without a plugin none is named.
pub async fn keep_a_reject_without_failure(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let held = scene.claim_one("a", LONG).await?;
    scene.done(&held.lease, reject()).await?;
    let letter = only_letter(&scene).await?;
    ensure_eq("cause", letter.cause, Some(Cause::Rejected))?;
    ensure_eq("reason", letter.reason.as_str(), "never")?;
    ensure_eq("failure", letter.failure, None)?;
    ensure_eq("plugin", letter.plugin, None)?;
    scene.ensure_nothing("a rejected event is not delivered again").await?;
    ensure_eq("group info counts it", scene.info().await?.dead_letters, 1)
}

/// Pages of any size give every row once, oldest first, however many there are.
pub async fn page_to_any_depth(store: &dyn Store) -> Result<()> {
    const ROWS: usize = 130;
    let scene = Scene::with_events(store, 2, MANY, ROWS / 2).await?;
    let mut expected = Vec::new();
    let held = scene.claim_all("a", ROWS).await?;
    for batch in held.chunks(50) {
        let settlements: Vec<_> = batch.iter().map(|l| settlement(&l.lease, reject())).collect();
        let settled = scene.settle("a", &settlements).await?;
        ensure_eq("rejects are taken", settled, vec![Settled::Done; batch.len()])?;
        expected.push(batch.iter().map(|l| l.event.clone()).collect::<Vec<_>>());
    }
    for limit in [7, 1, 1000] {
        let (mut after, mut found): (Option<String>, Vec<_>) = (None, Vec::new());
        loop {
            let page = scene.backend.dead_letters(&scene.group, after.as_deref(), limit).await?;
            ensure!(page.len() <= limit, "a page has at most {limit} rows: found {}", page.len());
            let Some(last) = page.last() else { break };
            after = Some(last.row.clone());
            found.extend(page);
            ensure!(found.len() <= ROWS, "paging ends");
        }
        ensure_eq("every row is found", found.len(), ROWS)?;
        let mut rest = found.as_slice();
        for batch in &expected {
            let (rows, others) = rest.split_at(batch.len());
            rest = others;
            for event in batch {
                let here = DeadEvent::Event(Box::new(event.clone()));
                let times = rows.iter().filter(|row| row.event == here).count();
                ensure_eq("oldest first, each event once", times, 1)?;
            }
        }
    }
    ensure_eq("group info counts them", scene.info().await?.dead_letters, ROWS as u64)?;
    scene.ensure_drained().await
}

/// A group's dead letters are its own.
pub async fn belong_to_one_group(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let other = scene.with_group("others", MANY, Start::Beginning).await?;
    let held = scene.claim_one("a", LONG).await?;
    scene.done(&held.lease, reject()).await?;
    only_letter(&scene).await?;
    ensure_none("another group has none", &other.backend.dead_letters(&other.group, None, 10).await?)?;
    ensure_eq("nor counts one", other.info().await?.dead_letters, 0)?;
    let theirs = other.claim_one("a", LONG).await?;
    other.done(&theirs.lease, ack()).await
}

/// A cursor that is no row id is an error.
pub async fn refuse_an_unknown_cursor(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let held = scene.claim_one("a", LONG).await?;
    scene.done(&held.lease, reject()).await?;
    for cursor in ["no row", "", "1-2-3", "-"] {
        let page = scene.backend.dead_letters(&scene.group, Some(cursor), 10).await;
        ensure_err!("a cursor that is no row id", page, Error::CursorNotFound(text) if text == cursor);
    }
    let last = only_letter(&scene).await?.row;
    let page = scene.backend.dead_letters(&scene.group, Some(&last), 10).await?;
    ensure_none("after the last row there is nothing", &page)
}

/// A missing stream or group is an error.
pub async fn name_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, MANY).await?;
    let nowhere = GroupKey::new(name("nowhere")?, name("workers")?);
    let nobody = GroupKey::new(scene.group.stream.clone(), name("nobody")?);
    let letters = async |group| scene.backend.dead_letters(group, None, 10).await;
    ensure_err!("dead letters of a missing stream", letters(&nowhere).await, Error::StreamNotFound(_));
    ensure_err!("dead letters of a missing group", letters(&nobody).await, Error::GroupNotFound(_));
    Ok(())
}
