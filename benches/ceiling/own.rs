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
    make_group(store, &group()).await;
}

/// A group of a stream that is there.
async fn make_group(store: &impl Backend, group: &GroupKey) {
    let new = NewGroup { max_attempts: 5, start: Start::Beginning };
    store.create_group(group, new).await.unwrap();
}

/// Many streams, each with as many groups.
pub(crate) async fn make_many(store: &impl Backend, streams: usize, groups: usize) -> Vec<Vec<GroupKey>> {
    let mut made = Vec::with_capacity(streams);
    for stream in 0..streams {
        let stream = Name::new(&format!("orders-{stream}")).unwrap();
        store.create_stream(&stream, 1).await.unwrap();
        let group = |n| GroupKey::new(stream.clone(), Name::new(&format!("bench-{n}")).unwrap());
        let groups: Vec<GroupKey> = (0..groups).map(group).collect();
        for group in &groups {
            make_group(store, group).await;
        }
        made.push(groups);
    }
    made
}

/// Goes round streams: appends a batch to each, and claims and acks it in one of its groups.
pub(crate) async fn go_round(
    store: &impl Backend,
    groups: impl Iterator<Item = &GroupKey>,
    batch: usize,
    bytes: usize,
) {
    let events = vec![event(bytes); batch];
    for group in groups {
        store.append(&group.stream, &events).await.unwrap();
        let leases = claim(store, group, batch).await;
        assert_eq!(leases.len(), batch);
        settle(store, group, leases, |_| Verdict::Ack(Effects::default())).await;
    }
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
    let mut random = StdRng::seed_from_u64(1);
    let (mut held, mut claimed, mut settled) = (Vec::new(), 0, 0);
    while settled < events {
        while held.len() < WINDOW * batch && claimed < events {
            let leases = claim(store, &group(), batch).await;
            claimed += leases.len();
            held.extend(leases);
        }
        held.shuffle(&mut random);
        let part = held.split_off(held.len().saturating_sub(batch));
        settled += part.len();
        settle(store, &group(), part, verdict).await;
    }
}

/// Claims everything and acks it, a batch after the other.
pub(crate) async fn claim_ack(store: &impl Backend, events: usize, batch: usize) {
    let mut done = 0;
    while done < events {
        let leases = claim(store, &group(), batch).await;
        done += leases.len();
        settle(store, &group(), leases, |_| Verdict::Ack(Effects::default())).await;
    }
}

async fn claim(store: &impl Backend, group: &GroupKey, batch: usize) -> Vec<Lease> {
    let request = ClaimRequest {
        group,
        consumer: "bench",
        partitions: &[0],
        limit: batch,
        lease: Duration::from_secs(30),
        sweep: false,
        alone: false,
    };
    let leased = store.claim(&request).await.unwrap().leased;
    assert!(!leased.is_empty(), "there are no more events");
    leased.into_iter().map(|leased| leased.lease).collect()
}

async fn settle(store: &impl Backend, group: &GroupKey, leases: Vec<Lease>, verdict: fn(&Lease) -> Verdict) {
    let settlements: Vec<Settlement> = leases
        .into_iter()
        .map(|lease| Settlement { verdict: verdict(&lease), lease, plugin: None })
        .collect();
    let request = SettleRequest { group, consumer: "bench", settlements: &settlements };
    let answers = store.settle(&request).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Settled::Done));
}

fn verdict(lease: &Lease) -> Verdict {
    let reason = || "the upstream service did not answer".to_owned();
    match lease.sequence % 100 {
        0 => Verdict::DeadLetter { cause: Cause::Rejected, reason: reason(), failure: None },
        1..=4 => {
            Verdict::Retry { delay: Duration::from_secs(3600), reason: reason(), failure: FailureKind::Retry }
        }
        _ => Verdict::Ack(Effects::default()),
    }
}
