//! Each of the numbered faults of Rheo's Redis backend has a test of its name: ours is free of it, and
//! where a peer leaves damage behind, it is mended.
//!
//! Left alone on purpose: a reset keeps the dead letters (15), ids are the producer's and not forced to
//! be unique (17), lists of what Rheo created are found by SCAN (20), and a cluster beyond one hash tag
//! is not promised (21).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wasmill::backend::{Backend as _, NewGroup, RepairKind, Settled, Start};
use wasmill::event::{GroupKey, Leased, Name};

use crate::engines::connect;
use crate::kit::Bench;
use crate::peer::Peer;
use crate::server::RedisServer;

mod groups;
mod log;
mod rewinds;
mod settling;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server with the stream `s` and the group `g`, on which others' appends are given up soon.
pub(crate) async fn bench(partitions: u32, max_attempts: u32) -> Bench {
    let server = RedisServer::start();
    let backend = connect(&server.url()).await;
    let group = GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap());
    backend.create_stream(&group.stream, partitions).await.unwrap();
    let new = NewGroup { max_attempts, start: Start::Beginning };
    backend.create_group(&group, new).await.unwrap();
    let raw = redis::Client::open(server.url()).unwrap();
    Bench { server, backend, group, partitions: (0..partitions).collect(), raw }
}

fn peer<'a>(bench: &Bench) -> Peer<'a> {
    Peer::new(&bench.server.url(), "T")
}

/// Runs what is asynchronous in the middle of a peer's operation.
pub(crate) fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

/// All leases run out, but of what is parked or let go.
pub(crate) fn expire(bench: &Bench) {
    for key in bench.raw::<Vec<String>>("KEYS rheo:T:fence:*") {
        let lease: Option<String> = bench.raw(&format!("HGET {key} lease_id"));
        if !matches!(lease.as_deref(), Some("parked" | "")) {
            let _: i64 = bench.raw(&format!("HSET {key} expires_at_ms 1"));
        }
    }
}

/// Claims and acks until nothing more comes. How often each event came, by partition and sequence.
async fn drain(bench: &Bench, consumer: &str) -> BTreeMap<(u32, u64), u32> {
    let mut came = BTreeMap::new();
    let mut empty = 0;
    while empty < 8 {
        let leased = bench.try_claim(consumer, 200, crate::kit::LONG, true).await.unwrap().leased;
        empty = if leased.is_empty() { empty + 1 } else { 0 };
        for part in leased.chunks(200) {
            for (settled, leased) in bench.ack(part).await.into_iter().zip(part) {
                assert_eq!(settled, Settled::Done);
                *came.entry((leased.event.partition, leased.event.sequence)).or_default() += 1;
            }
        }
    }
    came
}

/// Heals until the group has no lag, and gives the kinds of repairs that it took.
async fn heal(bench: &Bench) -> Vec<RepairKind> {
    let deadline = Instant::now() + PATIENCE;
    let mut kinds = Vec::new();
    loop {
        for &p in &bench.partitions {
            let repairs = bench.backend.heal(&bench.group, p).await.unwrap();
            kinds.extend(repairs.iter().map(|repair| repair.kind));
        }
        let info = bench.backend.group_info(&bench.group).await.unwrap();
        if info.lag(|_| true) == 0 {
            return kinds;
        }
        assert!(Instant::now() < deadline, "{info:?} after {kinds:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn places(leased: &[Leased]) -> Vec<(u32, u64)> {
    leased.iter().map(|leased| (leased.event.partition, leased.event.sequence)).collect()
}

/// Every key with its content.
fn content(bench: &Bench) -> BTreeMap<String, redis::Value> {
    let keys: Vec<String> = bench.raw("KEYS *");
    keys.into_iter().map(|key| (key.clone(), bench.raw(&format!("DUMP {key}")))).collect()
}
