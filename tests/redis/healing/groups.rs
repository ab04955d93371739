//! Groups that the store lost, or that other hands made again.

use super::*;
use crate::kit::sequences;

#[tokio::test]
async fn a_group_made_again_at_the_end_has_read_nothing_in_front_of_it() {
    for healed_between in [false, true] {
        let bench = Bench::new(1).await;
        bench.append(0, 10).await;
        let leased = bench.claim("a", 5).await.leased;
        bench.ack(&leased[..2]).await;
        bench.ack(&leased[3..4]).await;
        let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
        let _: String = bench.raw("XGROUP CREATE rheo:T:s:s:0 g $");
        if healed_between {
            assert_eq!(bench.heal().await, [repair(Undelivered, 6, 10, 5)]);
        }
        // Both kinds of consumers read on.
        bench.append(0, 4).await;
        let rheo = bench.fetch("rheo", 2, 9_999_999_999_999);
        let new = bench.claim("b", 2).await.leased;
        if !healed_between {
            assert_eq!(sequences(&new), [13, 14]);
            assert_eq!(bench.heal().await, [repair(Undelivered, 6, 10, 5)]);
        }
        bench.ack(&new).await;
        bench.ack_half(&rheo);
        let _: i64 = bench.raw("ZADD rheo:T:done:s:g:0 11 11 12 12");
        // 3 and 5 are still held.
        bench.ack(&leased[2..3]).await;
        bench.ack(&leased[4..]).await;
        let came = bench.drained().await;
        let expected: Vec<u64> = (6..=14).filter(|n| !sequences(&new).contains(n)).collect();
        assert_eq!(came, expected.into_iter().filter(|n| ![11, 12].contains(n)).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_group_that_rheo_moved_back_reads_again_what_stands_out_of_order() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 1);
    let taken = [bench.take_sequence(0), bench.take_sequence(0)];
    // 3 stands before 2.
    for (low, sequence) in [(2, taken[1]), (3, taken[0])] {
        let id = bench.add_entry(0, &old(low), sequence);
        bench.add_row(0, &id, sequence);
    }
    bench.append_old(4, 2);
    let leased = bench.claim("a", 10).await.leased;
    bench.ack(&leased).await;
    assert!(bench.claim("a", 10).await.leased.is_empty());
    assert_eq!(bench.lag().await, 0);
    // As Rheo's replay from sequence 2.
    let _: String = bench.raw(&format!("XGROUP SETID rheo:T:s:s:0 g {}", old(3)));
    bench.set_frontier(2);
    let again = bench.claim("a", 10).await.leased;
    assert_eq!(sequences(&again), [4, 5]);
    bench.ack(&again).await;
    assert_eq!(bench.heal().await, [repair(Undelivered, 3, 3, 1)]);
    assert_eq!(bench.drained().await, [3]);
}

#[tokio::test]
async fn a_destroyed_group_is_made_again() {
    let bench = Bench::new(1).await;
    bench.append(0, 5).await;
    let leased = bench.claim("a", 3).await.leased;
    bench.ack(&leased[..1]).await;
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
    assert_eq!(bench.heal().await, [Repair { kind: Group, sequences: None, count: 1 }]);
    bench.ack(&leased[1..]).await;
    assert_eq!(bench.drained().await, [4, 5]);
}

#[tokio::test]
async fn a_group_that_rheo_made_by_half_is_completed() {
    let mut bench = Bench::new(2).await;
    bench.append(0, 3).await;
    bench.append(1, 3).await;
    let _: i64 = bench.raw("HSET rheo:T:gmeta:s:h max_attempts 5");
    let _: String = bench.raw("XGROUP CREATE rheo:T:s:s:0 h 0");
    bench.group.group = wasmill::event::Name::new("h").unwrap();
    assert_eq!(bench.heal().await, []);
    let group = Repair { kind: Group, sequences: None, count: 1 };
    assert_eq!(bench.backend.heal(&bench.group, 1).await.unwrap(), [group]);
    assert_eq!(bench.backend.heal(&bench.group, 1).await.unwrap(), []);
    assert_eq!(bench.drained().await, [1, 1, 2, 2, 3, 3]);
}

#[tokio::test]
async fn a_reaped_consumer_is_none_of_the_witnesses() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    let leased = bench.claim("a", 2).await.leased;
    bench.ack(&leased).await;
    bench.backend.retire(&bench.group, "a").await.unwrap();
    bench.backend.retire(&bench.group, "witness").await.unwrap();
    bench.set_frontier(0);
    assert_eq!(bench.heal().await, [repair(SettledRow, 1, 2, 2)]);
}
