//! A redriven event survives whatever happens to the group, the log and the one that handles it.

use std::time::{Duration, Instant};

use wasmill::backend::{
    Backend as _, ClaimRequest, PendingState, Redriven, Rewind, RewindKind, Settled, rewind,
};
use wasmill::event::Leased;
use wasmill::outcome::{Cause, Verdict};

use crate::kit::{Bench, LONG, sequences};

/// Ends before anyone looks.
const SHORT: Duration = Duration::from_millis(1);

async fn reject(bench: &Bench, leased: &[Leased]) {
    let verdict =
        |_: &Leased| Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None };
    let settled = bench.settle(leased, verdict).await.unwrap();
    assert!(settled.iter().all(|settled| *settled == Settled::Done));
}

async fn rows(bench: &Bench) -> Vec<String> {
    let letters = bench.backend.dead_letters(&bench.group, None, 100).await.unwrap();
    letters.into_iter().map(|letter| letter.row).collect()
}

async fn redrive_all(bench: &Bench) {
    let rows = rows(bench).await;
    let redriven = bench.backend.redrive(&bench.group, &rows).await.unwrap();
    assert_eq!(redriven, vec![Redriven::Done; rows.len()]);
}

/// A group of which the given events are redriven, and the others acked.
async fn with_redriven(count: usize, dead: &[u64]) -> (Bench, Vec<Leased>) {
    let bench = Bench::new(1).await;
    bench.append(0, count).await;
    let held = bench.claim("a", count).await.leased;
    let (dead, acked): (Vec<_>, Vec<_>) = held.into_iter().partition(|l| dead.contains(&l.event.sequence));
    bench.ack(&acked).await;
    reject(&bench, &dead).await;
    redrive_all(&bench).await;
    (bench, dead)
}

/// Redriven, in flight, parked.
async fn counts(bench: &Bench) -> (u64, u64, u64) {
    let state = bench.backend.group_info(&bench.group).await.unwrap().partitions.remove(0);
    (state.redriven, state.in_flight, state.parked)
}

async fn assert_settled(bench: &Bench) {
    assert_eq!(bench.lag().await, 0);
    assert_eq!(counts(bench).await, (0, 0, 0));
    for _ in 0..3 {
        let claimed = bench.try_claim("z", 10, LONG, true).await.unwrap();
        assert_eq!((claimed.leased.len(), claimed.dead_lettered.len()), (0, 0));
    }
    let left: Vec<String> = bench.raw("KEYS rheo:T:*:s:g:*");
    assert!(left.iter().all(|key| !key.contains("fence") && !key.contains("copy")), "{left:?}");
}

#[tokio::test]
async fn it_survives_the_loss_of_the_group() {
    let (bench, dead) = with_redriven(6, &[2, 4, 5]).await;
    let held = bench.claim("a", 1).await.leased;
    assert_eq!(sequences(&held), [2]);
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
    let mut again = bench.sweep_until("b", 2).await;
    again.sort_by_key(|leased| leased.event.sequence);
    assert_eq!(sequences(&again), [4, 5]);
    assert_eq!(counts(&bench).await, (3, 3, 0));
    assert_eq!((&again[0].event, again[0].lease.attempt), (&dead[1].event, 1));
    bench.ack(&held).await;
    bench.ack(&again).await;
    assert_settled(&bench).await;
}

#[tokio::test]
async fn it_comes_back_after_a_loss_in_which_its_holder_died() {
    for trimmed in [false, true] {
        let (bench, dead) = with_redriven(3, &[2]).await;
        let held = bench.try_claim("a", 1, SHORT, false).await.unwrap().leased;
        assert_eq!(held.len(), 1);
        if trimmed {
            let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 0");
        }
        let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
        let again = bench.sweep_until("b", 1).await;
        assert_eq!((&again[0].event, again[0].lease.attempt), (&dead[0].event, 2));
        assert_eq!(bench.ack(&held).await, [Settled::Stale]);
        bench.ack(&again).await;
        assert_settled(&bench).await;
    }
}

