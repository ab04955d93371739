//! The step that leases what a claim has read goes by the index. Where the index tells something else
//! than the log, what was read is leased all the same, and nothing else keeps a lease.

use std::collections::HashMap;

use wasmill::backend::{Backend as _, PendingState};
use wasmill::event::Leased;

use crate::kit::{Bench, sequences};

/// A group that stands behind an entry of ours: the first of `count`, which is settled.
async fn begun(count: usize) -> Bench {
    let bench = Bench::new(1).await;
    bench.append(0, count).await;
    let first = bench.claim("me", 1).await.leased;
    bench.ack(&first).await;
    bench
}

fn receipts(bench: &Bench) -> Vec<String> {
    let rows: Vec<(String, Vec<String>)> = bench.raw("XRANGE rheo:T:s:s:0 - +");
    rows.into_iter().map(|(id, _)| id).collect()
}

/// The entries under a fence are these.
fn assert_fenced(bench: &Bench, leased: &[Leased]) {
    let mut fences: Vec<String> = bench.raw("KEYS rheo:T:fence:s:g:*");
    fences.sort();
    let mut expected: Vec<String> =
        leased.iter().map(|leased| format!("rheo:T:fence:s:g:{}", leased.lease.receipt)).collect();
    expected.sort();
    assert_eq!(fences, expected);
}

#[tokio::test]
async fn the_pending_list_is_not_walked() {
    let bench = begun(10).await;
    let leased = bench.claim("me", 10).await.leased;
    assert_eq!(sequences(&leased), (2..=10).collect::<Vec<_>>());
    assert_eq!(calls(&bench, "copy"), 8);
    // Once a claim: for the last entry alone.
    assert_eq!(calls(&bench, "xpending"), 2);
}

/// How often the server was asked that, from within scripts too.
fn calls(bench: &Bench, command: &str) -> u64 {
    let stats: String = bench.raw("INFO commandstats");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// A claim that takes its two scripts, and no third one that mends what the second did.
async fn claim_at_once(bench: &Bench, limit: usize) -> Vec<Leased> {
    let before = calls(bench, "evalsha");
    let leased = bench.claim("me", limit).await.leased;
    assert_eq!(calls(bench, "evalsha") - before, 2);
    leased
}

#[tokio::test]
async fn rows_without_entries_keep_no_lease() {
    let bench = begun(6).await;
    let ids = receipts(&bench);
    for gone in [1, 3] {
        assert_eq!(bench.raw::<i64>(&format!("XDEL rheo:T:s:s:0 {}", ids[gone])), 1);
    }
    let leased = bench.claim("me", 3).await.leased;
    assert_eq!(sequences(&leased), [3, 5, 6]);
    assert!(leased.iter().all(|leased| leased.lease.attempt == 1));
    assert_fenced(&bench, &leased);
}

#[tokio::test]
async fn rows_without_any_entry_keep_no_lease() {
    let bench = begun(4).await;
    let ids = receipts(&bench);
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {} {} {}", ids[1], ids[2], ids[3]));
    for _ in 0..2 {
        assert!(claim_at_once(&bench, 10).await.is_empty());
        assert_fenced(&bench, &[]);
    }
    // What comes behind them is read.
    bench.append(0, 2).await;
    let leased = bench.claim("me", 10).await.leased;
    assert_eq!(sequences(&leased), [5, 6]);
    assert_fenced(&bench, &leased);
}

#[tokio::test]
async fn an_entry_without_row_is_leased_with_its_neighbours() {
    let bench = begun(3).await;
    let ids = receipts(&bench);
    let _: i64 = bench.raw(&format!("ZREM rheo:T:z:s:0 {}", ids[1]));
    let leased = bench.claim("me", 10).await.leased;
    assert_eq!(sequences(&leased), [2, 3]);
    assert!(leased.iter().all(|leased| leased.lease.attempt == 1));
    assert_fenced(&bench, &leased);
}

#[tokio::test]
async fn entries_whose_rows_are_in_another_order_are_leased_and_no_others() {
    let bench = begun(4).await;
    let ids = receipts(&bench);
    let _: i64 = bench.raw(&format!("ZADD rheo:T:z:s:0 4 {} 3 {} 2 {}", ids[1], ids[2], ids[3]));
    // By the index the last one comes first, and it is not read: should the claim die behind its
    // transaction, that one must not be found under a lease which no one was given.
    let leased = claim_at_once(&bench, 2).await;
    let receipts: Vec<&str> = leased.iter().map(|leased| &*leased.lease.receipt).collect();
    assert_eq!(receipts, [&ids[1], &ids[2]]);
    assert_fenced(&bench, &leased);
}

#[tokio::test]
async fn ids_of_another_length_are_leased() {
    let bench = begun(120).await;
    let mut next = 2;
    while next <= 120 {
        let leased = claim_at_once(&bench, 7).await;
        assert_eq!(sequences(&leased), (next..next + leased.len() as u64).collect::<Vec<_>>());
        assert_fenced(&bench, &leased);
        bench.ack(&leased).await;
        next += leased.len() as u64;
    }
}

#[tokio::test]
async fn a_fence_that_is_there_is_looked_at() {
    let bench = begun(4).await;
    let ids = receipts(&bench);
    let fence = |at: usize, expires: &str| {
        let _: i64 = bench.raw(&format!(
            "HSET rheo:T:fence:s:g:{} lease_id rheo-lease attempt 2 expires_at_ms {expires} partition 0 \
             consumer_id rheo",
            ids[at]
        ));
    };
    fence(1, "9999999999999");
    fence(2, "1");
    let leased = bench.claim("me", 10).await.leased;
    // The first is another's; the second was, and its attempts count; the third has none.
    assert_eq!(sequences(&leased), [3, 4]);
    assert_eq!(leased.iter().map(|leased| leased.lease.attempt).collect::<Vec<_>>(), [3, 1]);
    let held: HashMap<String, String> = bench.raw(&format!("HGETALL rheo:T:fence:s:g:{}", ids[1]));
    assert_eq!((held["lease_id"].as_str(), held["attempt"].as_str()), ("rheo-lease", "2"));
}

#[tokio::test]
async fn a_position_that_another_writer_chose_is_asked_for_in_the_pending_list() {
    let bench = Bench::new(1).await;
    let first = bench.append_like_rheo(0, "*");
    let leased = bench.claim("me", 1).await.leased;
    assert_eq!(&*leased[0].lease.receipt, first);
    bench.append_like_rheo(0, "*");
    bench.append(0, 1).await;
    let leased = bench.claim("me", 10).await.leased;
    assert_eq!(sequences(&leased), [2, 3]);
}

#[tokio::test]
async fn a_listing_names_the_holder_of_the_fence() {
    let bench = Bench::new(1).await;
    bench.append(0, 1).await;
    let leased = bench.claim("me", 1).await.leased;
    let receipt = &leased[0].lease.receipt;
    // As the pending list is read before the fence, it may still name the holder before this one.
    let _: redis::Value = bench.raw_with("XCLAIM rheo:T:s:s:0 g before 0", &[&**receipt, "JUSTID"]);
    let pending = bench.backend.pending(&bench.group, 0, None, 10).await.unwrap();
    let PendingState::Leased { consumer, .. } = &pending[0].state else { panic!("{pending:?}") };
    assert_eq!(consumer, "me");
}
