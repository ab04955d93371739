//! In one group with Rheo: what it writes is understood, and nothing of ours misleads it.

use std::collections::HashMap;
use std::time::Duration;

use wasmill::backend::{Backend as _, PendingState, Settled};
use wasmill::event::{Lease, Leased};
use wasmill::outcome::{Cause, FailureKind, Verdict};

use crate::kit::{Bench, LONG, event, retry, sequences};

fn fence(bench: &Bench, id: &str) -> HashMap<String, String> {
    bench.raw(&format!("HGETALL rheo:T:fence:s:g:{id}"))
}

/// Takes an entry as Rheo's fetch does.
fn lease_like_rheo(bench: &Bench, id: &str, partition: u32, attempt: u32, expires_at_ms: u64) {
    let _: i64 = bench.raw(&format!(
        "HSET rheo:T:fence:s:g:{id} lease_id rheo-lease attempt {attempt} expires_at_ms {expires_at_ms} \
         event_id e partition {partition} sequence 1 consumer_id rheo"
    ));
}

#[tokio::test]
async fn keys_are_those_of_rheo() {
    let bench = Bench::new(2).await;
    let mut new = event(1, 7);
    new.id = Some("e7".to_owned());
    new.key = Some("k".to_owned());
    new.event_type = Some("t".to_owned());
    new.timestamp = Some("2020-01-15T12:00:00.000Z".to_owned());
    bench.backend.append(&bench.group.stream, &[new]).await.unwrap();

    let meta: HashMap<String, String> = bench.raw("HGETALL rheo:T:meta:s");
    assert_eq!(meta["partition_count"], "2");
    let created = &meta["created_at"];
    assert_eq!((created.len(), &created[10..11], &created[23..]), (24, "T", "Z"), "{created}");
    let gmeta: HashMap<String, String> = bench.raw("HGETALL rheo:T:gmeta:s:g");
    let expected = [
        ("max_attempts", "5"),
        ("frontier_p0", "0"),
        ("frontier_p1", "0"),
        ("cursor_p0", "0"),
        ("cursor_p1", "0"),
    ];
    assert_eq!(gmeta, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    assert_eq!(bench.raw::<String>("GET rheo:T:seq:s:1"), "1");
    let rows: Vec<(String, Vec<String>)> = bench.raw("XRANGE rheo:T:s:s:1 - +");
    let fields = [
        "id",
        "e7",
        "sequence",
        "1",
        "partition",
        "1",
        "timestamp",
        "2020-01-15T12:00:00.000Z",
        "key",
        "k",
        "type",
        "t",
        "metadata",
        "{}",
        "payload",
        "{\"n\":7}",
    ];
    assert_eq!(rows[0].1, fields);
    // The low part of our ids: sequence × partitions + partition.
    assert_eq!(rows[0].0.split_once('-').unwrap().1, "3");
    let index: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:1 0 -1 WITHSCORES");
    assert_eq!(index, [rows[0].0.as_str(), "1"]);

    let leased = bench.claim("me", 1).await.leased;
    let held = fence(&bench, &rows[0].0);
    assert_eq!(held["lease_id"], *leased[0].lease.id);
    assert_eq!(
        (held["attempt"].as_str(), held["partition"].as_str(), held["consumer_id"].as_str()),
        ("1", "1", "me")
    );
    bench.ack(&leased).await;
    assert!(fence(&bench, &rows[0].0).is_empty());
    let done: Vec<String> = bench.raw("ZRANGE rheo:T:done:s:g:1 0 -1");
    assert!(done.is_empty());
    assert_eq!(bench.raw::<String>("HGET rheo:T:gmeta:s:g frontier_p1"), "1");
}

#[tokio::test]
async fn a_parked_event_stays_out_of_rheos_hands_until_its_time() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    let leased = bench.claim("me", 2).await.leased;
    let before: u64 = bench.raw::<(u64, u64)>("TIME").0 * 1000;
    bench.settle(&leased[..1], |_| retry(Duration::from_secs(60))).await.unwrap();
    bench.settle(&leased[1..], |_| Verdict::Release).await.unwrap();

    // Rheo takes what has no lease id, or an expiry that its clock has passed.
    let parked = fence(&bench, &leased[0].lease.receipt);
    assert_ne!(parked["lease_id"], "");
    assert_ne!(parked["lease_id"], *leased[0].lease.id);
    assert!(parked["expires_at_ms"].parse::<u64>().unwrap() >= before + 60_000);
    assert_eq!(
        (parked["attempt"].as_str(), parked["failure"].as_str(), parked["reason"].as_str()),
        ("1", "retry", "later")
    );
    let released = fence(&bench, &leased[1].lease.receipt);
    assert_eq!(
        (released["lease_id"].as_str(), released["expires_at_ms"].as_str(), released["attempt"].as_str()),
        ("", "0", "0")
    );
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!((info.partitions[0].parked, info.partitions[0].in_flight), (2, 0));
}

