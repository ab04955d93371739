//! Warm instances of one plugin: the one used last is taken first, so that those not needed any
//! more grow old and are dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::Id;
use wasmtime::Store;

use super::bindings::v0_1::Handler;
use super::meter::Meter;
use super::state::State;

/// Unused instances that are kept; as a rule there are no more than calls at once.
const WARM_COUNT_MAX: usize = 1024;

/// One instance of a plugin, used by one call at a time.
pub(super) struct Instance {
    pub(super) store: Store<State>,
    pub(super) handler: Handler,
    /// The store's own.
    pub(super) meter: Meter,
    /// Where it was called before, if it was. What its guest still holds (a request, a timer) lives
    /// there, and dies with it.
    pub(super) home: Option<Id>,
    /// Calls that it has answered.
    pub(super) calls: u32,
}

/// Instances that wait for a call.
pub(super) struct Pool {
    idle: Mutex<VecDeque<Idle>>,
    reuse_count_max: u32,
    /// How often [`Pool::reap`] has looked.
    looks: AtomicU64,
}

struct Idle {
    instance: Instance,
    /// After how many looks it was put here: cheaper than a clock, and precise enough.
    since: u64,
}

impl Pool {
    pub(super) fn new(reuse_count_max: u32) -> Self {
        Self { idle: Mutex::default(), reuse_count_max, looks: AtomicU64::new(0) }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instance that was used last on this runtime, if one waits.
    pub(super) fn take(&self, home: Id) -> Option<Instance> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|idle| idle.instance.home.is_none_or(|used| used == home))?;
        idle.remove(at).map(|idle| idle.instance)
    }

    /// Drops those that have waited longest, until no more than `count` wait.
    pub(super) fn shrink(&self, count: usize) {
        let mut idle = self.idle();
        let surplus = idle.len().saturating_sub(count);
        let surplus: Vec<_> = idle.drain(..surplus).collect();
        // Giving memory back takes a while: not under the lock.
        drop(idle);
        drop(surplus);
    }

    /// Keeps an instance that answered, unless it has served its time. An instance whose call
    /// did not end with an answer must not come back: it is dropped where its call ended.
    pub(super) fn put(&self, instance: Instance) {
        if instance.calls < self.reuse_count_max {
            let mut idle = self.idle();
            if idle.len() < WARM_COUNT_MAX {
                idle.push_back(Idle { instance, since: self.looks.load(Ordering::Relaxed) });
            }
        }
    }

    /// Drops what this function has seen waiting `looks` times before.
    pub(super) fn reap(&self, looks: u64) {
        let looked = self.looks.fetch_add(1, Ordering::Relaxed);
        let mut idle = self.idle();
        let old = idle.iter().take_while(|idle| looked.saturating_sub(idle.since) >= looks).count();
        let old: Vec<_> = idle.drain(..old).collect();
        // Giving memory back takes a while: not under the lock.
        drop(idle);
        drop(old);
    }

    /// How many instances wait.
    pub(super) fn len(&self) -> usize {
        self.idle().len()
    }
}
