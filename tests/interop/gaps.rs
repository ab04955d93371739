//! We act in each gap of each operation of a peer's, and the peer goes on or dies there.

use std::collections::BTreeMap;
use std::time::Instant;

use wasmill::backend::{Backend as _, PendingState, Settled};
use wasmill::outcome::Verdict;

use crate::faults::{bench, block, expire};
use crate::kit::{Bench, LONG, retry};
use crate::peer::{Append, Fetch, Lease, Next, Outcome, Peer};

/// A group in which everything that a peer can meet is there: 1 is acked, 2 was let go by us, 3 is under
/// a lease of ours that ran out, 4 is parked by us for long, 5 and 6 are new.
struct Meeting {
    bench: Bench,
    /// How often we acked each sequence.
    ours: BTreeMap<u64, usize>,
}

/// The sequence that is parked.
const PARKED: u64 = 4;

impl Meeting {
    fn new() -> Self {
        let bench = block(async {
            let bench = bench(1, 20).await;
            bench.append(0, 6).await;
            let leased = bench.claim("ours", 4).await.leased;
            assert_eq!(bench.ack(&leased[..1]).await, [Settled::Done]);
            bench.settle(&leased[1..2], |_| Verdict::Release).await.unwrap();
            bench.settle(&leased[3..], |_| retry(LONG)).await.unwrap();
            bench
        });
        let meeting = Self { bench, ours: BTreeMap::from([(1, 1)]) };
        expire(&meeting.bench);
        meeting
    }

    /// All leases run out; we take whatever we can get, and ack it.
    fn act(&mut self) {
        expire(&self.bench);
        for _ in 0..4 {
            let leased = block(self.bench.try_claim("ours", 100, LONG, true)).unwrap().leased;
            for (settled, leased) in block(self.bench.ack(&leased)).into_iter().zip(leased) {
                assert_ne!(leased.event.sequence, PARKED, "before its time");
                assert_eq!(settled, Settled::Done);
                *self.ours.entry(leased.event.sequence).or_default() += 1;
            }
        }
    }

    /// Goes on until nothing is left but what is parked, lets that come, and looks at the end.
    fn end(mut self, theirs: &[u64], what: &str) {
        self.act();
        let pending = block(self.bench.backend.pending(&self.bench.group, 0, None, 100)).unwrap();
        let parked = pending.iter().find(|entry| entry.sequence == Some(PARKED)).unwrap();
        assert!(
            matches!(parked.state, PendingState::Parked { due_in_ms } if due_in_ms > 1000),
            "{what}: {parked:?}"
        );
        let id = &parked.receipt;
        let _: i64 = self.bench.raw(&format!("ZADD rheo:T:due:s:g:0 0 {id}"));
        let _: i64 = self.bench.raw(&format!("HSET rheo:T:fence:s:g:{id} expires_at_ms 0"));
        let leased = block(self.bench.sweep_until("ours", 1));
        assert_eq!((leased[0].event.sequence, leased[0].lease.attempt), (PARKED, 2), "{what}");
        assert_eq!(block(self.bench.ack(&leased)), [Settled::Done]);
        self.ours.insert(PARKED, 1);

        let deadline = Instant::now() + std::time::Duration::from_secs(20);
        loop {
            self.act();
            block(self.bench.backend.heal(&self.bench.group, 0)).unwrap();
            let p = block(self.bench.backend.group_info(&self.bench.group)).unwrap().partitions.remove(0);
            let fences: Vec<String> = self.bench.raw("KEYS rheo:T:fence:*");
            if p.lag() == 0 && p.in_flight + p.parked == 0 && fences.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "{what}: {p:?} {fences:?}");
        }
        let high: u64 = self.bench.raw("GET rheo:T:seq:s:0");
        assert!(self.ours.values().all(|acks| *acks == 1), "{what}: more than once by us: {:?}", self.ours);
        let entries: Vec<(String, Vec<String>)> = self.bench.raw("XRANGE rheo:T:s:s:0 - +");
        for (_, fields) in entries {
            let sequence: u64 = fields[3].parse().unwrap();
            assert!(sequence <= high);
            let settled = self.ours.contains_key(&sequence) || theirs.contains(&sequence);
            assert!(settled, "{what}: {sequence} was lost");
        }
    }
}

/// One operation of the peer's. Returns the sequences that it settled for good.
fn operate(peer: &mut Peer, operation: &str, held: &[Lease]) -> Outcome<Vec<u64>> {
    let settled = || held[..1].iter().map(|lease| lease.event.sequence).collect();
    match operation {
        "append" => {
            peer.append_batch("s", &[r#"{"n":1}"#, r#"{"n":2}"#], &Append::default()).map(|_| Vec::new())
        }
        "fetch" => {
            let leases = peer.fetch("s", "g", &Fetch::new("rheo", 10))?;
            assert!(leases.iter().all(|lease| lease.event.sequence != PARKED), "taken before its time");
            let acked = leases.iter().filter(|lease| peer.ack(lease).is_ok());
            Ok(acked.map(|lease| lease.event.sequence).collect())
        }
        "ack" => peer.ack(&held[0]).map(|()| settled()),
        "nack" => peer.nack(&held[0], ":boom").map(|()| Vec::new()),
        "reject" => peer.reject(&held[0], ":never").map(|()| settled()),
        "renew" => peer.renew(&held[0], 60_000).map(|()| Vec::new()),
        other => panic!("{other}"),
    }
}

/// Every gap of an operation, one after the other.
fn every_gap(operation: &'static str, gaps: usize) {
    for next in [Next::GoOn, Next::Die] {
        for gap in 1..=gaps {
            let what = format!("{operation}, gap {gap}, {next:?}");
            let meeting = std::cell::RefCell::new(Meeting::new());
            let reached = std::cell::Cell::new(false);
            let url = meeting.borrow().bench.server.url();
            let mut peer = Peer::new(&url, "T");
            let held = match operation {
                "append" | "fetch" => Vec::new(),
                _ => peer.fetch("s", "g", &Fetch::new("rheo", 3)).unwrap(),
            };
            peer.once_in_gap(operation, gap, || {
                reached.set(true);
                meeting.borrow_mut().act();
                next
            });
            let end = operate(&mut peer, operation, &held);
            assert!(reached.get(), "{what} was never reached");
            let mut theirs = end.unwrap_or_default();
            // What it settled in the round trip before it died.
            if peer.trips() >= 3 && matches!(operation, "ack" | "reject") {
                theirs.push(held[0].event.sequence);
            }
            // It goes on with what else it holds, or it is gone.
            if next == Next::GoOn {
                let acked = held.iter().skip(1).filter(|lease| peer.ack(lease).is_ok());
                theirs.extend(acked.map(|lease| lease.event.sequence));
            }
            drop(peer);
            meeting.into_inner().end(&theirs, &what);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_append() {
    every_gap("append", 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fetch() {
    every_gap("fetch", 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ack() {
    every_gap("ack", 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_nack() {
    every_gap("nack", 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_reject() {
    every_gap("reject", 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_renew() {
    every_gap("renew", 2);
}
