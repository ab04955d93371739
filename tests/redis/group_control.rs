//! Replay, reset and deletion across crashes, losses and other writers.

use std::time::Duration;

use wasmill::backend::redis::Redis;
use wasmill::backend::{Backend as _, Positions, Rewind, RewindKind, Settled, rewind};
use wasmill::event::Leased;
use wasmill::outcome::{Cause, Verdict};

use crate::kit::{Bench, LONG, connect, retry, sequences};

fn to(kind: RewindKind, positions: &[(u32, u64)]) -> Rewind {
    Rewind { kind, to: positions.iter().copied().collect() }
}

fn reject() -> Verdict {
    Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None }
}

/// Takes so many of a bench's events.
async fn take(bench: &Bench, count: usize) -> Vec<Leased> {
    let mut held = Vec::new();
    while held.len() < count {
        let some = bench.claim("a", (count - held.len()).min(1000)).await.leased;
        assert!(!some.is_empty(), "{} of {count} came", held.len());
        held.extend(some);
    }
    held
}

fn fences(bench: &Bench) -> Vec<String> {
    bench.raw("KEYS rheo:T:fence:s:g:*")
}

/// Goes on with a rewind to its end. Returns how many steps it took.
async fn finish(backend: &Redis, bench: &Bench) -> usize {
    let mut steps = 1;
    while !backend.continue_rewind(&bench.group).await.unwrap().finished {
        steps += 1;
        assert!(steps < 1000, "a rewind comes to its end");
    }
    steps
}

/// Nothing of a rewind is left in the note.
fn assert_over(bench: &Bench) {
    let note: Vec<String> = bench.raw("HKEYS rheo:T:note:s:g");
    assert!(note.iter().all(|field| !field.starts_with("rew")), "{note:?}");
}

