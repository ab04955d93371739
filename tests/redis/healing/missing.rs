//! Entries that others removed from the log.

use super::*;
use crate::kit::sequences;
use wasmill::outcome::Cause;

/// What a step of the server may cost, with room for a slow machine.
const STEP_MAX: Duration = Duration::from_millis(30);
/// Steps of one call.
const LOOKS: u32 = 4;

#[tokio::test]
async fn what_is_trimmed_below_the_frontier_is_no_damage() {
    let bench = Bench::new(1).await;
    bench.append(0, 10).await;
    let leased = bench.claim("a", 6).await.leased;
    bench.ack(&leased).await;
    let trimmed: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 4");
    assert_eq!(trimmed, 6);
    assert_eq!(bench.heal().await, []);
    assert_eq!(bench.drained().await, [7, 8, 9, 10]);
    assert_eq!(bench.missing().await, 0);
}

#[tokio::test]
async fn what_is_trimmed_above_the_frontier_is_missing_or_dead() {
    let bench = Bench::new(1).await;
    bench.append(0, 10).await;
    let leased = bench.claim("a", 3).await.leased;
    bench.ack(&leased[..1]).await;
    let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 4");
    assert_eq!(bench.heal().await, [repair(Missing, 4, 6, 3)]);
    // One of those under lease is acked by its holder, the other one dies.
    bench.ack(&leased[1..2]).await;
    let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{} expires_at_ms 1", leased[2].lease.receipt));
    let (came, died) = bench.drain().await;
    assert_eq!(sequences(&came), [7, 8, 9, 10]);
    assert_eq!((died.len(), died[0].cause), (1, Cause::Missing));
    assert_eq!(bench.missing().await, 3);
}

#[tokio::test]
async fn what_was_removed_before_the_group_came_by_is_missing_too() {
    let bench = Bench::new(1).await;
    bench.append(0, 10).await;
    let ids: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:0 0 -1");
    let _: i64 = bench.raw(&format!("XTRIM rheo:T:s:s:0 MINID {}", ids[3]));
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {} {}", ids[5], ids[6]));
    let leased = bench.claim("a", 10).await.leased;
    assert_eq!(sequences(&leased), [4, 5, 8, 9, 10]);
    bench.ack(&leased).await;
    assert_eq!(bench.heal().await, [repair(Missing, 1, 7, 5)]);
    assert_eq!((bench.missing().await, bench.lag().await), (5, 0));
}

#[tokio::test]
async fn what_stands_out_of_order_is_not_passed_with_what_is_gone() {
    for delivered in [false, true] {
        let bench = Bench::new(1).await;
        // 2 stands before 1, and 1 is gone.
        let taken = [bench.take_sequence(0), bench.take_sequence(0)];
        for (low, sequence) in [(1, taken[1]), (2, taken[0])] {
            let id = bench.add_entry(0, &old(low), sequence);
            bench.add_row(0, &id, sequence);
        }
        bench.append_old(3, 2);
        let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {}", old(2)));
        if delivered {
            assert_eq!(bench.fetch("rheo", 1, 9_999_999_999_999), [old(1)]);
        }
        assert_eq!(bench.heal().await, [repair(Missing, 1, 1, 1)]);
        if delivered {
            bench.fence(&old(1), 0, 1, 1);
        }
        assert_eq!(bench.drained().await, [2, 3, 4]);
        assert_eq!(bench.missing().await, 1);
    }
}

#[tokio::test]
async fn a_deleted_log_of_many_rows_is_passed_in_bounded_steps() {
    const EVENTS: u64 = 20_000;
    let bench = Bench::new(1).await;
    bench.append(0, EVENTS as usize).await;
    let leased = bench.claim("a", 100).await.leased;
    bench.ack(&leased[..50]).await;
    let _: i64 = bench.raw("DEL rheo:T:s:s:0");
    let group = Repair { kind: Group, sequences: None, count: 1 };
    assert_eq!(bench.backend.heal(&bench.group, 0).await.unwrap(), [group]);
    bench.heal_fully().await;
    // What is held may still be settled by its holders, without a body; the rest runs out, and dies.
    assert_eq!(bench.ack(&leased[50..60]).await, [Settled::Done; 10]);
    for leased in &leased[60..] {
        let fence = format!("HSET rheo:T:fence:s:g:{} expires_at_ms 1", leased.lease.receipt);
        let _: i64 = bench.raw(&fence);
    }
    let mended = bench.backend.heal(&bench.group, 0).await.unwrap();
    assert!(mended.contains(&repair(Undelivered, 61, 100, 40)), "{mended:?}");
    let claimed = bench.claim("b", 100).await;
    assert_eq!((claimed.leased.len(), claimed.dead_lettered.len()), (0, 40));
    assert!(claimed.dead_lettered.iter().all(|death| death.cause == Cause::Missing));
    loop {
        let before = bench.server_cpu();
        let repairs = bench.backend.heal(&bench.group, 0).await.unwrap();
        let cost = bench.server_cpu() - before;
        let Some(missing) = repairs.iter().find(|repair| repair.kind == Missing) else { break };
        assert!(cost < LOOKS * STEP_MAX, "{cost:?} for {repairs:?}");
        assert!(missing.count <= 10_000, "a bounded number at a time: {repairs:?}");
    }
    assert_eq!((bench.frontier().await, bench.missing().await), (EVENTS, EVENTS - 100));
    bench.append(0, 3).await;
    assert_eq!(bench.drained().await, [EVENTS + 1, EVENTS + 2, EVENTS + 3]);
}