#[tokio::test]
async fn what_rheo_took_while_it_was_parked_is_left_to_it() {
    let bench = Bench::new(1).await;
    bench.append(0, 1).await;
    let leased = bench.claim("me", 1).await.leased;
    bench.settle(&leased, |_| retry(Duration::ZERO)).await.unwrap();
    lease_like_rheo(&bench, &leased[0].lease.receipt, 0, 2, 9_999_999_999_999);
    for _ in 0..3 {
        assert!(bench.try_claim("me", 1, LONG, true).await.unwrap().leased.is_empty());
    }
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!((info.partitions[0].parked, info.partitions[0].in_flight), (0, 1));
    // Its lease runs out: ours again, and its attempt counts.
    lease_like_rheo(&bench, &leased[0].lease.receipt, 0, 2, 1);
    assert_eq!(bench.sweep_until("me", 1).await[0].lease.attempt, 3);
}

#[tokio::test]
async fn what_rheo_let_go_comes_at_once() {
    let bench = Bench::new(1).await;
    let id = bench.append_like_rheo(0, "*");
    let _: Vec<redis::Value> = bench.raw("XREADGROUP GROUP g rheo STREAMS rheo:T:s:s:0 >");
    lease_like_rheo(&bench, &id, 0, 2, 0);
    let _: i64 =
        bench.raw_with("HSET", &[&format!("rheo:T:fence:s:g:{id}"), "lease_id", "", "reason", ":boom"]);
    let pending = bench.backend.pending(&bench.group, 0, None, 10).await.unwrap();
    assert_eq!(pending[0].state, PendingState::Parked { due_in_ms: 0 });
    assert_eq!(pending[0].failure, Some((FailureKind::Retry, ":boom".to_owned())));
    assert_eq!(pending[0].event_id.as_deref(), Some("rheo-0-1"));

    let leased = bench.sweep_until("me", 1).await;
    assert_eq!((leased[0].lease.attempt, &*leased[0].lease.receipt), (3, id.as_str()));
    assert_eq!(bench.ack(&leased).await, [Settled::Done]);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn an_entry_that_no_one_ever_leased_is_found() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    // Read by one that died before it wrote a fence: never handled, so no attempt counts.
    let _: Vec<redis::Value> = bench.raw("XREADGROUP GROUP g dead STREAMS rheo:T:s:s:0 >");
    let leased = bench.sweep_until("me", 3).await;
    assert_eq!(sequences(&leased), [1, 2, 3]);
    assert!(leased.iter().all(|leased| leased.lease.attempt == 1));
}