#[tokio::test]
async fn fault_9_a_replay_of_5000_pending_entries_takes_them_all() {
    let bench = Bench::new(1).await;
    bench.append(0, 5000).await;
    let held = take(&bench, 5000).await;
    for part in held[..1000].chunks(250) {
        bench.settle(part, |_| retry(LONG)).await.unwrap();
    }
    // Suspects, and what waits for another attempt, are dropped with the others.
    let dropped = rewind(&bench.backend, &bench.group, &to(RewindKind::Replay, &[(0, 0)])).await.unwrap();
    assert_eq!(dropped, 5000);
    assert_eq!(fences(&bench), [] as [&str; 0]);
    assert_eq!(bench.raw::<u64>("EXISTS rheo:T:due:s:g:0 rheo:T:suspect:s:g:0"), 0);
    assert_over(&bench);
    for leased in held.iter().step_by(617) {
        assert_eq!(bench.ack(std::slice::from_ref(leased)).await, [Settled::Stale]);
    }
    let again = take(&bench, 5000).await;
    assert!(again.iter().all(|leased| leased.lease.attempt == 1));
    for part in held.chunks(250).take(2) {
        assert!(bench.ack(part).await.iter().all(|settled| *settled == Settled::Stale));
    }
    for part in again.chunks(250) {
        bench.ack(part).await;
    }
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_rewind_goes_on_wherever_its_engine_died() {
    for kind in [RewindKind::Replay, RewindKind::Reset] {
        for died_after in 0..5 {
            let bench = Bench::new(1).await;
            bench.append(0, 1800).await;
            let held = take(&bench, 1800).await;
            for part in held[900..1400].chunks(250) {
                bench.ack(part).await;
            }
            let dying = connect(&bench.server.url()).await.unwrap();
            dying.begin_rewind(&bench.group, &to(kind, &[(0, 100)])).await.unwrap();
            let mut finished = false;
            for _ in 0..died_after {
                finished |= dying.continue_rewind(&bench.group).await.unwrap().finished;
            }
            drop(dying);
            assert_eq!(finished, died_after > 2, "{kind} takes three steps here");

            let mut seen = Vec::new();
            while seen.len() < 1700 {
                let some = bench.claim("b", 500).await.leased;
                assert!(some.iter().all(|leased| leased.lease.attempt == 1));
                seen.extend(some);
            }
            assert_eq!(sequences(&seen), (101..=1800).collect::<Vec<_>>(), "{kind}, {died_after}");
            assert_over(&bench);
            let below = if kind == RewindKind::Replay { 100 } else { 0 };
            assert_eq!(fences(&bench).len(), 1700 + below, "{kind}: only of what is held");
            let settled = bench.ack(&held[..100]).await;
            let expected = if below > 0 { Settled::Done } else { Settled::Stale };
            assert!(settled.iter().all(|settled| *settled == expected), "{kind}");
            for part in seen.chunks(250) {
                bench.ack(part).await;
            }
            assert_eq!(bench.lag().await, 0, "{kind}, {died_after}");
        }
    }
}

/// Reads and leases as Rheo's fetch does, which knows nothing of markers.
fn fetch_like_rheo(bench: &Bench, count: usize) -> Vec<String> {
    type Rows = Vec<(String, Vec<(String, Vec<String>)>)>;
    let read: Option<Rows> =
        bench.raw(&format!("XREADGROUP GROUP g rheo COUNT {count} STREAMS rheo:T:s:s:0 >"));
    let ids: Vec<String> = read.into_iter().flatten().flat_map(|(_, rows)| rows).map(|(id, _)| id).collect();
    for id in &ids {
        let _: i64 = bench.raw(&format!(
            "HSET rheo:T:fence:s:g:{id} lease_id of-rheo attempt 1 expires_at_ms 9999999999999 \
             partition 0 consumer_id rheo"
        ));
    }
    ids
}

#[tokio::test]
async fn what_a_peer_takes_during_a_rewind_is_not_lost() {
    for kind in [RewindKind::Replay, RewindKind::Reset] {
        let bench = Bench::new(1).await;
        bench.append(0, 1500).await;
        let held = take(&bench, 1200).await;
        bench.ack(&held[..200]).await;
        bench.backend.begin_rewind(&bench.group, &to(kind, &[(0, 50)])).await.unwrap();
        assert_eq!(fetch_like_rheo(&bench, 100).len(), 100);
        let mut taken = 100;
        while !bench.backend.continue_rewind(&bench.group).await.unwrap().finished {
            taken += fetch_like_rheo(&bench, 20).len();
        }
        assert!(taken > 100, "the peer read between two steps");
        // It reads on in the group that was moved, and beside it we do.
        let its = fetch_like_rheo(&bench, 10);
        let ours = take(&bench, 1440).await;
        assert_eq!(sequences(&ours), (61..=1500).collect::<Vec<_>>());
        assert!(ours.iter().all(|leased| leased.lease.attempt == 1));
        assert_eq!(its.len(), 10);
        for part in ours.chunks(250) {
            bench.ack(part).await;
        }
        assert_eq!(bench.lag().await, 1450, "what the peer has holds the frontier");
        for id in &its {
            let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{id} expires_at_ms 1"));
        }
        let last = bench.sweep_until("b", 10).await;
        bench.ack(&last).await;
        assert_eq!(bench.lag().await, 0);
    }
}

#[tokio::test]
async fn a_group_that_is_lost_during_a_rewind_is_moved_all_the_same() {
    for kind in [RewindKind::Replay, RewindKind::Reset] {
        for lost_before in [true, false] {
            let bench = Bench::new(1).await;
            bench.append(0, 1500).await;
            let held = take(&bench, 1400).await;
            bench.ack(&held[..2]).await;
            bench.settle(&held[10..20], |_| retry(LONG)).await.unwrap();
            if lost_before {
                let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
            }
            bench.backend.begin_rewind(&bench.group, &to(kind, &[(0, 5)])).await.unwrap();
            if !lost_before {
                bench.backend.continue_rewind(&bench.group).await.unwrap();
                let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
            }
            finish(&bench.backend, &bench).await;
            assert_over(&bench);
            assert!(bench.ack(&held[5..6]).await == [Settled::Stale]);
            let below = if kind == RewindKind::Replay { 3 } else { 0 };
            assert_eq!(fences(&bench).len(), below, "{kind}: only the leases at or below the target");
            let ours = take(&bench, 1495).await;
            assert_eq!(sequences(&ours), (6..=1500).collect::<Vec<_>>());
            assert!(ours.iter().all(|leased| leased.lease.attempt == 1));
            for part in ours.chunks(250) {
                bench.ack(part).await;
            }
            let rest = bench.ack(&held[2..5]).await;
            assert_eq!(rest.contains(&Settled::Done), kind == RewindKind::Replay);
            assert_eq!(bench.lag().await, 0);
        }
    }
}

#[tokio::test]
async fn a_group_that_was_made_again_keeps_no_lease_through_a_rewind() {
    let bench = Bench::new(1).await;
    bench.append(0, 10).await;
    let held = bench.claim("a", 10).await.leased;
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
    // Made again, and not yet past what is held: no pending list names the fences.
    bench.claim("b", 1).await;
    rewind(&bench.backend, &bench.group, &to(RewindKind::Replay, &[(0, 0)])).await.unwrap();
    assert_eq!(fences(&bench), [] as [&str; 0]);
    let again = take(&bench, 10).await;
    assert!(again.iter().all(|leased| leased.lease.attempt == 1));
    assert!(bench.ack(&held).await.iter().all(|settled| *settled == Settled::Stale));
}

#[tokio::test]
async fn fault_1_a_rewind_leaves_the_fence_of_another_partition_alone() {
    let bench = Bench::new(2).await;
    for partition in 0..2 {
        bench.append_like_rheo(partition, "1700000000000-0");
    }
    let first = bench.claim("a", 10).await.leased;
    assert_eq!(first.len(), 1);
    let taken = first[0].event.partition;
    rewind(&bench.backend, &bench.group, &to(RewindKind::Reset, &[(1 - taken, 0)])).await.unwrap();
    assert_eq!(bench.ack(&first).await, [Settled::Done]);
    let second = bench.sweep_until("a", 1).await;
    assert_eq!(second[0].event.partition, 1 - taken);
}

#[tokio::test]
async fn fault_10_a_replay_forward_skips_nothing_and_keeps_what_is_settled() {
    let bench = Bench::new(1).await;
    bench.append(0, 10).await;
    let held = bench.claim("a", 6).await.leased;
    bench.ack(&held[2..4]).await;
    rewind(&bench.backend, &bench.group, &to(RewindKind::Replay, &[(0, 8)])).await.unwrap();
    let rest = take(&bench, 4).await;
    assert_eq!(sequences(&rest), [7, 8, 9, 10]);
    assert!(bench.ack(&held[..2]).await.iter().all(|settled| *settled == Settled::Done));
    assert_eq!(bench.lag().await, 6, "3 and 4 were settled, 5 is held");
    bench.ack(&held[4..]).await;
    bench.ack(&rest).await;
    assert_eq!(bench.lag().await, 0);
    assert_eq!(bench.raw::<u64>("ZCARD rheo:T:done:s:g:0"), 0);
}

#[tokio::test]
async fn many_settled_sequences_are_taken_back_in_steps() {
    let bench = Bench::new(1).await;
    bench.append(0, 12_000).await;
    // All but the first are settled, out of order.
    for from in (2..=12_000).step_by(2000) {
        let upto = (from + 1999).min(12_000);
        let members: Vec<String> = (from..=upto).flat_map(|n: u64| [n.to_string(), n.to_string()]).collect();
        let _: i64 = bench.raw_with("ZADD rheo:T:done:s:g:0", &members);
    }
    bench.backend.begin_rewind(&bench.group, &to(RewindKind::Replay, &[(0, 1000)])).await.unwrap();
    assert_eq!(finish(&bench.backend, &bench).await, 3);
    assert_eq!(bench.raw::<u64>("ZCARD rheo:T:done:s:g:0"), 999);
    bench.backend.begin_rewind(&bench.group, &to(RewindKind::Reset, &[(0, 11_990)])).await.unwrap();
    finish(&bench.backend, &bench).await;
    assert_eq!(bench.raw::<u64>("EXISTS rheo:T:done:s:g:0"), 0);
    assert_eq!(sequences(&take(&bench, 10).await), (11_991..=12_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_deletion_leaves_no_key_behind() {
    for lost in [false, true] {
        let bench = Bench::on(crate::server::RedisServer::start(), 20, 2).await;
        for partition in [0, 19] {
            bench.append(partition, 600).await;
        }
        let held = take(&bench, 1100).await;
        bench.settle(&held[..20], |_| retry(Duration::ZERO)).await.unwrap();
        bench.settle(&held[20..40], |_| reject()).await.unwrap();
        bench.ack(&held[50..60]).await;
        let rows: Vec<String> = bench
            .backend
            .dead_letters(&bench.group, None, 20)
            .await
            .unwrap()
            .into_iter()
            .map(|l| l.row)
            .collect();
        bench.backend.redrive(&bench.group, &rows[..10]).await.unwrap();
        bench.try_claim("b", 5, Duration::from_millis(1), true).await.unwrap();
        if lost {
            let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
        }
        let log: u64 = bench.raw("XLEN rheo:T:s:s:0");
        let delete = Rewind { kind: RewindKind::Delete, to: Positions::new() };
        rewind(&bench.backend, &bench.group, &delete).await.unwrap();
        for keys in ["KEYS rheo:T:*:s:g", "KEYS rheo:T:*:s:g:*"] {
            assert_eq!(bench.raw::<Vec<String>>(keys), [] as [&str; 0], "lost: {lost}");
        }
        assert_eq!(bench.raw::<Vec<redis::Value>>("XINFO GROUPS rheo:T:s:s:19").len(), 0);
        assert_eq!(bench.raw::<u64>("XLEN rheo:T:s:s:0"), log);
    }
}

#[tokio::test]
async fn a_deletion_takes_what_a_peer_took_meanwhile() {
    let bench = Bench::new(2).await;
    bench.append(0, 30).await;
    bench.append(1, 30).await;
    take(&bench, 20).await;
    bench.backend.begin_rewind(&bench.group, &to(RewindKind::Delete, &[])).await.unwrap();
    assert_eq!(fetch_like_rheo(&bench, 5).len(), 5);
    finish(&bench.backend, &bench).await;
    for keys in ["KEYS rheo:T:*:s:g", "KEYS rheo:T:*:s:g:*"] {
        assert_eq!(bench.raw::<Vec<String>>(keys), [] as [&str; 0]);
    }
}
