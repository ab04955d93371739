//! Healing beside consumers at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::kit::{connect, event, retry};
use wasmill::backend::{ClaimRequest, SettleRequest};
use wasmill::outcome::{Cause, Effects, Settlement, Verdict};

/// Claims, and acks, retries, releases, rejects; returns what it acked or rejected.
async fn consume(
    url: String,
    group: wasmill::event::GroupKey,
    name: String,
    stop: Arc<AtomicBool>,
) -> Vec<u64> {
    let backend = connect(&url).await.unwrap();
    let mut settled = Vec::new();
    let mut turn = 0_u32;
    while !stop.load(Ordering::SeqCst) {
        turn += 1;
        let request = ClaimRequest {
            group: &group,
            consumer: &name,
            partitions: &[0],
            limit: 16,
            lease: LONG,
            sweep: turn.is_multiple_of(4),
            alone: false,
        };
        let leased = backend.claim(&request).await.unwrap().leased;
        for (n, leased) in leased.iter().enumerate().rev() {
            let first = leased.lease.attempt == 1;
            let verdict = match n % 7 {
                1 if first => retry(Duration::from_millis(5)),
                3 if first => Verdict::Release,
                5 => Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".into(), failure: None },
                _ => Verdict::Ack(Effects::default()),
            };
            let ends = matches!(verdict, Verdict::Ack(_) | Verdict::DeadLetter { .. });
            let settlements = [Settlement { lease: leased.lease.clone(), verdict, plugin: None }];
            let request = SettleRequest { group: &group, consumer: &name, settlements: &settlements };
            assert_eq!(backend.settle(&request).await.unwrap(), [Settled::Done]);
            if ends {
                settled.push(leased.event.sequence);
            }
        }
        tokio::task::yield_now().await;
    }
    settled
}

#[tokio::test]
async fn a_group_at_work_is_left_alone() {
    const EVENTS: usize = 1500;
    let bench = Bench::new(1).await;
    let stop = Arc::new(AtomicBool::new(false));
    let consumers: Vec<_> = (0..3)
        .map(|n| {
            let url = bench.server.url();
            tokio::spawn(consume(url, bench.group.clone(), format!("c{n}"), Arc::clone(&stop)))
        })
        .collect();
    let mut appended = 0;
    let deadline = Instant::now() + PATIENCE;
    while appended < EVENTS || bench.lag().await > 0 {
        if appended < EVENTS {
            let events: Vec<_> = (0..10).map(|n| event(0, n)).collect();
            appended += bench.backend.append(&bench.group.stream, &events).await.unwrap().len();
        }
        assert_eq!(bench.backend.heal(&bench.group, 0).await.unwrap(), []);
        assert!(Instant::now() < deadline, "the events are not settled");
    }
    stop.store(true, Ordering::SeqCst);
    let mut settled = Vec::new();
    for consumer in consumers {
        settled.extend(consumer.await.unwrap());
    }
    settled.sort_unstable();
    assert_eq!(settled, (1..=EVENTS as u64).collect::<Vec<_>>(), "each once");
    assert!(bench.drained().await.is_empty());
}

#[tokio::test]
async fn appends_of_others_under_way_are_waited_for() {
    const EVENTS: u64 = 400;
    let bench = Bench::new(1).await;
    let stop = Arc::new(AtomicBool::new(false));
    let consumer =
        tokio::spawn(consume(bench.server.url(), bench.group.clone(), "c".to_owned(), Arc::clone(&stop)));
    // Appends overlap: each takes its sequence long before the one in front of it adds its entry.
    let (mut taken, mut added) = (Vec::new(), Vec::new());
    let mut kinds = Vec::new();
    for n in 0..EVENTS {
        taken.push(bench.take_sequence(0));
        if n % 3 == 2 {
            while let Some(sequence) = taken.pop() {
                kinds.extend(bench.backend.heal(&bench.group, 0).await.unwrap());
                added.push((bench.add_entry(0, "*", sequence), sequence));
            }
        }
        if n % 5 == 4 {
            kinds.extend(bench.backend.heal(&bench.group, 0).await.unwrap());
            added.drain(..).for_each(|(id, sequence)| bench.add_row(0, &id, sequence));
        }
        tokio::task::yield_now().await;
    }
    while let Some(sequence) = taken.pop() {
        added.push((bench.add_entry(0, "*", sequence), sequence));
    }
    added.drain(..).for_each(|(id, sequence)| bench.add_row(0, &id, sequence));
    let deadline = Instant::now() + PATIENCE;
    while bench.lag().await > 0 {
        kinds.extend(bench.backend.heal(&bench.group, 0).await.unwrap());
        assert!(Instant::now() < deadline, "the events are not settled");
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut settled = consumer.await.unwrap();
    settled.sort_unstable();
    assert_eq!(settled, (1..=EVENTS).collect::<Vec<_>>(), "each once");
    // A row that was about to come may have been written for its writer, but nothing was passed.
    assert!(kinds.iter().all(|repair| repair.kind == IndexRow), "{kinds:?}");
    assert!(bench.drained().await.is_empty());
}
