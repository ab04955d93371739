//! Effects: committed with the ack in one step, or not at all.

use anyhow::{Context as _, Result, ensure};

use super::kit::{
    LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, name, numbered, reject, retry, settlement, until,
};
use super::{EVENT_BYTES_MAX, Store};
use crate::backend::{NewGroup, Refusal, RewindKind, Settled, Start};
use crate::event::{Event, GroupKey, JsonObject, Lease, Leased, NewEvent};
use crate::outcome::{Effects, StagedEvent, Verdict};
use crate::state::{Bucket, StateRead, StateValue, StateWrite};

/// Where derived events go.
const AUDIT: &str = "audit";

/// A scene with a second stream of two partitions.
pub(super) async fn scene(store: &dyn Store, partitions: u32, events: usize) -> Result<Scene> {
    let scene = Scene::with_events(store, partitions, MANY, events).await?;
    scene.backend.create_stream(&name(AUDIT)?, 2).await?;
    Ok(scene)
}

pub(super) fn bucket() -> Result<Bucket> {
    Ok(Bucket::own("p", "accounts")?)
}

fn staged(stream: &str, event: NewEvent) -> Result<StagedEvent> {
    Ok(StagedEvent { stream: name(stream)?, event })
}

pub(super) fn write(key: &str, value: &str) -> Result<StateWrite> {
    let value = Some(value.as_bytes().to_vec());
    Ok(StateWrite { bucket: bucket()?, key: key.to_owned(), value })
}

fn remove(key: &str) -> Result<StateWrite> {
    Ok(StateWrite { bucket: bucket()?, key: key.to_owned(), value: None })
}

fn read(key: &str, version: u64) -> Result<StateRead> {
    Ok(StateRead { bucket: bucket()?, key: key.to_owned(), version })
}

pub(super) fn effects(appends: Vec<StagedEvent>, reads: Vec<StateRead>, writes: Vec<StateWrite>) -> Verdict {
    Verdict::Ack(Effects { appends, writes, reads })
}

impl Scene {
    async fn value(&self, key: &str) -> Result<Option<StateValue>> {
        let values = self.backend.state(&bucket()?, &[key.to_owned()]).await?;
        values.into_iter().next().context("a key that is asked for has an answer")
    }

    async fn text(&self, key: &str) -> Result<Option<String>> {
        Ok(self.value(key).await?.map(|value| String::from_utf8_lossy(&value.bytes).into_owned()))
    }

    async fn version(&self, key: &str) -> Result<u64> {
        Ok(self.value(key).await?.map_or(0, |value| value.version))
    }

    async fn audit(&self, partition: u32) -> Result<Vec<Event>> {
        Ok(self.backend.read(&name(AUDIT)?, partition, 0, 10_000).await?)
    }

    /// Nothing of what `everything` stages is there.
    async fn ensure_no_effects(&self, promise: &str) -> Result<()> {
        for partition in 0..2 {
            ensure_eq(promise, self.audit(partition).await?, vec![])?;
        }
        ensure_eq(promise, self.value("a").await?, None)
    }

    async fn commit(&self, lease: &Lease, verdict: Verdict) -> Result<Settled> {
        self.verdict(lease, verdict).await
    }
}

/// Effects of every kind.
fn everything() -> Result<Verdict> {
    Ok(effects(vec![staged(AUDIT, numbered(1)?)?], vec![], vec![write("a", "1")?]))
}

