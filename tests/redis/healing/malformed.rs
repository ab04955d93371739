//! Entries that others wrote, and that are no events, or say something else than their rows.

use super::*;
use crate::kit::sequences;
use wasmill::outcome::Cause;

const REST: &str = "id e timestamp t metadata {} payload {}";

/// Adds an entry with these fields, takes a sequence for it, and writes that into its row if asked to.
fn add(bench: &Bench, fields: &str, row: bool) -> u64 {
    let sequence = bench.take_sequence(0);
    let id: String = bench.raw(&format!("XADD rheo:T:s:s:0 {} {fields}", old(sequence)));
    if row {
        bench.add_row(0, &id, sequence);
    }
    sequence
}

/// Each kind of entry between two events: what comes, how many die.
async fn passes(fields: &str, row: bool, expected: &[u64], deaths: usize) {
    let bench = Bench::new(1).await;
    bench.append_old(1, 1);
    add(&bench, fields, row);
    bench.append_old(3, 1);
    let (came, died) = bench.drain().await;
    let mut came = sequences(&came);
    came.sort_unstable();
    assert_eq!((came.as_slice(), died.len()), (expected, deaths), "{fields}, row: {row}");
    assert!(died.iter().all(|death| death.cause == Cause::Undecodable));
    assert_eq!((bench.frontier().await, bench.lag().await), (3, 0), "{fields}, row: {row}");
    let kept = bench.backend.dead_letters(&bench.group, None, 10).await.unwrap();
    assert_eq!(kept.len(), deaths);
    let pending: Vec<redis::Value> = bench.raw("XPENDING rheo:T:s:s:0 g - + 10");
    assert_eq!(pending, [], "{fields}, row: {row}");
    assert_eq!(bench.missing().await, 0);
}

#[tokio::test]
async fn without_a_sequence() {
    for row in [true, false] {
        passes("foo bar", row, &[1, 3], 1).await;
        passes(REST, row, &[1, 3], 1).await;
        passes(&format!("sequence -2 {REST}"), row, &[1, 3], 1).await;
        passes(&format!("sequence 99999999999999999999 {REST}"), row, &[1, 3], 1).await;
    }
}

#[tokio::test]
async fn with_another_sequence_than_its_row() {
    for row in [true, false] {
        // Of another event, of none so far, of none at all.
        passes(&format!("sequence 1 {REST}"), row, &[1, 1, 3], 0).await;
        passes(&format!("sequence 3 {REST}"), row, &[1, 3, 3], 0).await;
    }
    passes(&format!("sequence 77 {REST}"), true, &[1, 3, 77], 0).await;
}

#[tokio::test]
async fn with_broken_fields() {
    for row in [true, false] {
        passes("sequence 2 id e timestamp t metadata {} payload {", row, &[1, 3], 1).await;
        passes("sequence 2 id e timestamp t metadata [] payload {}", row, &[1, 3], 1).await;
        passes("sequence 2 id e timestamp t payload []", row, &[1, 3], 1).await;
        passes("sequence 2 timestamp t payload {}", row, &[1, 3], 1).await;
    }
}

#[tokio::test]
async fn with_bytes_that_are_no_text() {
    for field in ["sequence", "id", "payload", "metadata", "timestamp", "key", "type"] {
        let bench = Bench::new(1).await;
        bench.append_old(1, 1);
        let sequence = bench.take_sequence(0);
        let mut fields: Vec<Vec<u8>> = vec![old(sequence).into_bytes()];
        for (name, value) in [
            ("sequence", "2"),
            ("id", "e"),
            ("timestamp", "t"),
            ("key", "k"),
            ("type", "t"),
            ("metadata", "{}"),
            ("payload", "{}"),
        ] {
            fields.push(name.as_bytes().to_vec());
            fields.push(if name == field { vec![0xff, b'{', 0] } else { value.as_bytes().to_vec() });
        }
        let id: String = bench.raw_with("XADD rheo:T:s:s:0", &fields);
        bench.add_row(0, &id, sequence);
        bench.append_old(3, 1);
        let (came, died) = bench.drain().await;
        assert_eq!((sequences(&came), died.len()), (vec![1, 3], 1), "{field}");
    }
}

#[tokio::test]
async fn a_retry_of_one_with_another_sequence_than_its_row_is_parked() {
    let bench = Bench::new(1).await;
    add(&bench, &format!("sequence 9 {REST}"), true);
    for attempt in 1..=4 {
        let leased = bench.sweep_until("a", 1).await;
        assert_eq!(leased[0].lease.attempt, attempt);
        let leases = [leased[0].lease.clone()];
        assert_eq!(bench.backend.renew(&bench.group, &leases, LONG).await.unwrap(), [Settled::Done]);
        let parked = bench.settle(&leased, |_| crate::kit::retry(Duration::ZERO)).await.unwrap();
        assert_eq!(parked, [Settled::Done]);
    }
    assert_eq!(bench.drained().await, [9]);
    assert_eq!(bench.frontier().await, 1);
}

#[tokio::test]
async fn a_lease_of_another_entry_with_that_sequence_is_a_mismatch_still() {
    let bench = Bench::new(1).await;
    bench.append_old(1, 2);
    let mut leased = bench.claim("a", 2).await.leased;
    leased[0].lease.sequence = 2;
    assert_eq!(bench.ack(&leased[..1]).await, [Settled::ReceiptMismatch]);
}
