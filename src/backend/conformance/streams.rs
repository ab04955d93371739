//! Streams and groups: what can be created, what is listed, what is missing.

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use super::Store;
use super::kit::{Scene, ensure_eq, ensure_none, name, numbered, sequences};
use crate::backend::{Error, NewGroup, PARTITIONS_MAX, Start, StreamSummary};
use crate::event::{GroupKey, Name};

const GROUP: NewGroup = NewGroup { max_attempts: 5, start: Start::Beginning };

/// A store that is there answers.
pub async fn answers_a_ping(store: &dyn Store) -> Result<()> {
    store.backend().ping().await?;
    store.other().await?.ping().await?;
    Ok(())
}

/// A stream is created once, and is empty then.
pub async fn creates_a_stream_once(store: &dyn Store) -> Result<()> {
    let backend = store.backend();
    let stream = name("orders")?;
    backend.create_stream(&stream, 3).await?;
    for handle in [store.backend(), store.other().await?] {
        let again = handle.create_stream(&stream, 4).await;
        ensure_err!("a second create_stream", again, Error::StreamExists(found) if found == stream);
        let info = handle.stream_info(&stream).await?;
        ensure_eq("the stream's name", info.stream, stream.clone())?;
        ensure!(info.created_at.is_some(), "a stream that we created has a creation time");
        let states: Vec<_> =
            info.partitions.iter().map(|p| (p.partition, p.high_watermark, p.length)).collect();
        ensure_eq("a new stream's partitions", states, vec![(0, 0, 0), (1, 0, 0), (2, 0, 0)])?;
    }
    Ok(())
}

/// Partition counts outside 1 to [`PARTITIONS_MAX`] and names that are not portable create
/// nothing.
pub async fn refuses_impossible_streams(store: &dyn Store) -> Result<()> {
    let backend = store.backend();
    for wrong in [0, PARTITIONS_MAX + 1, u32::MAX] {
        let created = backend.create_stream(&name("orders")?, wrong).await;
        ensure_err!(
            "an impossible partition count",
            created,
            Error::InvalidPartitionCount { partitions } if partitions == wrong
        );
    }
    for wrong in ["a:b", "*", "with space", "ü", &"x".repeat(129)] {
        let created = backend.create_stream(&Name::existing(wrong)?, 1).await;
        ensure_err!("a name that is not portable", created, Error::InvalidName(_));
    }
    ensure_none("a refused create_stream creates nothing", &backend.streams().await?)?;
    backend.create_stream(&name("widest")?, PARTITIONS_MAX).await?;
    backend.create_stream(&name(&"x".repeat(128))?, 1).await?;
    ensure_eq("the widest stream and the longest name are created", backend.streams().await?.len(), 2)
}

/// Streams are listed by name, with their partitions.
pub async fn lists_streams_sorted(store: &dyn Store) -> Result<()> {
    let backend = store.backend();
    ensure_none("an empty store has no streams", &backend.streams().await?)?;
    for (stream, partitions) in [("b", 2), ("a.b", 3), ("c", 1), ("a", 4), ("B", 5)] {
        backend.create_stream(&name(stream)?, partitions).await?;
    }
    let mut expected = Vec::new();
    for (stream, partitions) in [("B", 5), ("a", 4), ("a.b", 3), ("b", 2), ("c", 1)] {
        expected.push(StreamSummary { stream: name(stream)?, partitions });
    }
    ensure_eq("streams sorted by name", backend.streams().await?, expected)
}

/// A group is created once, and is empty then.
pub async fn creates_a_group_once(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, 7).await?;
    let again = scene.backend.create_group(&scene.group, GROUP).await;
    ensure_err!("a second create_group", again, Error::GroupExists(group) if group == scene.group);
    let info = scene.info().await?;
    ensure_eq("the attempts stay those of the first create_group", info.max_attempts, 7)?;
    ensure_eq("a new group has no dead letters", info.dead_letters, 0)?;
    for (index, state) in info.partitions.iter().enumerate() {
        ensure_eq("partitions come in order", state.partition as usize, index)?;
        let counts = (state.frontier, state.high_watermark, state.in_flight, state.parked);
        ensure_eq("a new group on an empty stream is all zeros", counts, (0, 0, 0, 0))?;
    }
    ensure_eq("a group covers every partition", info.partitions.len(), 2)
}

/// Names that are not portable and a cap of zero create no group.
pub async fn refuses_impossible_groups(store: &dyn Store) -> Result<()> {
    let backend = store.backend();
    let stream = name("orders")?;
    backend.create_stream(&stream, 1).await?;
    let none = NewGroup { max_attempts: 0, ..GROUP };
    let created = backend.create_group(&GroupKey::new(stream.clone(), name("g")?), none).await;
    ensure_err!("a group without attempts", created, Error::InvalidMaxAttempts);
    for wrong in ["a:b", "[a]", "x y"] {
        let group = GroupKey::new(stream.clone(), Name::existing(wrong)?);
        let created = backend.create_group(&group, GROUP).await;
        ensure_err!("a name that is not portable", created, Error::InvalidName(_));
    }
    ensure_none("a refused create_group creates nothing", &backend.groups(&stream).await?)
}

