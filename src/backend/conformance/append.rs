//! Appending: all or nothing, in order, byte for byte (invariant 2).

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use super::kit::{Scene, ensure_eq, ensure_none, name, numbered, numbered_in, sequences};
use super::{EVENT_BYTES_MAX, Store};
use crate::backend::{APPEND_BATCH_MAX, Appended, Error};
use crate::event::{InvalidEvent, JsonObject, NewEvent};
use crate::routing::partition_for_key;

/// Texts that a parser would not write again as they are.
const ODD_TEXTS: [&str; 10] = [
    "{}",
    "{ \"a\" : 1 ,\n\t\"b\":2}",
    "{\"n\":1.0e5,\"m\":1E+2,\"z\":-0,\"f\":0.10}",
    "{\"n\":123456789012345678901234567890,\"tiny\":1e-400}",
    "{\"s\":\"\\u0041\\/\\u00e9\\u0000\\ud83d\\ude00\"}",
    "{\"s\":\"é 漢字 😀 \u{7f}\u{2028}\"}",
    "{\"same\":1,\"same\":2}",
    "{\"z\":1,\"a\":2,\"\":3}",
    "{\"type\":\"t\",\"key\":\"k\",\"metadata\":{\"x\":[]},\"payload\":null}",
    "{\"quote\":\"'\\\"; DROP TABLE events; --\",\"back\":\"\\\\n\"}",
];

/// Sequences are contiguous per partition, in the order given, and the log has the same order.
pub async fn numbers_without_gaps_in_the_order_given(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, 5).await?;
    let mut expected = [0u64; 2];
    for partitions in [[0, 1, 0, 0, 1], [1, 1, 1, 0, 0]] {
        let batch =
            partitions.iter().zip(1..).map(|(p, n)| numbered_in(*p, n)).collect::<Result<Vec<_>>>()?;
        let appended = scene.backend.append(&scene.group.stream, &batch).await?;
        ensure_eq("one answer an event", appended.len(), batch.len())?;
        for (appended, partition) in appended.iter().zip(partitions) {
            expected[partition as usize] += 1;
            let place = (appended.partition, appended.sequence);
            ensure_eq("sequences in the order given", place, (partition, expected[partition as usize]))?;
        }
    }
    for partition in 0..2 {
        let events = scene.backend.read(&scene.group.stream, partition, 0, 100).await?;
        let found: Vec<u64> = events.iter().map(|e| e.sequence).collect();
        ensure_eq("the log's order is the sequences' order", found, vec![1, 2, 3, 4, 5])?;
        let info = scene.backend.stream_info(&scene.group.stream).await?;
        let info = info.partitions.get(partition as usize).context("the partition is listed")?;
        ensure_eq("high watermark and length", (info.high_watermark, info.length), (5, 5))?;
    }
    Ok(())
}

/// Payload, metadata, key, type, id and time come back as they were given, read and claimed.
pub async fn keeps_every_byte(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, 5).await?;
    let deep = format!("{{\"deep\":{}{}}}", "[".repeat(300), "]".repeat(300));
    let texts: Vec<&str> = ODD_TEXTS.iter().copied().chain([deep.as_str()]).collect();
    let mut batch = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        batch.push(NewEvent {
            id: Some(format!("id/{n} é")),
            partition: None,
            key: Some(format!("key:{n} 漢")),
            event_type: Some(format!("order.{n}\n")),
            timestamp: Some("2020-01-15T12:00:00.123456+02:00".to_owned()),
            metadata: JsonObject::parse(*text)?,
            payload: JsonObject::parse(*text)?,
        });
    }
    scene.backend.append(&scene.group.stream, &batch).await?;
    let read = scene.backend.read(&scene.group.stream, 0, 0, 100).await?;
    let claimed = scene.claim_all("a", batch.len()).await?;
    ensure_eq("everything is read", read.len(), batch.len())?;
    for ((given, read), claimed) in batch.iter().zip(&read).zip(&claimed) {
        ensure_eq("what is claimed is what is read", &claimed.event, read)?;
        ensure_eq("payload text", read.payload.as_str(), given.payload.as_str())?;
        ensure_eq("metadata text", read.metadata.as_str(), given.metadata.as_str())?;
        ensure_eq("key", &read.key, &given.key)?;
        ensure_eq("type", &read.event_type, &given.event_type)?;
        ensure_eq("id", Some(&read.id), given.id.as_ref())?;
        ensure_eq("timestamp text", Some(&read.timestamp), given.timestamp.as_ref())?;
    }
    Ok(())
}

