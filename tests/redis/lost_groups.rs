//! A store that has lost a group makes it again, and no unsettled event is passed over.

use std::time::Duration;

use wasmill::backend::{Backend as _, Error, NewGroup, Settled, Start};
use wasmill::event::{GroupKey, Name};

use crate::kit::{Bench, LONG, event, retry, sequences};

#[tokio::test]
async fn a_destroyed_group_comes_back_before_its_first_unsettled_event() {
    let bench = Bench::new(1).await;
    bench.append(0, 10).await;
    let claimed = bench.claim("a", 6).await.leased;
    // 1, 2 and 4 are settled, 3, 5 and 6 are not, 7 to 10 were never delivered.
    let settled = [claimed[0].clone(), claimed[1].clone(), claimed[3].clone()];
    assert_eq!(bench.ack(&settled).await, [Settled::Done; 3]);
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");

    // What is still held is not handed out: 7 to 10 come, 4 is known to be settled.
    let mut after = bench.claim("b", 100).await.leased;
    after.extend(bench.claim("b", 100).await.leased);
    assert_eq!(sequences(&after), [7, 8, 9, 10]);
    // The old holders still settle.
    let held = [claimed[2].clone(), claimed[4].clone(), claimed[5].clone()];
    assert_eq!(bench.ack(&held).await, [Settled::Done; 3]);
    assert_eq!(bench.ack(&after).await, [Settled::Done; 4]);
    assert_eq!(bench.lag().await, 0);
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!(info.partitions[0].in_flight, 0, "nothing is left pending");
}

#[tokio::test]
async fn what_its_holder_lost_with_the_group_comes_again() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    let claimed = bench.claim("a", 3).await.leased;
    bench.ack(&claimed[1..2]).await;
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
    for leased in [&claimed[0], &claimed[2]] {
        let fence = format!("HSET rheo:T:fence:s:g:{} expires_at_ms 1", leased.lease.receipt);
        let _: i64 = bench.raw(&fence);
    }
    let again = bench.sweep_until("b", 2).await;
    assert_eq!(sequences(&again), [1, 3]);
    assert!(again.iter().all(|leased| leased.lease.attempt == 2), "the attempts before count");
    assert_eq!(bench.ack(&claimed[..1]).await, [Settled::Stale]);
    bench.ack(&again).await;
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_retry_that_is_due_does_not_keep_a_lost_group_from_coming_back() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    let claimed = bench.claim("a", 2).await.leased;
    bench.settle(&claimed, |_| retry(Duration::ZERO)).await.unwrap();
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
    let mut again = bench.claim("b", 10).await.leased;
    again.extend(bench.claim("b", 10).await.leased);
    assert_eq!(sequences(&again), [1, 2, 3]);
    bench.ack(&again).await;
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_settlement_after_the_loss_is_not_undone() {
    let bench = Bench::new(1).await;
    bench.append(0, 2000).await;
    let claimed = bench.claim("a", 1000).await.leased;
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
    // Restored by a wait's or another's claim of one event, of which the rest is settled meanwhile.
    assert!(bench.claim("b", 1).await.leased.is_empty());
    for part in claimed.chunks(250) {
        bench.ack(part).await;
    }
    let mut rest = Vec::new();
    loop {
        let some = bench.claim("b", 500).await.leased;
        if some.is_empty() && rest.len() >= 1000 {
            break;
        }
        rest.extend(some);
    }
    assert_eq!(sequences(&rest), (1001..=2000).collect::<Vec<_>>());
    for part in rest.chunks(250) {
        bench.ack(part).await;
    }
    assert_eq!(bench.lag().await, 0);
    assert_eq!(bench.backend.pending(&bench.group, 0, None, 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_deleted_log_loses_its_events_but_not_the_group() {
    let bench = Bench::new(2).await;
    bench.append(0, 3).await;
    let _: i64 = bench.raw("DEL rheo:T:s:s:0 rheo:T:z:s:0");
    assert!(bench.claim("a", 10).await.leased.is_empty());
    bench.append(0, 1).await;
    bench.append(1, 1).await;
    let claimed = bench.claim("a", 10).await.leased;
    assert_eq!(sequences(&claimed), [4, 1], "one a partition");
}

#[tokio::test]
async fn a_group_that_rheo_made_by_half_is_completed() {
    let bench = Bench::new(2).await;
    bench.append(0, 2).await;
    bench.append(1, 2).await;
    let _: i64 = bench.raw("HSET rheo:T:gmeta:s:half max_attempts 3");
    let half = GroupKey::new(bench.group.stream.clone(), Name::new("half").unwrap());
    let bench = Bench { group: half, ..bench };
    let mut claimed = bench.claim("a", 10).await.leased;
    claimed.extend(bench.claim("a", 10).await.leased);
    assert_eq!(claimed.len(), 4);
    bench.ack(&claimed).await;
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_flushed_store_knows_neither_group_nor_stream() {
    let mut bench = Bench::new(2).await;
    bench.append(0, 3).await;
    let claimed = bench.claim("a", 1).await.leased;
    let _: () = bench.raw("FLUSHALL");
    let gone = |error: Error| matches!(error, Error::StreamNotFound(_));
    assert!(gone(bench.settle(&claimed, |_| retry(LONG)).await.unwrap_err()));
    assert!(gone(bench.try_claim("a", 1, LONG, true).await.unwrap_err()));
    assert!(gone(bench.backend.wait(&bench.group, &[0], LONG).await.unwrap_err()));
    let stream = bench.group.stream.clone();
    assert!(gone(bench.backend.append(&stream, &[event(0, 0)]).await.unwrap_err()));
    // Made anew with another number of partitions, all goes on.
    bench.backend.create_stream(&stream, 1).await.unwrap();
    let new = NewGroup { max_attempts: 5, start: Start::Beginning };
    bench.backend.create_group(&bench.group, new).await.unwrap();
    bench.partitions = vec![0];
    bench.append(0, 1).await;
    assert_eq!(sequences(&bench.claim("a", 10).await.leased), [1]);
}
