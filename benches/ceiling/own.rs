//! The engine's own way to and from the store.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use wasmill::backend::{Backend, ClaimRequest, NewGroup, SettleRequest, Settled, Start};
use wasmill::event::{GroupKey, Lease, Name};
use wasmill::outcome::{Cause, Effects, FailureKind, Settlement, Verdict};

use super::rig::event;

/// How many batches are held at a time, out of which verdicts come in any order.
const WINDOW: usize = 4;

pub(crate) fn group() -> GroupKey {
    GroupKey::new(Name::new("orders").unwrap(), Name::new("bench").unwrap())
}

/// A stream with one group.
pub(crate) async fn make(store: &impl Backend, partitions: u32) {
    store.create_stream(&group().stream, partitions).await.unwrap();
    let new = NewGroup { max_attempts: 5, start: Start::Beginning };
    store.create_group(&group(), new).await.unwrap();
}

pub(crate) async fn append(store: &impl Backend, events: usize, batch: usize, bytes: usize) {
    let batch_events = vec![event(bytes); batch];
    for _ in 0..events / batch {
        store.append(&group().stream, &batch_events).await.unwrap();
    }
}

/// Claims everything and settles it out of order: of a hundred events 95 are acked, 4 are parked and 1
/// becomes a dead letter.
pub(crate) async fn claim_settle(store: &impl Backend, events: usize, batch: usize) {
    let group = group();
    let mut random = StdRng::seed_from_u64(1);
    let (mut held, mut claimed, mut settled) = (Vec::new(), 0, 0);
    while settled < events {
        while held.len() < WINDOW * batch && claimed < events {
            let request = ClaimRequest {
                group: &group,
                consumer: "bench",
                partitions: &[0],
                limit: batch,
                lease: Duration::from_secs(30),
                sweep: false,
                alone: false,
            };
            let leased = store.claim(&request).await.unwrap().leased;
            assert!(!leased.is_empty(), "{claimed} of {events} were claimed, and there are no more");
            claimed += leased.len();
            held.extend(leased.into_iter().map(|leased| leased.lease));
        }
        held.shuffle(&mut random);
        let part = held.split_off(held.len().saturating_sub(batch));
        let settlements: Vec<Settlement> = part.into_iter().map(verdict).collect();
        let request = SettleRequest { group: &group, consumer: "bench", settlements: &settlements };
        let answers = store.settle(&request).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Settled::Done));
        settled += settlements.len();
    }
}

fn verdict(lease: Lease) -> Settlement {
    let reason = || "the upstream service did not answer".to_owned();
    let verdict = match lease.sequence % 100 {
        0 => Verdict::DeadLetter { cause: Cause::Rejected, reason: reason(), failure: None },
        1..=4 => {
            Verdict::Retry { delay: Duration::from_secs(3600), reason: reason(), failure: FailureKind::Retry }
        }
        _ => Verdict::Ack(Effects::default()),
    };
    Settlement { lease, verdict, plugin: None }
}