/// Ack, events and state appear together; events keep their order, their text and their routes.
pub async fn appear_with_the_ack(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 1).await?;
    let held = scene.claim_one("a", LONG).await?;
    let payload = JsonObject::parse("{ \"z\": 1.0e5,  \"a\":\"\u{e9}\" }")?;
    let first = NewEvent {
        id: Some("derived-1".to_owned()),
        partition: Some(1),
        key: Some("k".to_owned()),
        event_type: Some("t".to_owned()),
        timestamp: Some("2020-01-15T12:00:00.000Z".to_owned()),
        metadata: JsonObject::parse("{\"causation_id\":\"x\"}")?,
        payload: payload.clone(),
    };
    let second = NewEvent { partition: Some(1), ..numbered(2)? };
    let third = NewEvent { partition: Some(0), ..numbered(3)? };
    let appends = vec![staged(AUDIT, first.clone())?, staged(AUDIT, second)?, staged(AUDIT, third)?];
    let verdict = effects(appends, vec![], vec![write("a", "1")?, write("b", "")?, remove("none")?]);
    ensure_eq("an ack with effects", scene.commit(&held.lease, verdict).await?, Settled::Done)?;

    let events = scene.audit(1).await?;
    ensure_eq(
        "events are appended in order",
        events.iter().map(|e| e.sequence).collect::<Vec<_>>(),
        vec![1, 2],
    )?;
    let event = &events[0];
    ensure_eq("an id is kept", event.id.as_str(), "derived-1")?;
    ensure_eq(
        "key and type are kept",
        (event.key.as_deref(), event.event_type.as_deref()),
        (Some("k"), Some("t")),
    )?;
    ensure_eq("a time is kept", event.timestamp.as_str(), "2020-01-15T12:00:00.000Z")?;
    ensure_eq(
        "texts are kept byte for byte",
        (&event.payload, &event.metadata),
        (&payload, &first.metadata),
    )?;
    ensure!(!events[1].id.is_empty() && events[1].id.len() == 22, "an event without an id gets one");
    ensure_eq("events go to their partitions", scene.audit(0).await?.len(), 1)?;
    ensure_eq("a value is set", scene.text("a").await?.as_deref(), Some("1"))?;
    ensure_eq("an empty value is a value", scene.text("b").await?.as_deref(), Some(""))?;
    ensure_eq("a key that is not there is removed in peace", scene.value("none").await?, None)?;
    scene.ensure_drained().await?;
    ensure_eq("an ack is settled once", scene.commit(&held.lease, everything()?).await?, Settled::Stale)?;
    ensure_eq("a second ack has no effects", scene.audit(0).await?.len(), 1)
}

/// Derived events go on from what stands in their stream, whoever appended it, and can be claimed.
pub async fn continue_the_log(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 3).await?;
    let audit = scene.through(store.backend());
    let audit =
        Scene { group: GroupKey::new(name(AUDIT)?, name("readers")?), partitions: vec![0, 1], ..audit };
    audit.backend.create_group(&audit.group, NewGroup { max_attempts: 5, start: Start::Beginning }).await?;
    for held in scene.claim("a", 3).await? {
        let append = NewEvent { partition: Some(0), ..numbered(1)? };
        scene.backend.append(&name(AUDIT)?, std::slice::from_ref(&append)).await?;
        let verdict = effects(vec![staged(AUDIT, append.clone())?, staged(AUDIT, append)?], vec![], vec![]);
        ensure_eq("an ack with events", scene.commit(&held.lease, verdict).await?, Settled::Done)?;
    }
    let leased = audit.claim_all("r", 9).await?;
    let sequences: Vec<u64> = leased.iter().map(|l| l.event.sequence).collect();
    ensure_eq("derived events stand in their place in the log", sequences, (1..=9).collect::<Vec<_>>())?;
    audit.ack_all(&leased).await?;
    audit.ensure_drained().await
}

/// Without a partition the key decides, as for any append, and the order of the calls holds across streams.
pub async fn are_routed_as_appends_are(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 1).await?;
    let same = name("same")?;
    scene.backend.create_stream(&same, 2).await?;
    let keys = [Some("a"), Some("b"), Some(""), Some("c"), None, Some("a"), Some("d"), None];
    let events = keys.iter().enumerate().map(|(n, key)| {
        Ok(NewEvent { key: key.map(str::to_owned), event_type: Some("t".to_owned()), ..numbered(n)? })
    });
    let events = events.collect::<Result<Vec<_>>>()?;
    scene.backend.append(&same, &events).await?;
    let held = scene.claim_one("a", LONG).await?;
    let mut appends = Vec::new();
    for event in events {
        appends.push(staged(AUDIT, event)?);
        // Something for another stream in between.
        appends.push(staged(scene.group.stream.as_str(), numbered(9)?)?);
    }
    scene.done(&held.lease, effects(appends, vec![], vec![])).await?;
    for partition in 0..2 {
        let what = |events: Vec<Event>| {
            events.into_iter().map(|e| (e.sequence, e.key, e.event_type, e.payload)).collect::<Vec<_>>()
        };
        let appended = what(scene.backend.read(&same, partition, 0, 100).await?);
        ensure!(!appended.is_empty(), "the keys reach both partitions");
        ensure_eq("derived events stand as appended ones", what(scene.audit(partition).await?), appended)?;
    }
    let info = scene.partition(0).await?;
    ensure_eq("those for the event's own stream too", (info.frontier, info.high_watermark), (1, 9))
}

