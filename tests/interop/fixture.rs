//! Rheo's own answers about the data that it left are the library's answers too.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use wasmill::backend::redis::Redis;
use wasmill::backend::{Backend as _, DeadEvent, Settings};
use wasmill::event::{Event, GroupKey, Name};
use wasmill::routing::partition_for_key;

use crate::server::RedisServer;

/// The server with what Rheo left on it.
pub(crate) fn server() -> RedisServer {
    RedisServer::with_dump(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/rheo/fixture.rdb")))
}

/// What Rheo said of it.
pub(crate) fn expected() -> Value {
    serde_json::from_str(include_str!("../fixtures/rheo/expected.json")).unwrap()
}

pub(crate) async fn connect(server: &RedisServer, namespace: &str) -> Arc<Redis> {
    let settings = Settings { namespace: namespace.to_owned(), ..Settings::default() };
    Arc::new(Redis::connect(&crate::kit::url(&server.url()), &settings).await.unwrap())
}

pub(crate) fn name(text: &str) -> Name {
    Name::existing(text).unwrap()
}

pub(crate) fn group_key(stream: &str, group: &str) -> GroupKey {
    GroupKey::new(name(stream), name(group))
}

/// Every group of the data, as stream and group.
pub(crate) fn groups(expected: &Value) -> Vec<(String, String)> {
    let streams = expected["streams"].as_object().unwrap();
    let of = |(stream, about): (&String, &Value)| {
        let groups = about["groups"].as_object().unwrap();
        groups.keys().map(|group| (stream.clone(), group.clone())).collect::<Vec<_>>()
    };
    streams.iter().flat_map(of).collect()
}

/// An event in the form of the expectations.
fn shown(event: &Event) -> Value {
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    json!({
        "id": event.id,
        "stream": event.stream,
        "partition": event.partition,
        "sequence": event.sequence,
        "timestamp": event.timestamp,
        "key": event.key,
        "type": event.event_type,
        "metadata": value(event.metadata.as_str()),
        "payload": value(event.payload.as_str()),
    })
}

#[tokio::test]
async fn streams_and_groups_are_listed() {
    let (server, expected) = (server(), expected());
    let backend = connect(&server, "Fixture").await;
    let streams = backend.streams().await.unwrap();
    assert_eq!(json!(streams.iter().map(|s| &s.stream).collect::<Vec<_>>()), expected["list_streams"]);
    for stream in streams {
        let about = &expected["streams"][stream.stream.as_str()];
        assert_eq!(json!(backend.groups(&stream.stream).await.unwrap()), about["list_groups"], "{stream:?}");
    }
    let collide = connect(&server, "Collide").await;
    assert_eq!(collide.streams().await.unwrap()[0].partitions, 2);
}

#[tokio::test]
async fn groups_stand_where_rheo_says() {
    let (server, expected) = (server(), expected());
    let backend = connect(&server, "Fixture").await;
    for (stream, group) in groups(&expected) {
        let about = &expected["streams"][&stream]["groups"][&group];
        let info = backend.group_info(&group_key(&stream, &group)).await.unwrap();
        assert_eq!(json!(info.lag(|_| true)), about["lag"]["lag"], "{stream}/{group}");
        let partitions = about["lag"]["partitions"].as_object().unwrap();
        assert_eq!(partitions.len(), info.partitions.len());
        for p in &info.partitions {
            let wanted =
                json!({ "frontier": p.frontier, "high_watermark": p.high_watermark, "lag": p.lag() });
            assert_eq!(wanted, partitions[&p.partition.to_string()], "{stream}/{group}");
        }
        let pending: u64 = info.partitions.iter().map(|p| p.in_flight + p.parked).sum();
        assert_eq!(json!(pending), about["group_info"]["inflight_count"], "{stream}/{group}");
        assert_eq!(json!(info.dead_letters), about["group_info"]["dead_letter_count"], "{stream}/{group}");
    }
    let risk = backend.group_info(&group_key("orders", "risk")).await.unwrap();
    assert_eq!(risk.max_attempts, 3);
}

#[tokio::test]
async fn dead_letters_come_in_order() {
    let (server, expected) = (server(), expected());
    let backend = connect(&server, "Fixture").await;
    for (stream, group) in groups(&expected) {
        let letters = backend.dead_letters(&group_key(&stream, &group), None, 100).await.unwrap();
        let rows = letters.iter().map(|letter| {
            let DeadEvent::Event(event) = &letter.event else { panic!("{letter:?}") };
            assert_eq!(
                (letter.cause, letter.failure, letter.attempts),
                (None, None, None),
                "Rheo keeps none"
            );
            json!({
                "event": shown(event),
                "event_id": event.id,
                "group": group,
                "stream": stream,
                "partition": event.partition,
                "sequence": event.sequence,
                "reason": letter.reason,
                "dead_lettered_at": letter.dead_lettered_at,
            })
        });
        let wanted = &expected["streams"][&stream]["groups"][&group]["dead_letters"];
        assert_eq!(&Value::from_iter(rows), wanted, "{stream}/{group}");
    }
}

#[tokio::test]
async fn events_are_read_as_rheo_reads_them() {
    let (server, expected) = (server(), expected());
    let backend = connect(&server, "Fixture").await;
    for (stream, about) in expected["streams"].as_object().unwrap() {
        let mut all = Vec::new();
        for partition in backend.stream_info(&name(stream)).await.unwrap().partitions {
            let events = backend.read(&name(stream), partition.partition, 0, 1000).await.unwrap();
            let events: Vec<_> = events.iter().map(shown).collect();
            if partition.partition == 0 {
                assert_eq!(json!(events), about["read"], "{stream}");
            }
            all.extend(events);
        }
        all.sort_by_key(|event| (event["sequence"].as_u64(), event["partition"].as_u64()));
        assert_eq!(json!(all), about["query_all"], "{stream}");
    }
}

#[tokio::test]
async fn keys_are_routed_as_rheo_routes_them() {
    let expected = expected();
    let routed = expected["multi_routing"].as_array().unwrap();
    let partitions: BTreeSet<_> = routed.iter().map(|row| row["partition"].as_u64().unwrap()).collect();
    assert!(partitions.len() > 2, "{partitions:?}");
    for row in routed {
        assert_eq!(json!(partition_for_key(row["key"].as_str(), 4)), row["partition"], "{row}");
    }
}