/// Groups are listed by name, each under its own stream.
pub async fn lists_groups_sorted(store: &dyn Store) -> Result<()> {
    let backend = store.backend();
    let (stream, other) = (name("orders")?, name("orders.eu")?);
    backend.create_stream(&stream, 2).await?;
    backend.create_stream(&other, 2).await?;
    ensure_none("a new stream has no groups", &backend.groups(&stream).await?)?;
    for group in ["c", "a", "b-1"] {
        backend.create_group(&GroupKey::new(stream.clone(), name(group)?), GROUP).await?;
    }
    backend.create_group(&GroupKey::new(other.clone(), name("z")?), GROUP).await?;
    let expected = vec![name("a")?, name("b-1")?, name("c")?];
    ensure_eq("groups sorted by name", backend.groups(&stream).await?, expected)?;
    ensure_eq("the other stream's groups", backend.groups(&other).await?, vec![name("z")?])
}

/// A missing stream and a missing group each have their own error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let backend = store.backend();
    let missing = GroupKey::new(name("nowhere")?, name("workers")?);
    ensure_err!("stream_info", backend.stream_info(&missing.stream).await, Error::StreamNotFound(_));
    ensure_err!("groups", backend.groups(&missing.stream).await, Error::StreamNotFound(_));
    ensure_err!("create_group", backend.create_group(&missing, GROUP).await, Error::StreamNotFound(_));
    ensure_err!("group_info", backend.group_info(&missing).await, Error::StreamNotFound(_));
    ensure_none("a refused create_group creates no stream", &backend.streams().await?)?;
    backend.create_stream(&missing.stream, 1).await?;
    let info = backend.group_info(&missing).await;
    ensure_err!("group_info", info, Error::GroupNotFound(group) if group == missing);
    Ok(())
}

/// A name is never taken for a pattern, nor glued to another one.
pub async fn takes_names_literally(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, 5).await?;
    for pattern in ["*", "event?", "event[s]", "events:workers"] {
        let pattern = Name::existing(pattern)?;
        let found = scene.backend.groups(&pattern).await;
        ensure_err!("groups of a stream that is a pattern", found, Error::StreamNotFound(_));
        let group = GroupKey::new(scene.group.stream.clone(), pattern);
        let found = scene.backend.group_info(&group).await;
        ensure_err!("a group that is a pattern", found, Error::GroupNotFound(_));
    }
    Ok(())
}

/// A group starts with the first event, or with the first one after its creation.
pub async fn begins_where_the_group_was_told_to(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, 5, 3).await?;
    let end = scene.with_group("late", 5, Start::End).await?;
    let state = end.partition(1).await?;
    ensure_eq("a group that starts at the end has its frontier there", state.frontier, 3)?;
    ensure_eq("a group that starts at the end has no lag", state.lag(), 0)?;
    end.ensure_nothing("what was there before a group that starts at the end is not delivered").await?;
    scene.append(1, 2).await?;
    let late = end.claim_all("late", 2).await?;
    ensure_eq("a group that starts at the end gets what comes after", sequences(&late), vec![4, 5])?;
    end.ack_all(&late).await?;
    end.ensure_drained().await?;
    let all = scene.claim_all("early", 8).await?;
    ensure_eq("a group that starts at the beginning gets everything", all.len(), 8)
}

/// Two namespaces in one store do not see each other.
pub async fn keeps_namespaces_apart(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, 5, 3).await?;
    let elsewhere = store.elsewhere().await?;
    ensure_none("another namespace has no streams", &elsewhere.streams().await?)?;
    let appended = elsewhere.append(&scene.group.stream, &[numbered(1)?]).await;
    ensure_err!("append in another namespace", appended, Error::StreamNotFound(_));
    elsewhere.create_stream(&scene.group.stream, 2).await?;
    elsewhere.create_group(&scene.group, GROUP).await?;
    let there = scene.through(elsewhere);
    there.ensure_nothing("another namespace has no events").await?;
    let here = scene.claim("a", 1).await?;
    let lease = &here.first().context("an event is claimed")?.lease;
    there.append(0, 1).await?;
    let foreign = there.claim("a", 1).await?;
    ensure_eq("another namespace has its own sequences", sequences(&foreign), vec![1])?;
    ensure_eq(
        "a lease of another namespace is stale",
        there.verdict(lease, super::kit::ack()).await?,
        crate::backend::Settled::Stale,
    )?;
    ensure_eq("the first namespace still has its partition", scene.info().await?.partitions.len(), 1)?;
    scene.done(lease, super::kit::ack()).await
}

/// Of many that create the same thing at once exactly one does.
pub async fn creates_once_among_many(store: &dyn Store) -> Result<()> {
    let group = GroupKey::new(name("orders")?, name("workers")?);
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let backend = if n % 2 == 0 { store.backend() } else { store.other().await? };
        let group = group.clone();
        tasks.spawn(async move {
            let stream = backend.create_stream(&group.stream, 4).await;
            (stream, backend.create_group(&group, GROUP).await)
        });
    }
    let (mut streams, mut groups) = (0, 0);
    while let Some(ended) = tasks.join_next().await {
        match ended? {
            (Ok(()) | Err(Error::StreamExists(_)), Err(error)) if !matches!(error, Error::GroupExists(_)) => {
                return Err(error.into());
            }
            (Err(error), _) if !matches!(error, Error::StreamExists(_)) => return Err(error.into()),
            (stream, group) => {
                streams += usize::from(stream.is_ok());
                groups += usize::from(group.is_ok());
            }
        }
    }
    ensure_eq("one creates the stream, one the group", (streams, groups), (1, 1))
}
