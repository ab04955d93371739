//! Leases and settlements.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wasmill::backend::{Backend as _, ClaimRequest, RepairKind, Settled};
use wasmill::event::Leased;
use wasmill::outcome::{Cause, FailureKind, Verdict};

use super::{bench, block, content, drain, expire, heal, peer, places};
use crate::kit::{LONG, retry, sequences};
use crate::peer::{Fetch, Next, Refusal};

fn reject() -> Verdict {
    Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_02_concurrent_acks_move_the_frontier_backward() {
    let bench = std::sync::Arc::new(bench(1, 5).await);
    bench.append(0, 1500).await;
    let mut leased = bench.claim("ours", 1000).await.leased;
    leased.extend(bench.claim("ours", 500).await.leased);
    let highest = std::sync::Arc::new(AtomicU64::new(0));
    let ackers: Vec<_> = (0..16)
        .map(|n| {
            let (bench, highest) = (bench.clone(), highest.clone());
            let own: Vec<Leased> = leased.iter().skip(n).step_by(16).cloned().collect();
            tokio::spawn(async move {
                for part in own.chunks(3) {
                    bench.ack(part).await;
                    let before = highest.load(Ordering::SeqCst);
                    let info = bench.backend.group_info(&bench.group).await.unwrap();
                    let frontier = info.partitions[0].frontier;
                    assert!(frontier >= before, "{frontier} after {before}");
                    highest.fetch_max(frontier, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for acker in ackers {
        acker.await.unwrap();
    }
    assert_eq!(bench.lag().await, 0);
    assert_eq!(bench.raw::<i64>("ZCARD rheo:T:done:s:g:0"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_02_a_frontier_that_a_peer_moved_backward_is_repaired() {
    let bench = bench(1, 5).await;
    bench.append(0, 10).await;
    let rest = std::cell::RefCell::new(Vec::new());
    let mut peer = peer(&bench);
    let one = peer.fetch("s", "g", &Fetch::new("rheo", 1)).unwrap();
    *rest.borrow_mut() = bench.claim("ours", 9).await.leased;
    // Between its reading of `done` and its writing of the frontier, all the rest is acked.
    peer.once_in_gap("ack", 5, || {
        assert_eq!(block(bench.ack(&rest.borrow())), [Settled::Done; 9]);
        assert_eq!(block(bench.lag()), 0);
        Next::GoOn
    });
    peer.ack(&one[0]).unwrap();
    drop(peer);
    assert_eq!(bench.lag().await, 9, "the peer wrote what it had read");
    let kinds = heal(&bench).await;
    assert!(kinds.contains(&RepairKind::SettledRow), "{kinds:?}");
    assert_eq!(drain(&bench, "ours").await, BTreeMap::new(), "nothing that was acked comes back");
    assert_eq!(bench.backend.heal(&bench.group, 0).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_03_an_entry_is_handed_out_before_it_is_leased() {
    let bench = bench(1, 5).await;
    bench.append(0, 2000).await;
    let bench = std::sync::Arc::new(bench);
    let consumers: Vec<_> = (0..4)
        .map(|n| {
            let bench = bench.clone();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    // The sweep looks for entries without a lease, and finds none.
                    let some = bench.try_claim(&format!("c{n}"), 8, LONG, true).await.unwrap().leased;
                    if some.is_empty() {
                        return taken;
                    }
                    taken.extend(sequences(&some));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for consumer in consumers {
        all.extend(consumer.await.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (1..=2000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_03_what_a_peer_has_read_and_not_leased_is_settled_once() {
    let bench = bench(1, 5).await;
    bench.append(0, 3).await;
    let ours = std::cell::RefCell::new(Vec::new());
    let mut peer = peer(&bench);
    // It has read the events, and not written its fences yet.
    peer.once_in_gap("fetch", 4, || {
        *ours.borrow_mut() = block(bench.sweep_until("ours", 3));
        assert_eq!(block(bench.ack(&ours.borrow()[..1])), [Settled::Done]);
        Next::GoOn
    });
    let theirs = peer.fetch("s", "g", &Fetch::new("rheo", 3)).unwrap();
    assert_eq!(theirs.len(), 3, "it hands them out all the same");
    let ours = ours.borrow().clone();
    assert!(ours.iter().all(|leased| leased.lease.attempt == 1));
    // It has overwritten our fences: what was not settled before is its own now.
    assert_eq!(bench.ack(&ours[1..]).await, [Settled::Stale; 2]);
    for lease in &theirs {
        peer.ack(lease).unwrap();
    }
    heal(&bench).await;
    assert_eq!(drain(&bench, "ours").await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_07_expiry_never_makes_a_dead_letter() {
    let bench = bench(1, 2).await;
    bench.append(0, 1).await;
    let mut attempts = Vec::new();
    let death = loop {
        expire(&bench);
        let claimed = bench.try_claim("ours", 1, LONG, true).await.unwrap();
        attempts.extend(claimed.leased.iter().map(|leased| leased.lease.attempt));
        if let Some(death) = claimed.dead_lettered.into_iter().next() {
            break death;
        }
        if claimed.suspects {
            let request = ClaimRequest {
                group: &bench.group,
                consumer: "ours",
                partitions: &[0],
                limit: 1,
                lease: LONG,
                sweep: false,
                alone: true,
            };
            let claimed = bench.backend.claim(&request).await.unwrap();
            attempts.extend(claimed.leased.iter().map(|leased| leased.lease.attempt));
        }
        assert!(attempts.len() <= 2, "{attempts:?}");
    };
    assert_eq!(attempts, [1, 2]);
    assert_eq!(death.cause, Cause::AttemptsExhausted);
    let letters = bench.backend.dead_letters(&bench.group, None, 10).await.unwrap();
    assert_eq!((letters[0].failure, letters[0].attempts), (Some(FailureKind::Expired), Some(2)));
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_08_expired_leases_behind_many_live_ones_are_not_found() {
    let bench = bench(1, 5).await;
    bench.append(0, 130).await;
    let held = bench.claim("alive", 120).await.leased;
    let mut peer = peer(&bench);
    let lost = peer.fetch("s", "g", &Fetch::new("dead", 10).lease_ms(1)).unwrap();
    assert_eq!((held.len(), lost.len()), (120, 10));
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(bench.try_claim("ours", 10, LONG, true).await.unwrap().leased);
    }
    assert_eq!(sequences(&found), (121..=130).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_18_an_old_lease_settles_after_another_took_over() {
    let bench = bench(1, 5).await;
    bench.append(0, 1).await;
    let ours = bench.claim("ours", 1).await.leased;
    expire(&bench);
    let mut peer = peer(&bench);
    let theirs = peer.fetch("s", "g", &Fetch::new("rheo", 1)).unwrap();
    let before = content(&bench);
    for verdict in [Verdict::Ack(Default::default()), retry(Duration::ZERO), reject(), Verdict::Release] {
        assert_eq!(bench.settle(&ours, |_| verdict.clone()).await.unwrap(), [Settled::Stale]);
    }
    let leases = [ours[0].lease.clone()];
    assert_eq!(bench.backend.renew(&bench.group, &leases, LONG).await.unwrap(), [Settled::Stale]);
    assert!(content(&bench) == before, "a stale holder changes nothing");
    peer.ack(&theirs[0]).unwrap();
    let after = content(&bench);
    assert_eq!(bench.ack(&ours).await, [Settled::Stale]);
    assert_eq!(bench.backend.renew(&bench.group, &leases, LONG).await.unwrap(), [Settled::Stale]);
    assert!(content(&bench) == after, "no fence comes back");
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_18_what_a_peer_settles_from_under_us_is_neither_lost_nor_settled_again() {
    let bench = bench(1, 5).await;
    bench.append(0, 3).await;
    let ours = std::cell::RefCell::new(Vec::new());
    let mut peer = peer(&bench);
    let theirs = peer.fetch("s", "g", &Fetch::new("rheo", 3)).unwrap();
    let take_over = || {
        expire(&bench);
        *ours.borrow_mut() = block(bench.sweep_until("ours", 1));
        Next::GoOn
    };
    // All but one are kept out of the way while that one is fought for.
    let only = |sequence: u64| {
        for lease in theirs.iter().filter(|lease| lease.event.sequence != sequence) {
            let id = lease.receipt.as_deref().unwrap();
            let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{id} lease_id parked"));
            let _: i64 = bench.raw(&format!("ZADD rheo:T:due:s:g:0 9999999999999 {id}"));
        }
        let id = theirs.iter().find(|lease| lease.event.sequence == sequence).unwrap();
        let (id, lease) = (id.receipt.as_deref().unwrap(), &id.lease_id);
        let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{id} lease_id {lease}"));
        let _: i64 = bench.raw(&format!("ZREM rheo:T:due:s:g:0 {id}"));
    };
    // Its ack was authorized, then its lease ran out and we took over, then it acks.
    only(1);
    peer.once_in_gap("ack", 2, take_over);
    peer.ack(&theirs[0]).unwrap();
    assert_eq!(block(bench.ack(&ours.borrow())), [Settled::Stale]);
    // The same with its nack: it lets go of what is ours.
    only(2);
    peer.once_in_gap("nack", 3, take_over);
    peer.nack(&theirs[1], ":boom").unwrap();
    assert_eq!(block(bench.ack(&ours.borrow())), [Settled::Stale]);
    let again = bench.sweep_until("ours", 1).await;
    assert_eq!((places(&again), bench.ack(&again).await), (vec![(0, 2)], vec![Settled::Done]));
    assert_eq!(peer.ack(&theirs[1]), Err(Refusal::StaleLease));
    // The same with its renewal: it lengthens our lease, and that does no harm.
    only(3);
    peer.once_in_gap("renew", 2, take_over);
    peer.renew(&theirs[2], 60_000).unwrap();
    assert_eq!(block(bench.ack(&ours.borrow())), [Settled::Done]);
    heal(&bench).await;
    assert_eq!(drain(&bench, "ours").await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_19_a_settlement_is_written_by_halves() {
    let bench = bench(1, 5).await;
    bench.append(0, 2).await;
    let ours = bench.claim("ours", 2).await.leased;
    // Where a part cannot be written, nothing is.
    let _: () = bench.raw("SET rheo:T:dlq:s:g x");
    let before = content(&bench);
    bench.settle(&ours[..1], |_| reject()).await.unwrap_err();
    assert!(content(&bench) == before);
    let _: i64 = bench.raw("DEL rheo:T:dlq:s:g");
    assert_eq!(bench.settle(&ours[..1], |_| reject()).await.unwrap(), [Settled::Done]);
    assert_eq!(bench.backend.dead_letters(&bench.group, None, 10).await.unwrap().len(), 1);

    // What a peer's ack leaves whose server died behind its first two commands: settled, and not in
    // `done`.
    let id = &ours[1].lease.receipt;
    let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 g {id}"));
    let _: i64 = bench.raw(&format!("DEL rheo:T:fence:s:g:{id}"));
    assert_eq!(bench.lag().await, 1);
    let kinds = heal(&bench).await;
    assert_eq!(kinds, [RepairKind::SettledRow]);
    assert_eq!(drain(&bench, "ours").await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_19_what_was_taken_from_the_pending_list_alone_comes_again() {
    let bench = bench(1, 5).await;
    bench.append(0, 2).await;
    let mut peer = peer(&bench);
    let theirs = peer.fetch("s", "g", &Fetch::new("rheo", 2)).unwrap();
    // Only the first command of its ack, or of its reject, was carried out: in doubt, so delivered.
    let id = theirs[0].receipt.as_deref().unwrap();
    let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 g {id}"));
    expire(&bench);
    let mut came = BTreeMap::new();
    let deadline = std::time::Instant::now() + super::PATIENCE;
    while came.len() < 2 {
        assert!(std::time::Instant::now() < deadline, "{came:?}");
        bench.backend.heal(&bench.group, 0).await.unwrap();
        came.extend(drain(&bench, "ours").await);
    }
    assert_eq!(came.into_keys().collect::<Vec<_>>(), [(0, 1), (0, 2)]);
    assert_eq!(bench.lag().await, 0);
}