/// Whatever is no ack, and whoever holds no lease, has no effects.
pub async fn need_an_ack_under_a_lease(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 2).await?;
    let held = scene.claim("a", 2).await?;
    let forged = Lease { id: "AAAAAAAAAAAAAAAAAAAAAA".into(), ..held[0].lease.clone() };
    ensure_eq("a forged lease", scene.commit(&forged, everything()?).await?, Settled::Stale)?;
    let mixed = Lease { receipt: held[1].lease.receipt.clone(), ..held[0].lease.clone() };
    let answer = scene.commit(&mixed, everything()?).await?;
    ensure!(answer != Settled::Done, "a lease with another's receipt: found {answer:?}");
    scene.ensure_no_effects("without the lease nothing is committed").await?;
    scene.done(&held[0].lease, retry(LONG)).await?;
    scene.done(&held[1].lease, reject()).await?;
    for leased in &held {
        ensure_eq("a settled lease", scene.commit(&leased.lease, everything()?).await?, Settled::Stale)?;
    }
    scene.ensure_no_effects("after another verdict nothing is committed").await
}

/// A holder that was overtaken commits nothing; an expired lease that no one took still does.
pub async fn respect_who_took_over(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 2).await?;
    let first = scene.claim_one("a", SHORT).await?;
    store.pass(2 * SHORT).await;
    ensure_eq("an expired lease commits", scene.commit(&first.lease, everything()?).await?, Settled::Done)?;
    let slow = scene.claim_one("a", SHORT).await?;
    store.pass(2 * SHORT).await;
    let fast = scene.reclaim("b").await?;
    let late = effects(vec![staged(AUDIT, numbered(9)?)?], vec![], vec![write("a", "late")?]);
    ensure_eq("the overtaken", scene.commit(&slow.lease, late).await?, Settled::Stale)?;
    ensure_eq("nothing of the overtaken is there", scene.text("a").await?.as_deref(), Some("1"))?;
    scene.done(&fast.lease, ack()).await?;
    ensure_eq("one event was derived", scene.audit(0).await?.len(), 1)?;
    scene.ensure_drained().await
}

/// Where a key that was read has been written since, nothing is committed, and the lease still holds.
pub async fn conflict_with_what_was_overtaken(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 8).await?;
    let held = scene.claim("a", 8).await?;
    let set = |key: &'static str, value: &'static str| -> Result<Verdict> {
        Ok(effects(vec![], vec![], vec![write(key, value)?]))
    };
    scene.done(&held[0].lease, set("a", "1")?).await?;
    let version = scene.version("a").await?;
    ensure!(version > 0, "a value has a version");
    // The same value again is another version.
    scene.done(&held[1].lease, set("a", "1")?).await?;
    let newer = scene.version("a").await?;
    ensure!(newer != version, "each commit gives another version");

    let stale =
        effects(vec![staged(AUDIT, numbered(1)?)?], vec![read("a", version)?], vec![write("b", "x")?]);
    let other = scene.claim("b", 10).await?;
    ensure_eq("nothing else is there to claim", other.len(), 0)?;
    ensure_eq("an overtaken read", scene.commit(&held[2].lease, stale.clone()).await?, Settled::Conflict)?;
    ensure_eq("an overtaken read, again", scene.commit(&held[2].lease, stale).await?, Settled::Conflict)?;
    ensure_eq(
        "a conflict writes nothing",
        (scene.value("b").await?, scene.audit(0).await?.len()),
        (None, 0),
    )?;
    let fresh = effects(vec![], vec![read("a", newer)?], vec![write("a", "2")?]);
    ensure_eq(
        "a fresh read under the same lease",
        scene.commit(&held[2].lease, fresh).await?,
        Settled::Done,
    )?;

    // What was not there when it was read.
    let absent = effects(vec![], vec![read("c", 0)?], vec![write("c", "mine")?]);
    scene.done(&held[3].lease, absent.clone()).await?;
    ensure_eq("it is there by now", scene.commit(&held[4].lease, absent).await?, Settled::Conflict)?;
    // What was removed and made again has another version.
    let version = scene.version("c").await?;
    scene.done(&held[4].lease, effects(vec![], vec![], vec![remove("c")?])).await?;
    ensure_eq("a removed key has no value", scene.value("c").await?, None)?;
    let gone = effects(vec![], vec![read("c", version)?], vec![write("d", "x")?]);
    ensure_eq("it is gone by now", scene.commit(&held[5].lease, gone.clone()).await?, Settled::Conflict)?;
    scene.done(&held[6].lease, set("c", "mine")?).await?;
    ensure_eq("it is another one by now", scene.commit(&held[5].lease, gone).await?, Settled::Conflict)?;
    // A read alone is no effect.
    let only = effects(vec![], vec![read("c", version)?], vec![]);
    ensure_eq("a call that only read", scene.commit(&held[5].lease, only).await?, Settled::Done)?;
    // Writes without reads never conflict.
    ensure_eq("a blind write", scene.commit(&held[7].lease, set("c", "blind")?).await?, Settled::Done)?;
    ensure_eq("the last one counts", scene.text("c").await?.as_deref(), Some("blind"))?;
    scene.ensure_drained().await
}

