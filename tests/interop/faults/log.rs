//! Appending and reading.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wasmill::backend::{Backend as _, Error, Query, RepairKind, Settled, query};
use wasmill::event::{JsonObject, Name, NewEvent};
use wasmill::outcome::{Cause, Verdict};
use wasmill::query::{Condition, Filter};

use super::{bench, block, drain, heal, peer, places};
use crate::engines::connect;
use crate::kit::{Bench, LONG, event, retry};
use crate::peer::{Append, Next, Refusal};

/// The entry ids of each partition.
fn entry_ids(bench: &Bench) -> Vec<BTreeSet<String>> {
    let of = |p: &u32| {
        let rows: Vec<(String, redis::Value)> = bench.raw(&format!("XRANGE rheo:T:s:s:{p} - +"));
        rows.into_iter().map(|(id, _)| id).collect()
    };
    bench.partitions.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_01_entry_ids_of_partitions_collide() {
    let bench = bench(4, 5).await;
    // Ours never share an id.
    for batch in 0..20 {
        let events: Vec<NewEvent> = (0..100).map(|n| event(n % 4, batch * 100 + n as usize)).collect();
        bench.backend.append(&bench.group.stream, &events).await.unwrap();
    }
    let ids = entry_ids(&bench);
    assert_eq!(ids.iter().flatten().collect::<BTreeSet<_>>().len(), 2000);
    // Rheo's do: one batch over all partitions, in one millisecond.
    let mut peer = peer(&bench);
    let payloads: Vec<String> = (0..200).map(|n| format!(r#"{{"key":"k{n}"}}"#)).collect();
    for batch in payloads.chunks(8) {
        let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
        peer.append_batch("s", &batch, &Append::default()).unwrap();
    }
    let ids = entry_ids(&bench);
    let distinct = ids.iter().flatten().collect::<BTreeSet<_>>().len();
    assert!(distinct < 2200, "none of Rheo's collided");

    // One consumer gets each exactly once, and every ack counts.
    let came = drain(&bench, "ours").await;
    assert_eq!(came.len(), 2200);
    assert!(came.values().all(|times| *times == 1));
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!((info.lag(|_| true), info.partitions.iter().map(|p| p.in_flight).sum::<u64>()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_04_a_failed_append_leaves_a_hole() {
    let bench = bench(2, 5).await;
    // Ours is refused before anything is written.
    let large = JsonObject::parse(format!("{{\"x\":\"{}\"}}", "x".repeat(5 << 20))).unwrap();
    let good = event(0, 1);
    for (bad, what) in [(NewEvent::new(large), "too large"), (event(2, 1), "no such partition")] {
        let refused = bench.backend.append(&bench.group.stream, &[good.clone(), bad]).await;
        assert!(
            matches!(refused, Err(Error::InvalidEvent { .. } | Error::PartitionNotFound { .. })),
            "{what}"
        );
    }
    assert!(JsonObject::parse("{\"a\":").is_err() && JsonObject::parse("[1]").is_err());
    assert_eq!(bench.raw::<i64>("EXISTS rheo:T:seq:s:0 rheo:T:s:s:0 rheo:T:z:s:0"), 1, "the group's stream");
    assert_eq!(bench.raw::<i64>("XLEN rheo:T:s:s:0"), 0);

    // A peer that dies between the counter and the entries leaves two sequences without entries.
    let mut dying = peer(&bench);
    dying.once_in_gap("append", 2, || Next::Die);
    let on_0 = Append { partition: Some(0), ..Append::default() };
    assert_eq!(dying.append_batch("s", &["{}", "{}"], &on_0), Err(Refusal::Died));
    bench.append(0, 3).await;
    let came = drain(&bench, "ours").await;
    assert_eq!(came.into_keys().collect::<Vec<_>>(), [(0, 3), (0, 4), (0, 5)]);
    assert_eq!(bench.lag().await, 5, "the hole holds the frontier, since it might yet be filled");
    let kinds = heal(&bench).await;
    assert!(kinds.contains(&RepairKind::Hole), "{kinds:?}");
    let mut peer = peer(&bench);
    assert_eq!(peer.lag("s", "g").unwrap().partitions[&0], (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_05_an_event_without_index_row_cannot_be_settled() {
    let bench = bench(1, 5).await;
    let mut peer = peer(&bench);
    peer.once_in_gap("append", 3, || Next::Die);
    assert_eq!(peer.append_batch("s", &["{}"; 3], &Append::default()), Err(Refusal::Died));
    assert_eq!(bench.raw::<i64>("EXISTS rheo:T:z:s:0"), 0);
    let leased = bench.claim("ours", 3).await.leased;
    assert_eq!(places(&leased), [(0, 1), (0, 2), (0, 3)]);
    let verdicts = bench
        .settle(&leased, |leased| match leased.event.sequence {
            1 => Verdict::Ack(Default::default()),
            2 => Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None },
            _ => retry(Duration::ZERO),
        })
        .await
        .unwrap();
    assert_eq!(verdicts, [Settled::Done; 3]);
    let again = bench.sweep_until("ours", 1).await;
    assert_eq!((again[0].event.sequence, again[0].lease.attempt), (3, 2));
    assert_eq!(bench.ack(&again).await, [Settled::Done]);
    assert_eq!(bench.lag().await, 0);
    assert_eq!(drain(&bench, "ours").await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_06_sequences_and_entries_stand_in_different_orders() {
    let bench = bench(1, 5).await;
    // Ours, thirty-two at a time.
    let bench = std::sync::Arc::new(bench);
    let writers: Vec<_> = (0..32)
        .map(|_| {
            let bench = bench.clone();
            tokio::spawn(async move {
                for n in 0..30 {
                    bench.backend.append(&bench.group.stream, &[event(0, n)]).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let log: Vec<(String, Vec<String>)> = bench.raw("XRANGE rheo:T:s:s:0 - +");
    let sequences: Vec<u64> = log.iter().map(|(_, fields)| fields[3].parse().unwrap()).collect();
    assert_eq!(sequences, (1..=960).collect::<Vec<_>>());

    // A peer's sequence 961 comes into the log behind another's 962.
    let mut quick = peer(&bench);
    let mut slow = peer(&bench);
    slow.once_in_gap("append", 2, || {
        assert_eq!(quick.append("s", r#"{"n":2}"#, &Append::default()).unwrap().sequence, 962);
        Next::GoOn
    });
    assert_eq!(slow.append("s", r#"{"n":1}"#, &Append::default()).unwrap().sequence, 961);
    drop(slow);
    let log: Vec<(String, Vec<String>)> = bench.raw("XREVRANGE rheo:T:s:s:0 + - COUNT 2");
    assert_eq!([&log[0].1[3], &log[1].1[3]], ["961", "962"]);
    for after in 958..=962 {
        let read = bench.backend.read(&bench.group.stream, 0, after, 100).await.unwrap();
        let read: Vec<_> = read.iter().map(|event| event.sequence).collect();
        assert_eq!(read, (after + 1..=962).collect::<Vec<_>>(), "after {after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_16_partitions_are_served_in_order() {
    let bench = bench(4, 5).await;
    bench.append(0, 1000).await;
    for p in 1..4 {
        bench.append(p, 2).await;
    }
    let mut served = BTreeSet::new();
    for _ in 0..2 {
        let leased = bench.claim("ours", 8).await.leased;
        served.extend(leased.iter().map(|leased| leased.event.partition));
    }
    assert_eq!(served, (0..4).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_17_ids_and_metadata_keys_may_repeat() {
    let bench = bench(1, 5).await;
    let mut peer = peer(&bench);
    let metadata = r#"{"producer":"first","producer":"second"}"#;
    let same =
        Append { id: Some("twin".to_owned()), metadata: Some(metadata.to_owned()), ..Append::default() };
    peer.append_batch("s", &[r#"{"n":1}"#, r#"{"n":2}"#], &same).unwrap();
    let leased = bench.claim("ours", 2).await.leased;
    assert!(leased.iter().all(|leased| leased.event.id == "twin"));
    assert!(leased.iter().all(|leased| leased.event.metadata.as_str() == metadata), "byte for byte");
    for (producer, found) in [("first", 2), ("second", 0)] {
        let conditions = vec![Condition::text("producer", producer)];
        let question = Query { filter: Filter { conditions, ..Filter::default() }, ..Query::default() };
        let page = query(&bench.backend, &bench.group.stream, &question).await.unwrap();
        assert_eq!(page.events.len(), found, "of equal keys the first counts, as when Rheo reads them");
    }
    // Each of the twins has its own lease and its own end.
    assert_eq!(bench.ack(&leased[..1]).await, [Settled::Done]);
    let reject = |_: &_| Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".into(), failure: None };
    assert_eq!(bench.settle(&leased[1..], reject).await.unwrap(), [Settled::Done]);
    assert_eq!(bench.lag().await, 0);
    assert_eq!(bench.backend.dead_letters(&bench.group, None, 10).await.unwrap().len(), 1);
}

/// What the server has sent to all its clients, in bytes.
fn sent_bytes(bench: &Bench) -> u64 {
    let info: String = bench.raw("INFO stats");
    let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_20_a_query_reads_the_whole_stream() {
    const EVENTS: usize = 6000;
    let bench = bench(2, 5).await;
    let text = "x".repeat(1000);
    let events: Vec<NewEvent> = (0..EVENTS)
        .map(|n| NewEvent {
            partition: Some((n % 2) as u32),
            event_type: Some(if n % 3 == 0 { "fizz" } else { "none" }.to_owned()),
            ..NewEvent::new(JsonObject::parse(format!("{{\"n\":{n},\"text\":\"{text}\"}}")).unwrap())
        })
        .collect();
    for batch in events.chunks(500) {
        bench.backend.append(&bench.group.stream, batch).await.unwrap();
    }
    let whole = EVENTS as u64 * 1000;
    let filter = Filter { conditions: vec![Condition::text("type", "fizz")], ..Filter::default() };
    let few = Query { filter: filter.clone(), limit: 10, ..Query::default() };
    let before = sent_bytes(&bench);
    let page = query(&bench.backend, &bench.group.stream, &few).await.unwrap();
    let read = sent_bytes(&bench) - before;
    assert_eq!(page.events.len(), 10);
    assert!(read < whole / 5, "{read} bytes for ten events of {whole}");

    // Page by page, nothing is read again and again.
    let before = sent_bytes(&bench);
    let (mut question, mut found) = (Query { filter, limit: 100, ..Query::default() }, 0);
    loop {
        let page = query(&bench.backend, &bench.group.stream, &question).await.unwrap();
        found += page.events.len();
        let Some(next) = page.next else { break };
        question.cursor = next;
    }
    let read = sent_bytes(&bench) - before;
    assert_eq!(found, EVENTS / 3);
    assert!(read < 6 * whole, "{read} bytes for pages of {whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_21_retries_have_no_delay_and_wake_no_one() {
    let bench = bench(1, 5).await;
    bench.append(0, 1).await;
    let leased = bench.claim("ours", 1).await.leased;
    let delay = Duration::from_millis(400);
    let parked_at = Instant::now();
    bench.settle(&leased, |_| retry(delay)).await.unwrap();
    assert!(bench.try_claim("ours", 1, LONG, true).await.unwrap().leased.is_empty());
    // No one polls: the wait itself ends when its time has come.
    bench.backend.wait(&bench.group, &[0], LONG).await.unwrap();
    let again = bench.sweep_until("ours", 1).await;
    assert!(parked_at.elapsed() >= delay - Duration::from_millis(2), "{:?}", parked_at.elapsed());
    assert_eq!(again[0].lease.attempt, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_21_no_hash_tag() {
    let server = crate::server::RedisServer::start();
    let settings = wasmill::backend::Settings { namespace: "{orders}".to_owned(), ..Default::default() };
    let url = crate::kit::url(&server.url());
    let backend = wasmill::backend::redis::Redis::connect(&url, &settings).await.unwrap();
    let group = crate::fixture::group_key("s", "g");
    let raw = redis::Client::open(server.url()).unwrap();
    let bench = Bench { server, backend, group, partitions: vec![0, 1], raw };
    bench.backend.create_stream(&bench.group.stream, 2).await.unwrap();
    let new = wasmill::backend::NewGroup { max_attempts: 2, start: wasmill::backend::Start::Beginning };
    bench.backend.create_group(&bench.group, new).await.unwrap();
    for p in 0..2 {
        bench.append(p, 4).await;
    }
    let leased = bench.claim("ours", 6).await.leased;
    bench.settle(&leased[..1], |_| retry(LONG)).await.unwrap();
    let reject = |_: &_| Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".into(), failure: None };
    bench.settle(&leased[1..2], reject).await.unwrap();
    bench.ack(&leased[3..4]).await;
    let keys: Vec<String> = bench.raw("KEYS *");
    assert!(keys.len() > 12, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("rheo:{orders}:")), "one slot holds all: {keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_21_fences_of_trimmed_entries_leak() {
    let bench = bench(1, 5).await;
    bench.append(0, 20).await;
    let mut peer = peer(&bench);
    let held = peer.fetch("s", "g", &crate::peer::Fetch::new("rheo", 10)).unwrap();
    // A peer's renewal after our settlement leaves a fence that belongs to nothing.
    super::expire(&bench);
    peer.once_in_gap("renew", 2, || {
        block(async {
            let leased = bench.sweep_until("ours", 20).await;
            assert_eq!(bench.ack(&leased).await, [Settled::Done; 20]);
        });
        Next::GoOn
    });
    peer.renew(&held[0], 60_000).unwrap();
    drop(peer);
    assert_eq!(bench.raw::<Vec<String>>("KEYS rheo:T:fence:*").len(), 1);
    let trim = wasmill::backend::Trim { max_length: Some(0), ..Default::default() };
    while bench.backend.trim(&bench.group.stream, trim).await.unwrap().more {}
    let deadline = Instant::now() + super::PATIENCE;
    while !bench.raw::<Vec<String>>("KEYS rheo:T:fence:*").is_empty() {
        assert!(Instant::now() < deadline);
        bench.backend.heal(&bench.group, 0).await.unwrap();
    }
    assert_eq!(bench.raw::<i64>("XLEN rheo:T:s:s:0"), 0);
    assert_eq!(bench.raw::<i64>("EXISTS rheo:T:z:s:0 rheo:T:done:s:g:0"), 0);
    // The numbering goes on.
    bench.append(0, 1).await;
    assert_eq!(places(&bench.claim("ours", 5).await.leased), [(0, 21)]);
    let another = connect(&bench.server.url()).await;
    assert_eq!(another.read(&Name::new("s").unwrap(), 0, 0, 10).await.unwrap().len(), 1);
}
