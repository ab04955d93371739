//! Entries that no pending list names though they are not settled.

use std::time::Duration;

use super::*;
use crate::kit::{retry, sequences};
use wasmill::outcome::Cause;

#[tokio::test]
async fn a_group_without_consumers_has_settled_nothing() {
    let mut bench = Bench::new(1).await;
    bench.append(0, 500).await;
    // Made by hand, at the end, by one who knows nothing of frontiers.
    let _: i64 = bench.raw("HSET rheo:T:gmeta:s:h max_attempts 5 frontier_p0 0");
    let _: String = bench.raw("XGROUP CREATE rheo:T:s:s:0 h $");
    bench.group.group = wasmill::event::Name::new("h").unwrap();
    // As far as a look behind the frontier goes.
    assert_eq!(bench.heal_fully().await, [(Undelivered, 200)]);
    assert_eq!(bench.drained().await, (1..=500).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_stands_before_the_start_of_a_group_is_delivered() {
    for ours_first in [false, true] {
        let mut bench = Bench::new(1).await;
        bench.append_old(1, 1);
        let taken = [bench.take_sequence(0), bench.take_sequence(0)];
        // 3 stands before 2.
        for (low, sequence) in [(2, taken[1]), (3, taken[0])] {
            let id = bench.add_entry(0, &old(low), sequence);
            bench.add_row(0, &id, sequence);
        }
        bench.append_old(4, 2);
        // As Rheo's create_group with start_after 2.
        let _: i64 = bench.raw("HSET rheo:T:gmeta:s:h max_attempts 5 frontier_p0 2 cursor_p0 2");
        let _: String = bench.raw(&format!("XGROUP CREATE rheo:T:s:s:0 h {}", old(3)));
        bench.group.group = wasmill::event::Name::new("h").unwrap();
        if ours_first {
            let leased = bench.claim("a", 10).await.leased;
            assert_eq!(sequences(&leased), [4, 5]);
            bench.ack(&leased).await;
        } else {
            let _: redis::Value = bench.raw("XREADGROUP GROUP h rheo STREAMS rheo:T:s:s:0 >");
            let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 h {} {}", old(4), old(5)));
            let _: i64 = bench.raw("ZADD rheo:T:done:s:h:0 4 4 5 5");
        }
        assert_eq!(bench.heal().await, [repair(Undelivered, 3, 3, 1)]);
        assert_eq!(bench.drained().await, [3]);
    }
}

#[tokio::test]
async fn a_fence_that_is_left_says_that_its_entry_is_not_settled() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    bench.fetch("rheo", 3, 1);
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g rheo");
    assert_eq!(bench.heal().await, [repair(Undelivered, 1, 3, 3)]);
    let (came, _) = bench.drain().await;
    assert_eq!(sequences(&came), [1, 2, 3]);
    assert!(came.iter().all(|leased| leased.lease.attempt == 2), "what was delivered before counts");
}

#[tokio::test]
async fn a_fence_that_is_left_without_a_body_ends_as_a_dead_letter() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    let read = bench.fetch("rheo", 3, 1);
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g rheo");
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {}", read[1]));
    assert_eq!(bench.heal().await, [repair(Undelivered, 1, 3, 3)]);
    let (came, died) = bench.drain().await;
    assert_eq!(sequences(&came), [1, 3]);
    assert_eq!((died.len(), died[0].cause), (1, Cause::Missing));
    let letters = bench.backend.dead_letters(&bench.group, None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(bench.missing().await, 0, "it is on record already");
}

#[tokio::test]
async fn a_live_lease_of_another_that_is_not_pending_is_waited_for() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    let read = bench.fetch("rheo", 2, 9_999_999_999_999);
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g rheo");
    assert_eq!(bench.heal().await, []);
    assert!(bench.try_claim("a", 10, LONG, true).await.unwrap().leased.is_empty());
    // One ends with its settlement, the other one runs out.
    let _: i64 = bench.raw(&format!("DEL rheo:T:fence:s:g:{}", read[0]));
    let _: i64 = bench.raw("ZADD rheo:T:done:s:g:0 1 1");
    bench.fence(&read[1], 0, 1, 1);
    assert_eq!(bench.heal().await, [repair(Frontier, 1, 1, 1), repair(Undelivered, 2, 2, 1)]);
    assert_eq!(bench.drained().await, [2]);
}