#[tokio::test]
async fn its_record_alone_brings_it_back() {
    for trimmed in [false, true] {
        let (bench, dead) = with_redriven(3, &[2]).await;
        if trimmed {
            let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 0");
        }
        let receipt = &dead[0].lease.receipt;
        let _: i64 = bench.raw(&format!("DEL rheo:T:due:s:g:0 rheo:T:fence:s:g:{receipt}"));
        let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
        let again = bench.sweep_until("b", 1).await;
        assert_eq!((&again[0].event, again[0].lease.attempt), (&dead[0].event, 1));
        bench.ack(&again).await;
        assert_settled(&bench).await;
    }
}

#[tokio::test]
async fn it_comes_from_its_copy_once_its_body_is_gone() {
    // With and without its index row; the body goes before the redrive, while it waits, under lease.
    for rows_too in [false, true] {
        for when in 0..3 {
            let bench = Bench::new(1).await;
            bench.append(0, 2).await;
            let dead = bench.claim("a", 2).await.leased;
            reject(&bench, &dead).await;
            let trim = || {
                let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 0");
                if rows_too {
                    let _: i64 = bench.raw("DEL rheo:T:z:s:0");
                }
            };
            (when == 0).then(trim);
            redrive_all(&bench).await;
            (when == 1).then(trim);
            let held = bench.try_claim("a", 2, SHORT, false).await.unwrap().leased;
            (when == 2).then(trim);
            let held_events: Vec<_> = held.iter().map(|leased| &leased.event).collect();
            assert_eq!(held_events, [&dead[0].event, &dead[1].event]);
            assert_eq!(counts(&bench).await, (2, 2, 0), "{when}");
            // Its holder dies: another takes it over, and it is listed all the while.
            let again = bench.sweep_until("b", 2).await;
            assert!(again.iter().all(|leased| leased.lease.attempt == 2));
            let listed = bench.backend.pending(&bench.group, 0, None, 10).await.unwrap();
            assert_eq!(listed.len(), 2);
            assert_eq!(listed[1].event_id.as_ref(), Some(&dead[1].event.id));
            assert!(
                matches!(&listed[1].state, PendingState::Leased { consumer, .. } if consumer == "b"),
                "{listed:?}"
            );
            reject(&bench, &again[..1]).await;
            bench.ack(&again[1..]).await;
            let letters = bench.backend.dead_letters(&bench.group, None, 10).await.unwrap();
            assert_eq!(letters.len(), 1);
            let wasmill::backend::DeadEvent::Event(event) = &letters[0].event else { panic!("{letters:?}") };
            assert_eq!(**event, dead[0].event, "the whole event is in its row again");
            assert_settled(&bench).await;
        }
    }
}

#[tokio::test]
async fn a_suspect_without_body_gets_its_claim() {
    let bench = Bench::on(crate::server::RedisServer::start(), 1, 2).await;
    bench.append(0, 1).await;
    let dead = bench.claim("a", 1).await.leased;
    reject(&bench, &dead).await;
    let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 0");
    redrive_all(&bench).await;
    assert_eq!(bench.try_claim("a", 1, SHORT, false).await.unwrap().leased.len(), 1);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !bench.try_claim("b", 1, LONG, true).await.unwrap().suspects {
        assert!(Instant::now() < deadline, "its lease ran out on its last but one attempt");
    }
    let alone = ClaimRequest {
        group: &bench.group,
        consumer: "b",
        partitions: &[0],
        limit: 1,
        lease: LONG,
        sweep: false,
        alone: true,
    };
    let taken = bench.backend.claim(&alone).await.unwrap().leased;
    assert_eq!((taken.len(), taken[0].lease.attempt, &taken[0].event), (1, 2, &dead[0].event));
    bench.ack(&taken).await;
    assert_settled(&bench).await;
}