/// An item sees what those before it in the batch wrote, and a refused one does not hurt the others.
pub async fn stand_alone_in_a_batch(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 6).await?;
    let held = scene.claim("a", 6).await?;
    let claim = || -> Result<Verdict> {
        Ok(effects(
            vec![staged(AUDIT, NewEvent { partition: Some(0), ..numbered(1)? })?],
            vec![read("n", 0)?],
            vec![write("n", "1")?],
        ))
    };
    let nowhere = effects(vec![staged("nowhere", numbered(1)?)?], vec![], vec![write("x", "1")?]);
    let beyond = effects(
        vec![staged(AUDIT, NewEvent { partition: Some(7), ..numbered(1)? })?],
        vec![],
        vec![write("x", "1")?],
    );
    let large = JsonObject::parse(format!("{{\"x\":\"{}\"}}", "x".repeat(EVENT_BYTES_MAX)))?;
    let large = effects(vec![staged(AUDIT, NewEvent::new(large))?], vec![], vec![write("x", "1")?]);
    let batch = [
        settlement(&held[0].lease, claim()?),
        settlement(&held[1].lease, claim()?),
        settlement(&held[2].lease, nowhere),
        settlement(&held[3].lease, ack()),
        settlement(&held[4].lease, beyond),
        settlement(&held[5].lease, large),
    ];
    let settled = scene.settle("a", &batch).await?;
    let refused = |refusal| Settled::Refused(refusal);
    let expected = vec![
        Settled::Done,
        Settled::Conflict,
        refused(Refusal::StreamNotFound),
        Settled::Done,
        refused(Refusal::PartitionNotFound),
        refused(Refusal::EventTooLarge),
    ];
    ensure_eq("each item has its own answer", settled, expected)?;
    ensure_eq(
        "one was committed",
        (scene.audit(0).await?.len(), scene.text("n").await?.as_deref()),
        (1, Some("1")),
    )?;
    ensure_eq("nothing of a refused one is there", scene.value("x").await?, None)?;
    for place in [1, 2, 4, 5] {
        scene.done(&held[place].lease, ack()).await?;
    }
    scene.ensure_drained().await
}

/// A full batch, and an item that is larger than any call.
pub async fn come_in_any_number(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 2, 128).await?;
    let held = scene.claim_all("a", 256).await?;
    let batch = held.iter().enumerate().map(|(n, leased)| {
        let event = NewEvent { partition: Some(0), ..numbered(n)? };
        Ok(settlement(
            &leased.lease,
            effects(vec![staged(AUDIT, event)?], vec![], vec![write(&format!("k{n}"), "v")?]),
        ))
    });
    let batch = batch.collect::<Result<Vec<_>>>()?;
    ensure_eq("a full batch", scene.settle("a", &batch).await?, vec![Settled::Done; 256])?;
    ensure_eq("every event was derived once", scene.audit(0).await?.len(), 256)?;
    scene.ensure_drained().await?;

    scene.append(0, 1).await?;
    let held = scene.claim_one("a", LONG).await?;
    let big = "x".repeat(EVENT_BYTES_MAX / 2);
    let events = (0..100).map(|n| {
        let payload = JsonObject::parse(format!("{{\"n\":{n},\"x\":\"{big}\"}}"))?;
        staged(AUDIT, NewEvent { partition: Some(1), ..NewEvent::new(payload) })
    });
    let verdict = effects(events.collect::<Result<_>>()?, vec![], vec![write("big", &big)?]);
    ensure_eq("a large item", scene.commit(&held.lease, verdict).await?, Settled::Done)?;
    ensure_eq("all of it is there", scene.audit(1).await?.len(), 100)?;
    ensure_eq("its state too", scene.text("big").await?.map(|text| text.len()), Some(big.len()))?;
    scene.ensure_drained().await
}

