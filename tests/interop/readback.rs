//! What we write, read by Rheo's rules.

use std::time::Duration;

use wasmill::backend::{Backend as _, NewGroup, Settled, Start};
use wasmill::event::{GroupKey, JsonObject, Name, NewEvent};
use wasmill::outcome::{Cause, FailureKind, Verdict};

use crate::kit::{Bench, LONG, retry};
use crate::peer::{Append, Fetch, Peer, Refusal};

fn new(partition: u32, id: &str) -> NewEvent {
    let payload = JsonObject::parse(format!(r#"{{"type":"tick","key":"k-{id}","price":1.0e5,"ü":[null]}}"#));
    NewEvent {
        id: Some(id.to_owned()),
        partition: Some(partition),
        key: Some(format!("k-{id}")),
        event_type: Some("tick".to_owned()),
        timestamp: None,
        metadata: JsonObject::parse(r#"{"producer":"ours","schema_version":2}"#).unwrap(),
        payload: payload.unwrap(),
    }
}

fn ids(events: impl IntoIterator<Item = crate::peer::Event>) -> Vec<String> {
    events.into_iter().map(|event| event.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_events() {
    let bench = Bench::new(2).await;
    let mut peer = Peer::new(&bench.server.url(), "T");
    assert_eq!(peer.list_streams().unwrap(), ["s"]);
    assert_eq!(peer.create_stream("s", 1), Err(Refusal::AlreadyExists));
    let before = crate::checker::now_ms();
    bench.backend.append(&bench.group.stream, &[new(0, "a"), new(1, "b"), new(0, "c")]).await.unwrap();
    // The peer's own come behind, in the same numbering.
    let theirs = peer.append("s", r#"{"type":"theirs"}"#, &Append::default()).unwrap();
    assert_eq!((theirs.partition, theirs.sequence), (0, 3));

    let read = peer.read("s", 0, 0, 100).unwrap();
    assert_eq!(ids(read.clone()), ["a", "c", theirs.id.as_str()]);
    let a = &read[0];
    assert_eq!(
        (a.sequence, a.partition, a.key.as_deref(), a.event_type.as_deref()),
        (1, 0, Some("k-a"), Some("tick"))
    );
    assert_eq!(a.metadata, serde_json::json!({ "producer": "ours", "schema_version": 2 }));
    assert_eq!(a.payload, serde_json::json!({ "type": "tick", "key": "k-a", "price": 1.0e5, "ü": [null] }));
    // Rheo's own form of a time.
    let at: jiff::Timestamp = a.timestamp.parse().unwrap();
    assert_eq!(a.timestamp, format!("{at:.3}"));
    assert!(u64::try_from(at.as_millisecond()).unwrap() >= before);
    let found = peer.query("s", 1, Some(2), 10, |event| event.event_type.as_deref() == Some("tick")).unwrap();
    assert_eq!(ids(found), ["c"]);

    // And ours reads the peer's.
    let ours = bench.backend.read(&bench.group.stream, 0, 2, 10).await.unwrap();
    assert_eq!((ours[0].id.as_str(), ours[0].sequence), (theirs.id.as_str(), 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_leases() {
    let bench = Bench::new(2).await;
    let mut peer = Peer::new(&bench.server.url(), "T");
    let late = GroupKey::new(bench.group.stream.clone(), Name::new("late").unwrap());
    bench
        .backend
        .append(&bench.group.stream, &[new(0, "a"), new(0, "b"), new(0, "c"), new(1, "d")])
        .await
        .unwrap();
    bench.backend.create_group(&late, NewGroup { max_attempts: 3, start: Start::End }).await.unwrap();
    assert_eq!(peer.list_groups("s").unwrap(), ["g", "late"]);
    assert_eq!(peer.create_group("s", "g", 5, crate::peer::Start::Beginning), Err(Refusal::AlreadyExists));
    assert_eq!(peer.lag("s", "late").unwrap().lag, 0);
    assert_eq!(peer.fetch("s", "late", &Fetch::new("rheo", 10)), Ok(Vec::new()));
    peer.append("s", r#"{"n":1}"#, &Append { partition: Some(1), ..Append::default() }).unwrap();
    assert_eq!(peer.fetch("s", "late", &Fetch::new("rheo", 10)).unwrap()[0].event.sequence, 2);

    // A live lease of ours is left alone; the rest comes.
    let leased = bench.claim("ours", 2).await.leased;
    let held: Vec<_> = leased.iter().map(|leased| leased.event.id.clone()).collect();
    let got = peer.fetch("s", "g", &Fetch::new("rheo", 10)).unwrap();
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|lease| !held.contains(&lease.event.id) && lease.attempt == 1));
    let (lag, inflight, dead) = peer.group_info("s", "g").unwrap();
    assert_eq!((lag.lag, inflight, dead), (5, 5, 0));

    // Parked is not let go; released is, and at the same attempt.
    bench.settle(&leased[..1], |_| retry(LONG)).await.unwrap();
    bench.settle(&leased[1..], |_| Verdict::Release).await.unwrap();
    let again = peer.fetch("s", "g", &Fetch::new("rheo", 10)).unwrap();
    assert_eq!((again.len(), again[0].event.id.as_str(), again[0].attempt), (1, held[1].as_str(), 1));
    // It lets go of that: ours again, as the second attempt.
    peer.nack(&again[0], ":boom").unwrap();
    let back = bench.sweep_until("ours", 1).await;
    assert_eq!((back[0].event.id.as_str(), back[0].lease.attempt), (held[1].as_str(), 2));
    assert_eq!(peer.ack(&again[0]), Err(Refusal::StaleLease));
    assert_eq!(bench.ack(&back).await, [Settled::Done]);
    for lease in &got {
        peer.ack(lease).unwrap();
    }
    let (lag, inflight, _) = peer.group_info("s", "g").unwrap();
    assert_eq!(inflight, 1, "the parked one");
    // A parked event of sequence 1 holds its partition's frontier at 0.
    let place = (leased[0].event.partition, leased[0].event.sequence);
    let (frontier, high) = lag.partitions[&place.0];
    assert_eq!((frontier, high > frontier), (place.1 - 1, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_ours_that_ran_out_is_taken_over() {
    let bench = Bench::new(1).await;
    let mut peer = Peer::new(&bench.server.url(), "T");
    bench.backend.append(&bench.group.stream, &[new(0, "a")]).await.unwrap();
    let leased = bench.try_claim("ours", 1, Duration::from_millis(1), false).await.unwrap().leased;
    let mut taken = Vec::new();
    while taken.is_empty() {
        taken = peer.fetch("s", "g", &Fetch::new("rheo", 1)).unwrap();
    }
    assert_eq!((taken[0].attempt, &taken[0].receipt), (2, &Some(leased[0].lease.receipt.to_string())));
    assert_eq!(bench.ack(&leased).await, [Settled::Stale]);
    // Under the peer's lease nothing of ours moves it, and the peer's renewal and ack are good.
    assert!(bench.try_claim("ours", 1, LONG, true).await.unwrap().leased.is_empty());
    peer.renew(&taken[0], 60_000).unwrap();
    peer.ack(&taken[0]).unwrap();
    assert_eq!(peer.lag("s", "g").unwrap().lag, 0);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters() {
    let bench = Bench::new(2).await;
    let mut peer = Peer::new(&bench.server.url(), "T");
    bench.backend.append(&bench.group.stream, &[new(0, "a"), new(1, "b"), new(0, "c")]).await.unwrap();
    let leased = bench.claim("ours", 10).await.leased;
    let dead = |leased: &wasmill::event::Leased| Verdict::DeadLetter {
        cause: if leased.event.id == "c" { Cause::AttemptsExhausted } else { Cause::Rejected },
        reason: format!("no: {} — ü", leased.event.id),
        failure: (leased.event.id == "c").then_some(FailureKind::Trap),
    };
    bench.settle(&leased, dead).await.unwrap();
    let rows = peer.dead_letters("s", "g", 10, None).unwrap();
    let mut seen: Vec<_> = rows.iter().map(|row| (row.event.id.as_str(), row.reason.as_str())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [("a", "no: a — ü"), ("b", "no: b — ü"), ("c", "no: c — ü")]);
    for row in &rows {
        let read = peer.read("s", row.event.partition, row.event.sequence - 1, 1).unwrap();
        assert_eq!(read, std::slice::from_ref(&row.event), "the whole event is in the row");
        let at: jiff::Timestamp = row.dead_lettered_at.parse().unwrap();
        assert_eq!(row.dead_lettered_at, format!("{at:.3}"));
    }
    let after = peer.dead_letters("s", "g", 10, Some(&rows[1].event.id)).unwrap();
    assert_eq!(after, rows[2..]);
    assert_eq!(peer.group_info("s", "g").unwrap().2, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_replays_and_resets_our_group() {
    let bench = crate::faults::bench(1, 5).await;
    let mut peer = Peer::new(&bench.server.url(), "T");
    bench.append(0, 5).await;
    let leased = bench.claim("ours", 5).await.leased;
    bench.ack(&leased).await;
    assert_eq!(bench.lag().await, 0);

    peer.replay("s", "g", 2).unwrap();
    // A repair must not take for settled what is to be delivered again.
    bench.backend.heal(&bench.group, 0).await.unwrap();
    assert_eq!(bench.lag().await, 3);
    let held = bench.claim("ours", 10).await.leased;
    assert_eq!(crate::kit::sequences(&held), [3, 4, 5]);
    assert!(held.iter().all(|leased| leased.lease.attempt == 1));
    bench.settle(&held[..1], |_| retry(LONG)).await.unwrap();

    let after = crate::peer::Start::After;
    assert_eq!(peer.reset_group("s", "g", after(1), false), Err(Refusal::ConfirmRequired));
    peer.reset_group("s", "g", after(1), true).unwrap();
    bench.backend.heal(&bench.group, 0).await.unwrap();
    assert_eq!(bench.ack(&held[1..]).await, [Settled::Stale; 2], "their leases went with the reset");
    // What was parked is not forgotten, and not kept back either.
    let again = bench.sweep_until("ours", 4).await;
    assert_eq!(crate::kit::sequences(&again), [2, 3, 4, 5]);
    assert!(again.iter().all(|leased| leased.lease.attempt == 1));
    assert_eq!(bench.ack(&again).await, [Settled::Done; 4]);
    assert_eq!(bench.lag().await, 0);
    // What was noted of the parked one goes with a repair.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        bench.backend.heal(&bench.group, 0).await.unwrap();
        let p = bench.backend.group_info(&bench.group).await.unwrap().partitions[0];
        if (p.in_flight, p.parked) == (0, 0) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{p:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_a_peer_moves_back_over_a_lost_body_hands_out_the_rest() {
    let bench = Bench::new(1).await;
    bench.append(0, 6).await;
    let held = bench.claim("ours", 2).await.leased;
    // Of what we hold, one body is gone: it stands in our pending list, and is read no more.
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {}", held[0].lease.receipt));
    let _: () = bench.raw("XGROUP SETID rheo:T:s:s:0 g 0");
    let more = bench.claim("ours", 10).await.leased;
    assert_eq!(crate::kit::sequences(&more), [3, 4, 5, 6]);
    assert!(more.iter().all(|leased| leased.lease.attempt == 1));
    assert_eq!(bench.ack(&more).await, [Settled::Done; 4]);
    assert_eq!(bench.ack(&held).await, [Settled::Done; 2]);
    assert_eq!(bench.lag().await, 0);
}