#[tokio::test]
async fn one_without_body_that_is_held_does_not_hide_what_a_replay_brings_to_its_holder() {
    for kind in [RewindKind::Replay, RewindKind::Reset] {
        for position in [0, 3] {
            let (bench, _) = with_redriven(6, &[2]).await;
            let held = bench.claim("a", 1).await.leased;
            assert_eq!(sequences(&held), [2]);
            let ids: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:0 0 2");
            for id in &ids {
                let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {id}"));
            }
            let _: i64 = bench.raw_with("ZREM rheo:T:z:s:0", &ids);
            let to = Rewind { kind, to: [(0, position)].into() };
            rewind(&bench.backend, &bench.group, &to).await.unwrap();
            let again =
                bench.sweep_until("a", if kind == RewindKind::Replay && position == 3 { 3 } else { 4 }).await;
            assert!(again.iter().all(|leased| leased.lease.attempt == 1));
            bench.ack(&again).await;
            bench.ack(&held).await;
            assert_settled(&bench).await;
        }
    }
}

/// Rejects an entry as Rheo does.
fn reject_like_rheo(bench: &Bench, id: &str, sequence: u64) {
    let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 g {id}"));
    let _: i64 = bench.raw(&format!("DEL rheo:T:fence:s:g:{id}"));
    let _: i64 = bench.raw(&format!("ZADD rheo:T:done:s:g:0 {sequence} {sequence}"));
    let entry: Vec<(String, Vec<String>)> = bench.raw(&format!("XRANGE rheo:T:s:s:0 {id} {id}"));
    let mut fields = entry[0].1.clone();
    fields.extend(["reason", ":boom", "dead_lettered_at", "2020-01-15T12:00:09.000Z"].map(str::to_owned));
    let _: String = bench.raw_with("XADD rheo:T:dlq:s:g *", &fields);
}

#[tokio::test]
async fn a_row_of_rheo_is_redriven_from_the_log_from_its_row_and_for_its_eyes() {
    for gone in 0..3 {
        let bench = Bench::new(1).await;
        let id = bench.append_like_rheo(0, "*");
        let held = bench.claim("a", 1).await.leased;
        reject_like_rheo(&bench, &id, 1);
        let _: i64 = bench.raw("HSET rheo:T:gmeta:s:g frontier_p0 1");
        if gone > 0 {
            let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 0");
        }
        if gone > 1 {
            let _: i64 = bench.raw("DEL rheo:T:z:s:0");
        }
        redrive_all(&bench).await;
        assert_eq!(counts(&bench).await, (1, 0, 1));
        if gone == 0 {
            // Rheo takes what is pending with a fence that no one holds; its attempt is the next one.
            let fence: Vec<String> =
                bench.raw(&format!("HMGET rheo:T:fence:s:g:{id} lease_id attempt expires_at_ms"));
            assert_eq!(fence, ["", "0", "0"]);
            let pending: Vec<redis::Value> = bench.raw("XPENDING rheo:T:s:s:0 g - + 10");
            assert_eq!(pending.len(), 1);
        }
        let again = bench.claim("b", 10).await.leased;
        assert_eq!((again.len(), &again[0].event, again[0].lease.attempt), (1, &held[0].event, 1));
        assert_eq!(bench.ack(&held).await, [Settled::Stale]);
        assert_eq!(bench.ack(&again).await, [Settled::Done]);
        assert_settled(&bench).await;
    }
}

#[tokio::test]
async fn what_a_peer_settles_is_not_delivered_again() {
    let (bench, dead) = with_redriven(3, &[2]).await;
    let receipt = &dead[0].lease.receipt;
    let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 g {receipt}"));
    let _: i64 = bench.raw(&format!("DEL rheo:T:fence:s:g:{receipt}"));
    let _: i64 = bench.raw("ZADD rheo:T:done:s:g:0 2 2");
    for _ in 0..3 {
        assert!(bench.try_claim("b", 10, LONG, true).await.unwrap().leased.is_empty());
    }
    assert_settled(&bench).await;
}

