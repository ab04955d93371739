//! Looks at the store all the time, past all that is broken on the way to it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use wasmill::backend::{GroupInfo, PendingEntry, PendingState, Shared};
use wasmill::target::Target;

use super::appender::Common;
use super::clock;
use super::ground::{group, open};
use crate::history::{Micros, What};

const PAUSE: Duration = Duration::from_millis(30);
/// Entries of a partition that one look takes in.
const PENDING_MAX: usize = 500;
/// A lease is noted again once it lasts so much longer, in microseconds.
const LONGER: Micros = 200_000;

pub(super) struct Observer {
    common: Common,
    target: Target,
    /// What was noted of the part under way.
    part: u32,
    frontiers: BTreeMap<u32, u64>,
    leases: HashMap<(String, u32, String), Micros>,
}

impl Observer {
    pub(super) fn new(common: Common, target: Target) -> Self {
        Self { common, target, part: 0, frontiers: BTreeMap::new(), leases: HashMap::new() }
    }

    /// Looks until the run is over.
    pub(super) fn run(mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut store: Option<(u32, Shared)> = None;
        while !self.common.is_over() {
            std::thread::sleep(PAUSE);
            let part_lock = std::sync::Arc::clone(&self.common.part);
            let part = part_lock.blocking_read();
            match &store {
                // What was opened in another part may be a file that was deleted. A store that is away is
                // no news.
                Some((opened, store)) if *opened == *part => drop(runtime.block_on(self.look(store, *part))),
                _ => store = runtime.block_on(open(&self.target)).ok().map(|store| (*part, store)),
            }
        }
    }

    async fn look(&mut self, store: &Shared, part: u32) -> wasmill::backend::Result<()> {
        if std::mem::replace(&mut self.part, part) != part {
            self.frontiers.clear();
            self.leases.clear();
        }
        let info = store.group_info(&group()).await?;
        self.common.lag.store(info.lag(|_| true), Ordering::Relaxed);
        self.frontiers(&info);
        for partition in 0..info.partitions.len() {
            let asked = clock::now();
            let partition = u32::try_from(partition).unwrap();
            let pending = store.pending(&group(), partition, None, PENDING_MAX).await?;
            self.leases(asked, pending);
        }
        Ok(())
    }

    fn frontiers(&mut self, info: &GroupInfo) {
        let at = clock::now();
        for p in &info.partitions {
            let (partition, sequence) = (p.partition, p.frontier);
            if self.frontiers.insert(partition, sequence) != Some(sequence) {
                self.common.recorder.record(self.part, at, What::Frontier { partition, sequence });
            }
        }
    }

    fn leases(&mut self, asked: Micros, pending: Vec<PendingEntry>) {
        let at = clock::now();
        for entry in pending {
            let PendingState::Leased { consumer, expires_in_ms } = entry.state else { continue };
            // Cut milliseconds: it may end up to one earlier than that.
            let Ok(ms @ 1..) = u64::try_from(expires_in_ms - 1) else { continue };
            let (Some(id), attempt) = (entry.event_id, entry.attempt) else { continue };
            let until = asked + ms * 1000;
            let key = (id.clone(), attempt, consumer.clone());
            let noted = self.leases.get(&key).copied().unwrap_or(0);
            if attempt > 0 && until > noted + LONGER {
                self.leases.insert(key, until);
                let what = What::Leased { run: consumer, id: id.clone(), attempt, asked, until };
                self.common.recorder.record_of(&id, at, what);
            }
        }
    }
}