/// One event of a batch that cannot be stored refuses the batch, names the event, and leaves no
/// hole.
pub async fn writes_all_or_nothing(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 2, 5).await?;
    let stream = &scene.group.stream;
    let good = || numbered(1);
    let large = NewEvent::new(JsonObject::parse(format!("{{\"x\":\"{}\"}}", "x".repeat(EVENT_BYTES_MAX)))?);
    let appended = scene.backend.append(stream, &[good()?, large, good()?]).await;
    ensure_err!(
        "a batch with an event too large",
        appended,
        Error::InvalidEvent { index: 1, error: InvalidEvent::TooLarge { .. } }
    );
    let nameless = NewEvent { id: Some(String::new()), ..good()? };
    let appended = scene.backend.append(stream, &[good()?, good()?, nameless]).await;
    ensure_err!(
        "a batch with an empty id",
        appended,
        Error::InvalidEvent { index: 2, error: InvalidEvent::EmptyId }
    );
    let appended = scene.backend.append(stream, &[good()?, numbered_in(2, 1)?]).await;
    ensure_err!(
        "a batch with a partition out of range",
        appended,
        Error::PartitionNotFound { partition: 2, partitions: 2, .. }
    );
    let missing = scene.backend.append(&name("nowhere")?, &[good()?]).await;
    ensure_err!("append to a missing stream", missing, Error::StreamNotFound(_));
    for partition in scene.backend.stream_info(stream).await?.partitions {
        let counts = (partition.high_watermark, partition.length);
        ensure_eq("a refused batch writes nothing", counts, (0, 0))?;
    }
    let appended = scene.backend.append(stream, &[good()?]).await?;
    let sequences: Vec<u64> = appended.iter().map(|a| a.sequence).collect();
    ensure_eq("a refused batch leaves no hole", sequences, vec![1])
}

/// The size limit is exact.
pub async fn refuses_what_is_too_large(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, 5).await?;
    let event = |bytes: usize| -> Result<NewEvent> {
        let text = format!("{{\"x\":\"{}\"}}", "x".repeat(bytes - "{\"x\":\"\"}".len() - "{}".len()));
        Ok(NewEvent::new(JsonObject::parse(text)?))
    };
    let largest = event(EVENT_BYTES_MAX)?;
    ensure_eq("the event is as large as may be", largest.bytes(), EVENT_BYTES_MAX)?;
    let payload = largest.payload.clone();
    scene.backend.append(&scene.group.stream, &[largest]).await?;
    let refused = scene.backend.append(&scene.group.stream, &[event(EVENT_BYTES_MAX + 1)?]).await;
    ensure_err!(
        "one byte more",
        refused,
        Error::InvalidEvent { index: 0, error: InvalidEvent::TooLarge { bytes, bytes_max: EVENT_BYTES_MAX } }
            if bytes == EVENT_BYTES_MAX + 1
    );
    let read = scene.backend.read(&scene.group.stream, 0, 0, 10).await?;
    let read: Vec<_> = read.into_iter().map(|e| e.payload).collect();
    ensure_eq("the largest event comes back whole", read, vec![payload])
}

/// A batch has a bound, and an empty one is no error.
pub async fn takes_a_batch_up_to_its_bound(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, 5).await?;
    let stream = &scene.group.stream;
    let mut batch = (0..APPEND_BATCH_MAX).map(numbered).collect::<Result<Vec<_>>>()?;
    ensure_none("an empty batch", &scene.backend.append(stream, &[]).await?)?;
    let appended = scene.backend.append(stream, &batch).await?;
    let found: Vec<u64> = appended.iter().map(|a| a.sequence).collect();
    ensure_eq("the largest batch", found, (1..=APPEND_BATCH_MAX as u64).collect::<Vec<_>>())?;
    batch.push(numbered(0)?);
    let refused = scene.backend.append(stream, &batch).await;
    ensure_err!(
        "a batch with one event more",
        refused,
        Error::BatchTooLarge { items, max: APPEND_BATCH_MAX } if items == APPEND_BATCH_MAX + 1
    );
    let state = scene.partition(0).await?;
    ensure_eq("a refused batch writes nothing", state.high_watermark, APPEND_BATCH_MAX as u64)
}

/// A key decides the partition as Rheo does, an explicit partition wins, without either it is 0.
pub async fn routes_by_key(store: &dyn Store) -> Result<()> {
    const PARTITIONS: u32 = 7;
    let scene = Scene::new(store, PARTITIONS, 5).await?;
    let mut batch = Vec::new();
    let mut expected = Vec::new();
    for n in 0..60 {
        let key = ["", "a", "kü", "漢字", "order"][n % 5].repeat(n / 5 + 1);
        expected.push(partition_for_key(Some(&key), PARTITIONS));
        batch.push(NewEvent { key: Some(key), ..numbered(n)? });
    }
    ensure!(expected.iter().collect::<HashSet<_>>().len() > 3, "the keys spread over the partitions");
    batch.push(NewEvent { key: Some("a".to_owned()), ..numbered_in(6, 60)? });
    batch.push(NewEvent { key: Some("a".to_owned()), ..numbered_in(2, 61)? });
    batch.push(numbered(62)?);
    expected.extend([6, 2, 0]);
    let appended = scene.backend.append(&scene.group.stream, &batch).await?;
    let found: Vec<u32> = appended.iter().map(|a| a.partition).collect();
    ensure_eq("partition by explicit number, else key, else 0", found, expected)?;
    let read = scene.backend.read(&scene.group.stream, 6, 0, 100).await?;
    ensure!(
        read.iter().any(|e| e.key.as_deref() == Some("a") && e.payload.as_str() == "{\"n\":60}"),
        "an explicit partition holds the event with its key: found {read:?}"
    );
    Ok(())
}

