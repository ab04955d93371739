//! Sequences without an index row.

use super::*;
use crate::kit::{connect_for, sequences};

#[tokio::test]
async fn an_old_hole_is_passed() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 2);
    bench.take_sequence(0);
    bench.append_old(4, 2);
    let leased = bench.claim("a", 10).await.leased;
    bench.ack(&leased).await;
    assert_eq!(bench.frontier().await, 2);
    assert_eq!(bench.heal().await, [repair(Hole, 3, 3, 1)]);
    assert_eq!((bench.frontier().await, bench.lag().await), (5, 0));
}

#[tokio::test]
async fn holes_are_passed_one_by_one() {
    let bench = Bench::new(1).await;
    for first in [1, 4, 7, 10, 13, 16, 19] {
        bench.append_old(first, 1);
        bench.take_sequence(0);
        bench.take_sequence(0);
    }
    bench.append_old(22, 1);
    let leased = bench.claim("a", 10).await.leased;
    assert_eq!(sequences(&leased), [1, 4, 7, 10, 13, 16, 19, 22]);
    bench.ack(&leased[..4]).await;
    bench.ack(&leased[5..]).await;
    // 13 is not settled: the holes behind it do not matter yet.
    assert_eq!(bench.heal_fully().await, [(Hole, 8)]);
    assert_eq!(bench.frontier().await, 12);
    bench.ack(&leased[4..5]).await;
    assert_eq!(bench.heal_fully().await, [(Hole, 6)]);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_young_hole_stands_and_its_append_comes() {
    let bench = Bench::new(1).await;
    bench.append_like_rheo(0, "*");
    let late = bench.take_sequence(0);
    bench.append_like_rheo(0, "*");
    let leased = bench.claim("a", 10).await.leased;
    bench.ack(&leased).await;
    assert_eq!(bench.heal().await, []);
    assert_eq!(bench.frontier().await, 1);
    let id = bench.add_entry(0, "*", late);
    bench.add_row(0, &id, late);
    assert_eq!(bench.drained().await, [late]);
}

#[tokio::test]
async fn a_hole_at_the_end_is_passed_when_it_is_old_but_not_what_was_given_out_later() {
    const AGE: Duration = Duration::from_millis(300);
    let mut bench = Bench::new(1).await;
    bench.backend = connect_for(&bench.server.url(), AGE).await.unwrap();
    bench.append(0, 2).await;
    let leased = bench.claim("a", 10).await.leased;
    bench.ack(&leased).await;
    bench.take_sequence(0);
    bench.take_sequence(0);
    let seen = bench.server_ms();
    assert_eq!(bench.heal().await, [], "its append may be under way");
    while bench.server_ms() <= bench.server_ms().min(seen) + 400 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let late = bench.take_sequence(0);
    assert_eq!(bench.heal().await, [repair(Hole, 3, 4, 2)]);
    assert_eq!(bench.frontier().await, 4);
    let id = bench.add_entry(0, "*", late);
    bench.add_row(0, &id, late);
    assert_eq!(bench.drained().await, [5]);
}

#[tokio::test]
async fn an_entry_without_row_gets_it_before_its_delivery() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 1);
    let lost = [bench.take_sequence(0), bench.take_sequence(0)];
    for sequence in lost {
        bench.add_entry(0, &old(sequence), sequence);
    }
    bench.append_old(4, 1);
    let last = bench.take_sequence(0);
    bench.add_entry(0, &old(last), last);
    // What is not delivered yet is no matter of the frontier.
    let leased = bench.claim("a", 1).await.leased;
    bench.ack(&leased).await;
    assert_eq!(bench.heal().await, [repair(IndexRow, 2, 3, 2)]);
    let row: String = bench.raw(&format!("ZSCORE rheo:T:z:s:0 {}", old(3)));
    assert_eq!(row, "3");
    assert_eq!(bench.drained().await, [2, 3, 4, 5]);
}

