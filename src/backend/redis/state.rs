//! What this process remembers of a group between calls: hints, which may be wrong without harm.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// One group's hints.
#[derive(Default)]
pub(super) struct GroupState {
    hints: Mutex<Hints>,
    /// Rings when this process has parked something, for those who wait.
    pub(super) parked: Notify,
}

#[derive(Default)]
struct Hints {
    turn: usize,
    /// Where the walk over the group's fences stands.
    fence_cursor: String,
    partitions: HashMap<u32, Partition>,
}

struct Partition {
    /// When the first parked entry's time comes, as far as we know; in the beginning we do not.
    due: Option<Instant>,
    cursors: Cursors,
}

/// Where the three walks of the sweep stand, see `lua/sweep.lua`.
#[derive(Clone)]
pub(super) struct Cursors {
    pub(super) fast: String,
    pub(super) full: String,
    pub(super) records: String,
}

impl Default for Cursors {
    fn default() -> Self {
        Self { fast: "-".to_owned(), full: "-".to_owned(), records: "-".to_owned() }
    }
}

impl Default for Partition {
    fn default() -> Self {
        Self { due: Some(Instant::now()), cursors: Cursors::default() }
    }
}

impl GroupState {
    fn hints(&self) -> MutexGuard<'_, Hints> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of this turn, and the partitions in an order that begins with another one each time.
    pub(super) fn in_turn(&self, partitions: &[u32]) -> (usize, Vec<u32>) {
        let mut hints = self.hints();
        hints.turn = hints.turn.wrapping_add(1);
        let mut turned = partitions.to_vec();
        if !turned.is_empty() {
            turned.rotate_left(hints.turn % partitions.len());
        }
        (hints.turn, turned)
    }

    /// Those of the partitions in which a parked entry may be due by now.
    pub(super) fn due_now(&self, partitions: &[u32]) -> Vec<u32> {
        let mut hints = self.hints();
        // The clock is read after an entry is made, which is due from that moment on.
        let mut is_due =
            |p: &u32| hints.partitions.entry(*p).or_default().due.is_some_and(|due| due <= Instant::now());
        partitions.iter().copied().filter(|p| is_due(p)).collect()
    }

    /// Learns when the first parked entry's time comes, in milliseconds from now; `None`: nothing is
    /// parked.
    pub(super) fn learn_due(&self, partition: u32, in_ms: Option<i64>) {
        let wait = in_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        let due = wait.and_then(|wait| Instant::now().checked_add(wait));
        self.hints().partitions.entry(partition).or_default().due = due;
    }

    /// Learns that something was parked that comes back after this wait.
    pub(super) fn park(&self, partition: u32, wait: Duration) {
        if let Some(due) = Instant::now().checked_add(wait) {
            let mut hints = self.hints();
            let known = &mut hints.partitions.entry(partition).or_default().due;
            *known = Some(known.map_or(due, |known| known.min(due)));
        }
        self.parked.notify_waiters();
    }

    pub(super) fn fence_cursor(&self) -> String {
        let hints = self.hints();
        if hints.fence_cursor.is_empty() { "0".to_owned() } else { hints.fence_cursor.clone() }
    }

    pub(super) fn set_fence_cursor(&self, cursor: String) {
        self.hints().fence_cursor = cursor;
    }

    pub(super) fn cursors(&self, partition: u32) -> Cursors {
        self.hints().partitions.entry(partition).or_default().cursors.clone()
    }

    pub(super) fn set_cursors(&self, partition: u32, cursors: Cursors) {
        self.hints().partitions.entry(partition).or_default().cursors = cursors;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_comes_first_in_turn() {
        let state = GroupState::default();
        let firsts: Vec<u32> = (0..4).map(|_| state.in_turn(&[3, 5, 7]).1[0]).collect();
        assert_eq!(firsts, [5, 7, 3, 5]);
        assert!(state.in_turn(&[]).1.is_empty());
    }

    #[test]
    fn what_is_unknown_may_be_due() {
        let state = GroupState::default();
        assert_eq!(state.due_now(&[0, 1]), [0, 1]);
        state.learn_due(0, None);
        state.learn_due(1, Some(60_000));
        assert!(state.due_now(&[0, 1]).is_empty());
        state.park(1, Duration::ZERO);
        assert_eq!(state.due_now(&[0, 1]), [1]);
    }
}