#[tokio::test]
async fn it_leaves_alone_an_entry_of_the_same_id_in_another_partition() {
    let bench = Bench::new(2).await;
    for partition in 0..2 {
        bench.append_like_rheo(partition, "1700000000000-0");
    }
    let first = bench.claim("a", 10).await.leased;
    reject(&bench, &first).await;
    let second = bench.sweep_until("a", 1).await;
    redrive_all(&bench).await;
    assert!(bench.try_claim("b", 10, LONG, true).await.unwrap().leased.is_empty(), "its key is taken");
    assert_eq!(bench.ack(&second).await, [Settled::Done]);
    let again = bench.sweep_until("b", 1).await;
    assert_eq!((&again[0].event, again[0].lease.attempt), (&first[0].event, 1));
    assert_eq!(bench.ack(&again).await, [Settled::Done]);
    assert_settled(&bench).await;
}

#[tokio::test]
async fn a_copy_keeps_every_byte_and_only_the_events_own_fields() {
    let bench = Bench::new(1).await;
    let _: i64 = bench.raw("INCRBY rheo:T:seq:s:0 1");
    let odd: &[&[u8]] = &[
        b"id",
        b"e:1",
        b"sequence",
        b"1",
        b"partition",
        b"0",
        b"timestamp",
        b"t",
        b"reason",
        b"its own",
        b"payload",
        b"{\"a\": \"3:x\"}",
        b"\xff\x00:",
        b"\xfe:1:2",
    ];
    let id: String = bench.raw_with("XADD rheo:T:s:s:0 *", odd);
    let _: i64 = bench.raw(&format!("ZADD rheo:T:z:s:0 1 {id}"));
    let held = bench.claim("a", 1).await.leased;
    reject(&bench, &held).await;
    let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 0");
    redrive_all(&bench).await;
    let again = bench.claim("b", 1).await.leased;
    assert_eq!(again[0].event, held[0].event);
    reject(&bench, &again).await;
    let rows: Vec<(String, Vec<Vec<u8>>)> = bench.raw("XRANGE rheo:T:dlq:s:g - +");
    assert_eq!(rows[0].1[..odd.len()], odd.iter().map(|text| text.to_vec()).collect::<Vec<_>>());
    assert_eq!(rows[0].1[odd.len()], b"reason");
}

#[tokio::test]
async fn a_row_that_holds_no_event_stays() {
    let bench = Bench::new(1).await;
    let _: String = bench.raw("XADD rheo:T:dlq:s:g * foo bar reason why");
    let _: String =
        bench.raw("XADD rheo:T:dlq:s:g * id e sequence 1 partition 7 timestamp t payload {} reason r");
    let _: String =
        bench.raw("XADD rheo:T:dlq:s:g * id e sequence 1 partition 0 timestamp t payload [] reason r");
    let rows = rows(&bench).await;
    let redriven = bench.backend.redrive(&bench.group, &rows).await.unwrap();
    assert_eq!(redriven, [Redriven::NoEvent; 3]);
    assert_eq!(bench.raw::<u64>("XLEN rheo:T:dlq:s:g"), 3);
}

#[tokio::test]
async fn a_full_store_redrives_nothing_and_loses_nothing() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    let held = bench.claim("a", 3).await.leased;
    reject(&bench, &held).await;
    let rows = rows(&bench).await;
    let _: () = bench.raw("CONFIG SET maxmemory 1");
    let error = bench.backend.redrive(&bench.group, &rows).await.unwrap_err();
    assert!(matches!(error, wasmill::backend::Error::Busy(_)), "{error}");
    let _: () = bench.raw("CONFIG SET maxmemory 0");
    assert_eq!(bench.raw::<u64>("XLEN rheo:T:dlq:s:g"), 3);
    assert_eq!(bench.raw::<u64>("EXISTS rheo:T:redriven:s:g:0 rheo:T:copy:s:g:0"), 0);
    redrive_all(&bench).await;
    assert_eq!(sequences(&bench.claim("b", 3).await.leased), [1, 2, 3]);
}