/// Acks out of order move the frontier as plain ones do, and a dead letter that was redriven can end so.
pub async fn settle_as_plain_acks_do(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 4).await?;
    let held = scene.claim("a", 4).await?;
    for (place, frontier) in [(2, 0), (0, 1), (1, 3)] {
        scene.done(&held[place].lease, effects(vec![], vec![], vec![write("a", "1")?])).await?;
        ensure_eq("the frontier follows", scene.partition(0).await?.frontier, frontier)?;
    }
    scene.done(&held[3].lease, reject()).await?;
    scene.redrive_all().await?;
    let again =
        until("a redriven event is claimed", async || Ok(scene.claim("b", 1).await?.into_iter().next()))
            .await?;
    ensure_eq("a redriven event", scene.commit(&again.lease, everything()?).await?, Settled::Done)?;
    let state = scene.partition(0).await?;
    ensure_eq("its record is gone", (state.redriven, state.in_flight, state.parked), (0, 0, 0))?;
    scene.ensure_drained().await
}

/// While a group is moved, what it is moved over commits nothing.
pub async fn are_stale_during_a_rewind(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 2).await?;
    let held = scene.claim("a", 2).await?;
    scene.begin(RewindKind::Replay, &[(0, 0)]).await?;
    ensure_eq("in mid-replay", scene.commit(&held[0].lease, everything()?).await?, Settled::Stale)?;
    scene.finish().await?;
    ensure_eq("after it", scene.commit(&held[1].lease, everything()?).await?, Settled::Stale)?;
    scene.ensure_no_effects("a lease that went with a replay commits nothing").await?;
    let again = scene.claim_all("b", 2).await?;
    scene.ack_all(&again).await
}

/// Sixteen consumers add to one number, each as often as it takes: the number is that of the acks.
pub async fn count_exactly(store: &dyn Store) -> Result<()> {
    const EVENTS: usize = 96;
    let scene = scene(store, 1, EVENTS).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for consumer in 0..16 {
        let scene = scene.through(store.other().await?);
        tasks.spawn(async move { count(&scene, &format!("c{consumer}")).await });
    }
    let mut acked = 0;
    while let Some(done) = tasks.join_next().await {
        acked += done??;
    }
    ensure_eq("every event is acked once", acked, EVENTS as u64)?;
    ensure_eq("the number is that of the acks", scene.text("n").await?, Some(EVENTS.to_string()))?;
    scene.ensure_drained().await
}

async fn count(scene: &Scene, consumer: &str) -> Result<u64> {
    let mut acked = 0;
    loop {
        let held = scene.claim(consumer, 3).await?;
        if held.is_empty() {
            return Ok(acked);
        }
        for Leased { lease, .. } in held {
            // Each conflict means that another one got through: there are at most so many.
            loop {
                let value = scene.value("n").await?;
                let (version, number) = value.map_or((0, 0), |value| {
                    let text = String::from_utf8_lossy(&value.bytes).into_owned();
                    (value.version, text.parse::<u64>().unwrap_or(u64::MAX))
                });
                let verdict =
                    effects(vec![], vec![read("n", version)?], vec![write("n", &(number + 1).to_string())?]);
                match scene.commit(&lease, verdict).await? {
                    Settled::Done => break,
                    Settled::Conflict => {}
                    other => anyhow::bail!("a held lease commits or conflicts: found {other:?}"),
                }
            }
            acked += 1;
        }
    }
}

/// Whoever waits for the stream that is appended to is woken.
pub async fn wake_who_waits(store: &dyn Store) -> Result<()> {
    let scene = scene(store, 1, 1).await?;
    let audit = Scene {
        group: GroupKey::new(name(AUDIT)?, name("readers")?),
        partitions: vec![0, 1],
        ..scene.clone()
    };
    let new = NewGroup { max_attempts: 5, start: Start::Beginning };
    audit.backend.create_group(&audit.group, new).await?;
    let held = scene.claim_one("a", LONG).await?;
    let waiting = tokio::spawn({
        let audit = audit.clone();
        async move { audit.backend.wait(&audit.group, &audit.partitions, LONG).await }
    });
    scene.done(&held.lease, everything()?).await?;
    tokio::time::timeout(super::kit::PATIENCE, waiting)
        .await
        .context("an append with an ack ends a wait")???;
    let taken = audit.take(Take::by("r")).await?;
    ensure_eq("the derived event is there", taken.leased.len(), 1)?;
    audit.ack_all(&taken.leased).await
}