#[tokio::test]
async fn a_row_is_found_among_entries_out_of_order() {
    let bench = Bench::new(1).await;
    // Three appends at once: the third came first, the first one last and without its row.
    let taken: Vec<u64> = (0..3).map(|_| bench.take_sequence(0)).collect();
    for (low, sequence) in [(1, taken[2]), (2, taken[1]), (3, taken[0])] {
        bench.add_entry(0, &old(low), sequence);
        if sequence != taken[0] {
            bench.add_row(0, &old(low), sequence);
        }
    }
    // And one in front of the row that is before it in the index.
    let taken = (bench.take_sequence(0), bench.take_sequence(0));
    bench.add_entry(0, &old(4), taken.1);
    bench.add_entry(0, &old(5), taken.0);
    bench.add_row(0, &old(5), taken.0);
    let read = bench.fetch("rheo", 10, 1);
    assert_eq!(read.len(), 5);
    assert_eq!(bench.heal().await, [repair(IndexRow, 1, 5, 2)]);
    assert_eq!(bench.drained().await, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn an_entry_without_row_that_is_pending_gets_it() {
    let bench = Bench::new(1).await;
    let sequence = bench.take_sequence(0);
    let id = bench.add_entry(0, "*", sequence);
    assert_eq!(bench.fetch("rheo", 1, 9_999_999_999_999), std::slice::from_ref(&id));
    assert_eq!(bench.heal().await, [repair(IndexRow, 1, 1, 1)]);
    bench.fence(&id, 0, 1, 1);
    let (came, _) = bench.drain().await;
    assert_eq!((came.len(), came[0].lease.attempt), (1, 2));
}

#[tokio::test]
async fn an_entry_without_row_that_nobody_holds_comes_again() {
    let bench = Bench::new(1).await;
    let sequence = bench.take_sequence(0);
    let id = bench.add_entry(0, &old(1), sequence);
    bench.fetch("rheo", 1, 1);
    let _: i64 = bench.raw("XGROUP DELCONSUMER rheo:T:s:s:0 g rheo");
    assert_eq!(bench.heal().await, [repair(IndexRow, 1, 1, 1), repair(Undelivered, 1, 1, 1)]);
    let (came, _) = bench.drain().await;
    assert_eq!((came.len(), came[0].lease.attempt, &*came[0].lease.receipt), (1, 2, id.as_str()));
}

#[tokio::test]
async fn rows_of_a_whole_batch_are_written() {
    const EVENTS: u64 = 1500;
    let bench = Bench::new(1).await;
    bench.append_old(1, 1);
    for _ in 0..EVENTS {
        let sequence = bench.take_sequence(0);
        bench.add_entry(0, &old(sequence), sequence);
    }
    bench.append_old(EVENTS + 2, 1);
    let leased = bench.claim("a", 1).await.leased;
    bench.ack(&leased).await;
    // As far as one look goes: those are before the group now.
    let mended = bench.heal_fully().await;
    assert!(matches!(mended[..], [(IndexRow, rows)] if rows >= 500), "{mended:?}");
    assert_eq!(bench.drained().await, (2..=EVENTS + 2).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_lost_index_is_written_again() {
    let bench = Bench::new(1).await;
    bench.append(0, 500).await;
    let leased = bench.claim("a", 300).await.leased;
    bench.ack(&leased[..200]).await;
    let _: i64 = bench.raw("DEL rheo:T:z:s:0");
    assert_eq!(bench.heal_fully().await, [(IndexRow, 300)]);
    assert_eq!(bench.ack(&leased[200..]).await, [Settled::Done; 100]);
    assert_eq!(bench.drained().await, (301..=500).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_row_that_names_no_entry_is_a_hole() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 1);
    for id in ["nonsense", "1-2-3", "-"] {
        let sequence = bench.take_sequence(0);
        bench.add_row(0, id, sequence);
    }
    bench.append_old(5, 1);
    assert_eq!(sequences(&bench.claim("a", 10).await.leased), [1, 5]);
    let _: i64 = bench.raw("XACK rheo:T:s:s:0 g 0-0");
    assert_eq!(bench.heal().await, []);
    bench.set_frontier(1);
    assert_eq!(bench.heal().await, [repair(Hole, 2, 4, 3)]);
}

#[tokio::test]
async fn a_row_above_the_counter_moves_no_frontier() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 2);
    let wrong = bench.add_entry(0, &old(3), 900);
    bench.add_row(0, &wrong, 900);
    assert_eq!(bench.drained().await, [1, 2, 900]);
    assert_eq!(bench.heal().await, []);
    assert_eq!(bench.frontier().await, 2);
    bench.append_old(4, 2);
    assert_eq!(bench.drained().await, [3, 4]);
    assert_eq!(bench.frontier().await, 4);
}
