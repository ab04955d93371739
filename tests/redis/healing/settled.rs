//! What was settled stays settled, whatever became of the record of it.

use wasmill::event::{JsonObject, NewEvent};

use super::*;
use crate::kit::sequences;

#[tokio::test]
async fn a_frontier_behind_what_is_settled_is_moved() {
    let bench = Bench::new(1).await;
    bench.append(0, 6).await;
    let leased = bench.claim("a", 6).await.leased;
    bench.ack(&leased[..3]).await;
    bench.ack(&leased[4..5]).await;
    // As a slower ack's frontier overwrites a newer one, with the members in between not yet removed.
    bench.set_frontier(1);
    let _: i64 = bench.raw("ZADD rheo:T:done:s:g:0 2 2 3 3");
    assert_eq!(bench.heal().await, [repair(Frontier, 2, 3, 1)]);
    assert_eq!(bench.frontier().await, 3);
    let left: Vec<u64> = bench.raw("ZRANGE rheo:T:done:s:g:0 0 -1");
    assert_eq!(left, [5], "what is at or below the frontier says nothing any more");
}

#[tokio::test]
async fn what_rheo_acked_does_not_come_back() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 500);
    let read = bench.fetch("rheo", 450, 9_999_999_999_999);
    bench.ack_half(&read[..400]);
    assert_eq!(bench.heal_fully().await, [(SettledRow, 400)]);
    assert_eq!(bench.frontier().await, 400);
    for id in &read[400..] {
        bench.fence(id, 0, 1, 1);
    }
    assert_eq!(bench.drained().await, (401..=500).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_we_acked_does_not_come_back() {
    let bench = Bench::new(1).await;
    bench.append(0, 20).await;
    let leased = bench.claim("a", 10).await.leased;
    bench.ack(&leased[..8]).await;
    bench.set_frontier(2);
    assert_eq!(bench.heal().await, [repair(SettledRow, 3, 8, 6)]);
    bench.ack(&leased[8..]).await;
    assert_eq!(bench.drained().await, (11..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_both_acked_does_not_come_back() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 40);
    let before = bench.fetch("rheo", 10, 9_999_999_999_999);
    let ours = bench.claim("a", 10).await.leased;
    assert_eq!(sequences(&ours), (11..=20).collect::<Vec<_>>());
    let after = bench.fetch("rheo", 10, 9_999_999_999_999);
    bench.ack(&ours[..9]).await;
    bench.ack_half(&before);
    bench.ack_half(&after[..5]);
    let _: i64 = bench.raw("DEL rheo:T:done:s:g:0");
    let mended = bench.heal_fully().await;
    assert!(mended.contains(&(SettledRow, 24)), "{mended:?}");
    assert_eq!(bench.frontier().await, 19);
    bench.ack(&ours[9..]).await;
    assert_eq!(bench.frontier().await, 25);
    for id in &after[5..] {
        bench.fence(id, 0, 1, 1);
    }
    assert_eq!(bench.drained().await, (26..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_acked_out_of_order_does_not_come_back() {
    let bench = Bench::new(1).await;
    // Two appends at once, the second first.
    let (first, second) = (bench.take_sequence(0), bench.take_sequence(0));
    for (low, sequence) in [(1, second), (2, first)] {
        let id = bench.add_entry(0, &old(low), sequence);
        bench.add_row(0, &id, sequence);
    }
    let leased = bench.claim("a", 10).await.leased;
    bench.ack(&leased).await;
    bench.set_frontier(0);
    assert_eq!(bench.heal().await, [repair(SettledRow, 1, 2, 2)]);
    assert!(bench.drained().await.is_empty());
}

#[tokio::test]
async fn a_frontier_above_the_end_comes_back_to_it() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    let leased = bench.claim("a", 3).await.leased;
    bench.ack(&leased).await;
    bench.set_frontier(50);
    assert_eq!(bench.heal().await, [repair(Frontier, 3, 50, 1)]);
    bench.append(0, 4).await;
    assert_eq!(bench.lag().await, 4);
    assert_eq!(bench.drained().await, [4, 5, 6, 7]);
}

#[tokio::test]
async fn a_lost_counter_takes_no_frontier_along() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    let leased = bench.claim("a", 3).await.leased;
    bench.ack(&leased[..2]).await;
    let _: i64 = bench.raw("DEL rheo:T:seq:s:0");
    assert_eq!(bench.heal().await, []);
    assert_eq!(bench.frontier().await, 2);
}

#[tokio::test]
async fn fences_that_belong_to_nothing_go() {
    let bench = Bench::new(2).await;
    bench.append(0, 4).await;
    bench.append(1, 1).await;
    let leased = bench.claim("a", 5).await.leased;
    let id = |at: usize| leased[at].lease.receipt.to_string();
    bench.ack(&leased[..2]).await;
    // Settled ones: of a lease that was renewed too late (18), of an acked entry, of no entry at all.
    let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{} expires_at_ms 9999999999999", id(0)));
    bench.fence(&id(1), 0, 1, 1);
    bench.fence("1600000000000-0", 0, 1, 1);
    bench.fence("1600000000000-1", 7, 1, 1);
    // Of a holder, if only in its own view; of a group with a longer name.
    bench.fence("1600000000000-2", 0, 1, 9_999_999_999_999);
    let _: i64 = bench.raw("HSET rheo:T:fence:s:g:x:1600000000000-3 lease_id l partition 0");
    // Of entries that wait: without a row, and lost from the pending list.
    let unlisted = bench.add_entry(1, "*", 99);
    bench.fence(&unlisted, 1, 1, 1);
    bench.fence(&id(3), 0, 1, 1);
    let before: Vec<String> = bench.raw("KEYS rheo:T:fence:*");
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g a");
    let mended = bench.heal_fully().await;
    assert!(mended.contains(&(Fence, 4)), "{mended:?}");
    let after: Vec<String> = bench.raw("KEYS rheo:T:fence:*");
    assert_eq!(after.len(), before.len() - 4);
    assert!(after.iter().any(|key| key.ends_with("x:1600000000000-3")));
    // 3 is held, the others come again; the entry without a row as well.
    bench.ack(&leased[2..3]).await;
    bench.ack(&leased[4..]).await;
    let (came, _) = bench.drain().await;
    assert_eq!(sequences(&came), [4, 99]);
}

#[tokio::test]
async fn large_events_are_looked_at_in_bounded_steps() {
    let bench = Bench::new(1).await;
    let payload = JsonObject::parse(format!("{{\"n\":\"{}\"}}", "x".repeat(500_000))).unwrap();
    for _ in 0..30 {
        let event = NewEvent { partition: Some(0), ..NewEvent::new(payload.clone()) };
        bench.backend.append(&bench.group.stream, &[event]).await.unwrap();
    }
    let leased = bench.claim("a", 30).await.leased;
    bench.ack(&leased).await;
    bench.set_frontier(0);
    // A call looks a few times, each time at about a megabyte.
    let mended = bench.backend.heal(&bench.group, 0).await.unwrap();
    assert!(mended.iter().all(|repair| repair.count <= 12), "{mended:?}");
    assert!(bench.heal_fully().await.contains(&(SettledRow, 30 - mended[0].count)), "{mended:?}");
    assert_eq!(bench.frontier().await, 30);
}