#[tokio::test]
async fn entries_with_one_id_in_two_partitions_share_no_lease() {
    let bench = Bench::new(2).await;
    for partition in 0..2 {
        assert_eq!(bench.append_like_rheo(partition, "1700000000000-0"), "1700000000000-0");
    }
    let first = bench.claim("me", 10).await.leased;
    assert_eq!(first.len(), 1, "while one is held the other is not claimable");
    let taken = first[0].event.partition;
    assert!(bench.try_claim("me", 10, LONG, true).await.unwrap().leased.is_empty());

    // A lease of the one says nothing about the other.
    let other = Lease { partition: 1 - taken, ..first[0].lease.clone() };
    let wrong = [Leased { lease: other, event: first[0].event.clone() }];
    assert_ne!(bench.ack(&wrong).await, [Settled::Done]);
    assert_eq!(bench.ack(&first).await, [Settled::Done]);
    let second = bench.sweep_until("me", 1).await;
    assert_eq!(second[0].event.partition, 1 - taken);
    assert_eq!(bench.ack(&second).await, [Settled::Done]);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn an_event_without_index_row_settles() {
    let bench = Bench::new(1).await;
    let id = bench.append_like_rheo(0, "*");
    let _: i64 = bench.raw(&format!("ZREM rheo:T:z:s:0 {id}"));
    let leased = bench.claim("me", 1).await.leased;
    assert_eq!(bench.ack(&leased).await, [Settled::Done]);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn what_is_no_event_becomes_a_dead_letter_with_its_fields() {
    let bench = Bench::new(1).await;
    bench.append(0, 1).await;
    let _: String = bench.raw("XADD rheo:T:s:s:0 * foo bar reason mine");
    let _: i64 = bench.raw("INCRBY rheo:T:seq:s:0 1");
    let broken: String = bench.raw("XADD rheo:T:s:s:0 * id e2 sequence 2 timestamp t payload []");
    let _: i64 = bench.raw(&format!("ZADD rheo:T:z:s:0 2 {broken}"));
    bench.append(0, 1).await;

    let claimed = bench.claim("me", 10).await;
    assert_eq!(sequences(&claimed.leased), [1, 3]);
    assert_eq!(claimed.dead_lettered.len(), 2);
    assert!(claimed.dead_lettered.iter().all(|death| death.cause == Cause::Undecodable));
    assert_eq!(claimed.dead_lettered[0].sequence, None);
    assert_eq!(
        (claimed.dead_lettered[1].sequence, claimed.dead_lettered[1].event_id.as_deref()),
        (Some(2), Some("e2"))
    );
    let letters = bench.backend.dead_letters(&bench.group, None, 10).await.unwrap();
    assert_eq!(letters[0].cause, Some(Cause::Undecodable));
    let kept = vec![("foo".to_owned(), "bar".to_owned()), ("reason".to_owned(), "mine".to_owned())];
    assert_eq!(letters[0].event, wasmill::backend::DeadEvent::Raw(kept));
    assert!(letters[1].reason.contains("payload"), "{}", letters[1].reason);
    bench.ack(&claimed.leased).await;
    assert_eq!(bench.lag().await, 0, "the frontier passes what is no event");
}

#[tokio::test]
async fn a_trimmed_body_becomes_a_dead_letter() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    let leased = bench.try_claim("me", 2, Duration::from_millis(1), false).await.unwrap().leased;
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {}", leased[0].lease.receipt));
    let mut deaths = Vec::new();
    let mut again = Vec::new();
    while deaths.is_empty() || again.is_empty() {
        let claimed = bench.try_claim("other", 10, LONG, true).await.unwrap();
        deaths.extend(claimed.dead_lettered);
        again.extend(claimed.leased);
    }
    assert_eq!(deaths[0].cause, Cause::Missing);
    assert_eq!(sequences(&again), [2]);
    bench.ack(&again).await;
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn groups_of_longer_stream_names_are_not_confused() {
    let bench = Bench::new(1).await;
    let _: i64 = bench.raw("HSET rheo:T:meta:s:x partition_count 1");
    let _: i64 = bench.raw("HSET rheo:T:gmeta:s:x:h max_attempts 5");
    let _: i64 = bench.raw("HSET rheo:T:gmeta:s:y:h max_attempts 5");
    let names = bench.backend.groups(&bench.group.stream).await.unwrap();
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["g", "y:h"]);
    let longer = wasmill::event::Name::existing("s:x").unwrap();
    assert_eq!(bench.backend.groups(&longer).await.unwrap()[0].as_str(), "h");
}

#[tokio::test]
async fn a_clock_that_went_back_keeps_the_order() {
    let bench = Bench::new(2).await;
    let _: String =
        bench.raw("XADD rheo:T:s:s:0 99999999999999-5 id far sequence 1 partition 0 timestamp t payload {}");
    let _: () = bench.raw("SET rheo:T:seq:s:0 1");
    let _: i64 = bench.raw("ZADD rheo:T:z:s:0 1 99999999999999-5");
    bench.append(0, 3).await;
    bench.append(0, 1).await;
    let ids: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:0 0 -1");
    assert_eq!(
        ids[1..],
        ["100000000000000-4", "100000000000000-6", "100000000000000-8", "100000000000000-10"]
    );
    let leased = bench.claim("me", 10).await.leased;
    assert_eq!(sequences(&leased), [1, 2, 3, 4, 5]);
}
