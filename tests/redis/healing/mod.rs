//! Damage as Rheo and others leave it, built by hand, and healed: nothing acked comes back, nothing
//! un-acked is lost.

mod gaps;
mod groups;
mod load;
mod malformed;
mod missing;
mod pending;
mod settled;

use std::time::{Duration, Instant};

use wasmill::backend::RepairKind::{
    self, Fence, Frontier, Group, Hole, IndexRow, Missing, SettledRow, Undelivered,
};
use wasmill::backend::{Backend as _, ClaimDeath, Repair, Settled};
use wasmill::event::Leased;

use crate::kit::{Bench, LONG};

/// More steps than anything here takes.
const STEPS_MAX: usize = 1000;
/// How long what must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The id of an entry that was appended long ago.
fn old(low: u64) -> String {
    format!("1700000000000-{low}")
}

/// A repair of so many things, about the sequences from first to last.
fn repair(kind: RepairKind, first: u64, last: u64, count: u64) -> Repair {
    Repair { kind, sequences: Some((first, last)), count }
}

impl Bench {
    /// What one call of the healing mends in partition 0. A second one right after finds nothing.
    async fn heal(&self) -> Vec<Repair> {
        let repairs = self.backend.heal(&self.group, 0).await.unwrap();
        assert_eq!(self.backend.heal(&self.group, 0).await.unwrap(), [], "after {repairs:?}");
        repairs
    }

    /// Heals partition 0 until nothing is found: how many things of each kind were mended.
    async fn heal_fully(&self) -> Vec<(RepairKind, u64)> {
        let mut mended: Vec<(RepairKind, u64)> = Vec::new();
        for _ in 0..STEPS_MAX {
            let repairs = self.backend.heal(&self.group, 0).await.unwrap();
            if repairs.is_empty() {
                mended.sort_unstable();
                return mended;
            }
            for repair in repairs {
                match mended.iter_mut().find(|known| known.0 == repair.kind) {
                    Some(known) => known.1 += repair.count,
                    None => mended.push((repair.kind, repair.count)),
                }
            }
        }
        panic!("repairs without end: {mended:?}");
    }

    /// Claims and acks all there is, while healing, until the frontier is at the end: what came, and
    /// what died.
    async fn drain(&self) -> (Vec<Leased>, Vec<ClaimDeath>) {
        let (mut came, mut died) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let claimed = self.try_claim("last", 256, LONG, true).await.unwrap();
            let quiet = claimed.leased.is_empty() && claimed.dead_lettered.is_empty();
            let settled = self.ack(&claimed.leased).await;
            assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
            came.extend(claimed.leased);
            died.extend(claimed.dead_lettered);
            if quiet && self.lag().await == 0 {
                return (came, died);
            }
            assert!(Instant::now() < deadline, "the frontier does not come to the end");
            self.heal_fully().await;
        }
    }

    /// The sequences that come when all is claimed, in order.
    async fn drained(&self) -> Vec<u64> {
        let (came, died) = self.drain().await;
        assert_eq!(died, []);
        let mut sequences = crate::kit::sequences(&came);
        sequences.sort_unstable();
        sequences
    }

    async fn frontier(&self) -> u64 {
        self.backend.group_info(&self.group).await.unwrap().partitions[0].frontier
    }

    async fn missing(&self) -> u64 {
        self.backend.group_info(&self.group).await.unwrap().partitions[0].missing
    }

    /// Appends with ids of long ago, the first one with this low part.
    fn append_old(&self, first: u64, count: u64) -> Vec<String> {
        (first..first + count).map(|low| self.append_like_rheo(0, &old(low))).collect()
    }

    /// Reads new entries as Rheo's fetch does, and leases them.
    fn fetch(&self, consumer: &str, count: usize, expires_at_ms: u64) -> Vec<String> {
        let ids = self.read_only(consumer, count);
        for id in &ids {
            self.fence(id, 0, 1, expires_at_ms);
        }
        ids
    }

    /// Reads new entries, and dies before it leases them.
    fn read_only(&self, consumer: &str, count: usize) -> Vec<String> {
        type Streams = Vec<(String, Vec<(String, Vec<String>)>)>;
        let read = format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS rheo:T:s:s:0 >");
        let streams: Option<Streams> = self.raw(&read);
        streams.into_iter().flatten().flat_map(|(_, entries)| entries).map(|(id, _)| id).collect()
    }

    fn fence(&self, id: &str, partition: u32, attempt: u32, expires_at_ms: u64) {
        let _: i64 = self.raw(&format!(
            "HSET rheo:T:fence:s:g:{id} lease_id rheo attempt {attempt} expires_at_ms {expires_at_ms} \
             event_id e partition {partition} sequence 1 consumer_id rheo"
        ));
    }

    /// Acks as Rheo does, but for the last steps, which it did not come to or which were undone.
    fn ack_half(&self, ids: &[String]) {
        for id in ids {
            let acked: i64 = self.raw(&format!("XACK rheo:T:s:s:0 g {id}"));
            assert_eq!(acked, 1);
            let _: i64 = self.raw(&format!("DEL rheo:T:fence:s:g:{id}"));
        }
    }

    fn set_frontier(&self, frontier: u64) {
        let _: i64 = self.raw(&format!("HSET rheo:T:gmeta:s:g frontier_p0 {frontier}"));
    }

    fn server_ms(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.raw("TIME");
        seconds * 1000 + micros / 1000
    }
}