#[tokio::test]
async fn a_deleted_consumer_takes_nothing_along() {
    let bench = Bench::new(1).await;
    bench.append(0, 5).await;
    let leased = bench.claim("a", 5).await.leased;
    bench.settle(&leased[1..2], |_| retry(LONG)).await.unwrap();
    bench.settle(&leased[2..3], |_| retry(Duration::ZERO)).await.unwrap();
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g a");
    assert_eq!(bench.heal().await, [], "the fences tell all");
    // Holders still settle; parked events keep their times.
    bench.ack(&leased[..1]).await;
    let came = bench.sweep_until("b", 1).await;
    assert_eq!((sequences(&came), came[0].lease.attempt), (vec![3], 2));
    bench.ack(&came).await;
    let _: i64 = bench.raw("ZADD rheo:T:due:s:g:0 1 nothing");
    for leased in &leased[3..] {
        let fence = format!("HSET rheo:T:fence:s:g:{} expires_at_ms 1", leased.lease.receipt);
        let _: i64 = bench.raw(&fence);
    }
    assert_eq!(bench.heal().await, [repair(Undelivered, 4, 5, 2)]);
    let came = bench.sweep_until("b", 2).await;
    assert_eq!(sequences(&came), [4, 5]);
    bench.ack(&came).await;
    assert_eq!(bench.frontier().await, 1, "2 waits for its time");
    assert_eq!(bench.heal().await, []);
}

#[tokio::test]
async fn a_parked_entry_that_lost_its_place_keeps_its_time() {
    let bench = Bench::new(1).await;
    bench.append(0, 1).await;
    let leased = bench.claim("a", 1).await.leased;
    bench.settle(&leased, |_| retry(LONG)).await.unwrap();
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g a");
    let score: String = bench.raw(&format!("ZSCORE rheo:T:due:s:g:0 {}", leased[0].lease.receipt));
    let _: i64 = bench.raw("DEL rheo:T:due:s:g:0");
    assert_eq!(bench.heal().await, [repair(Undelivered, 1, 1, 1)]);
    let again: String = bench.raw(&format!("ZSCORE rheo:T:due:s:g:0 {}", leased[0].lease.receipt));
    assert_eq!(again, score);
}

#[tokio::test]
async fn what_another_settled_while_it_was_parked_waits_no_more() {
    let bench = Bench::new(1).await;
    bench.append(0, 1500).await;
    let leased = bench.claim("a", 1000).await.leased;
    for some in leased.chunks(250) {
        bench.settle(some, |_| retry(LONG)).await.unwrap();
    }
    let parked = async || bench.backend.group_info(&bench.group).await.unwrap().partitions[0].parked;
    assert_eq!(parked().await, 1000);
    let ids: Vec<String> = leased[..100].iter().map(|l| l.lease.receipt.to_string()).collect();
    bench.ack_half(&ids);
    let _: i64 =
        bench.raw_with("ZADD rheo:T:done:s:g:0", &(1..=100).flat_map(|n| [n, n]).collect::<Vec<u64>>());
    let deadline = Instant::now() + PATIENCE;
    while parked().await != 900 {
        bench.backend.heal(&bench.group, 0).await.unwrap();
        assert!(Instant::now() < deadline, "{} wait", parked().await);
    }
    for _ in 0..30 {
        bench.backend.heal(&bench.group, 0).await.unwrap();
    }
    assert_eq!(parked().await, 900, "what waits goes on to wait");
}

#[tokio::test]
async fn what_died_between_losing_its_body_and_its_dead_letter_gets_one() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    let leased = bench.try_claim("a", 2, Duration::from_millis(1), false).await.unwrap().leased;
    bench.ack(&leased[1..]).await;
    let id = &leased[0].lease.receipt;
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {id}"));
    // Redis 7 drops a pending entry without a body here. The claimant dies before it writes the dead
    // letter, and its lease runs out.
    let _: redis::Value = bench.raw(&format!("XCLAIM rheo:T:s:s:0 g b 0 {id} JUSTID"));
    let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{id} expires_at_ms 1"));
    let (came, died) = bench.drain().await;
    assert_eq!((came.len(), died.len(), died[0].cause), (0, 1, Cause::Missing));
    assert_eq!(bench.backend.dead_letters(&bench.group, None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn two_partitions_that_share_an_entry_id_do_not_mislead_each_other() {
    let bench = Bench::new(2).await;
    for partition in 0..2 {
        bench.append_like_rheo(partition, &old(0));
    }
    // Both were read by Rheo: the second one's fence lies over the first one's.
    for partition in 0..2 {
        let read = format!("XREADGROUP GROUP g rheo STREAMS rheo:T:s:s:{partition} >");
        let _: redis::Value = bench.raw(&read);
    }
    bench.fence(&old(0), 1, 1, 1);
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g rheo");
    // Of 0 nothing is left: what the fence says of 1 may lie over what it said of 0.
    let before = bench.backend.heal(&bench.group, 0).await.unwrap();
    assert_eq!(before, [repair(Undelivered, 1, 1, 1)]);
    assert_eq!(bench.backend.heal(&bench.group, 1).await.unwrap(), []);
    let (mut came, died) = bench.drain().await;
    came.sort_by_key(|leased| leased.event.partition);
    assert_eq!(came.iter().map(|l| l.event.partition).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(died, []);
    for partition in 0..2 {
        assert_eq!(bench.backend.heal(&bench.group, partition).await.unwrap(), []);
    }
}