/// Without an id the store makes one that no other event has; without a time it takes its own.
pub async fn makes_ids_and_times(store: &dyn Store) -> Result<()> {
    let scene = Scene::new(store, 1, 5).await?;
    let mut batch = (0..50).map(numbered).collect::<Result<Vec<_>>>()?;
    batch.push(NewEvent { id: Some("mine".to_owned()), ..numbered(50)? });
    let appended = scene.backend.append(&scene.group.stream, &batch).await?;
    let read = scene.backend.read(&scene.group.stream, 0, 0, 100).await?;
    ensure_eq("everything is read", read.len(), batch.len())?;
    for (appended, read) in appended.iter().zip(&read) {
        let stored = Appended { id: read.id.clone(), partition: 0, sequence: read.sequence };
        ensure_eq("the answer names the event as it is stored", appended, &stored)?;
        let text = &read.timestamp;
        ensure!(
            text.len() == 24 && text.ends_with('Z') && read.timestamp_ms().is_some(),
            "the store's time is ISO 8601 with milliseconds and Z: found {text}"
        );
    }
    let ids: HashSet<&str> = read.iter().map(|e| e.id.as_str()).collect();
    ensure_eq("no two events share an id", ids.len(), batch.len())?;
    ensure!(ids.contains("mine"), "a given id is kept");
    let made = ids.iter().filter(|id| id.len() == 22).count();
    ensure_eq("a made id has 22 characters", made, 50)
}

/// With many appenders over two handles, batches stay whole, sequences have no gaps, and the log
/// has their order.
pub async fn keeps_order_among_concurrent_appenders(store: &dyn Store) -> Result<()> {
    const APPENDERS: usize = 8;
    const BATCHES: usize = 12;
    let scene = Scene::new(store, 3, 5).await?;
    let mut tasks = JoinSet::new();
    for appender in 0..APPENDERS {
        let backend = if appender % 2 == 0 { store.backend() } else { store.other().await? };
        let stream = scene.group.stream.clone();
        tasks.spawn(async move {
            let mut batches = Vec::new();
            for n in 0..BATCHES {
                let mut batch = Vec::new();
                for place in 0..6 {
                    let partition = u32::try_from((place * place + n + appender) % 3)?;
                    batch.push(numbered_in(partition, appender * 1000 + n * 10 + place)?);
                }
                batches.push((backend.append(&stream, &batch).await?, batch));
            }
            anyhow::Ok(batches)
        });
    }
    let mut answered = HashMap::new();
    while let Some(batches) = tasks.join_next().await {
        let mut last = [0u64; 3];
        for (appended, batch) in batches?? {
            let mut previous = [None; 3];
            for (appended, given) in appended.iter().zip(&batch) {
                let partition = appended.partition as usize;
                if let Some(previous) = previous[partition] {
                    ensure_eq("a batch is contiguous", appended.sequence, previous + 1)?;
                }
                previous[partition] = Some(appended.sequence);
                ensure!(appended.sequence > last[partition], "an appender's batches are in its order");
                last[partition] = appended.sequence;
                answered.insert((appended.partition, appended.sequence), given.payload.as_str().to_owned());
            }
        }
    }
    ensure_eq("every event has a place of its own", answered.len(), APPENDERS * BATCHES * 6)?;
    let mut total = 0;
    for partition in 0..3 {
        let events = scene.backend.read(&scene.group.stream, partition, 0, 10_000).await?;
        total += events.len();
        for (event, sequence) in events.iter().zip(1u64..) {
            ensure_eq("the log has no gap and no disorder", event.sequence, sequence)?;
            let given = answered.get(&(partition, sequence)).map(String::as_str);
            ensure_eq("an event stands where its answer said", Some(event.payload.as_str()), given)?;
        }
        let claimed = scene.take(super::kit::Take::by("a").partitions(&[partition]).limit(200)).await?;
        let expected: Vec<u64> = (1..).take(claimed.leased.len()).collect();
        ensure_eq("delivery has the log's order", sequences(&claimed.leased), expected)?;
    }
    ensure_eq("nothing else is stored", total, answered.len())
}
