//! Whether the handlers of a pipeline are in each other's way, and whose turn it is then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// How many events are settled after a conflict before it is forgotten.
const MEMORY: u32 = 256;

/// How often an event loses before it runs alone.
const LOSSES_MAX: u32 = 4;

/// Remembers conflicts for a while, and gives out turns meanwhile.
///
/// Verdicts gather while others are written, and all that gather were computed on what the store had
/// before: where events touch the same keys, most of them are in vain. So after a conflict a worker
/// lets its verdict be written before it takes the next event, and no more verdicts than there are
/// workers can be in each other's way.
///
/// That alone starves: the winner is told before the loser's verdict is looked at, so it has read the
/// next state by the time that the loser begins again, and wins again. So whoever has lost
/// [`LOSSES_MAX`] times runs while no other handler of the pipeline does; in its way are then only
/// other engines.
#[derive(Debug, Default)]
pub(super) struct Contention {
    left: AtomicU32,
    turns: Arc<RwLock<()>>,
}

/// Leave to run, until dropped: when the verdict is written, or is known to have lost.
#[derive(Debug)]
pub(super) enum Turn {
    Shared { _turn: OwnedRwLockReadGuard<()> },
    Alone { _turn: OwnedRwLockWriteGuard<()> },
}

impl Contention {
    pub(super) fn conflict(&self) {
        self.left.store(MEMORY, Ordering::Relaxed);
    }

    /// An event was settled.
    pub(super) fn settled(&self) {
        let less = |left: u32| left.checked_sub(1);
        // None is left to forget: nothing changes.
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn is_high(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Waits until an event that has lost so often may run. Those who wait are served in the order
    /// in which they came. `None` while no one is in another's way.
    pub(super) async fn turn(&self, losses: u32) -> Option<Turn> {
        if losses >= LOSSES_MAX {
            Some(Turn::Alone { _turn: Arc::clone(&self.turns).write_owned().await })
        } else if self.is_high() {
            Some(Turn::Shared { _turn: Arc::clone(&self.turns).read_owned().await })
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is not ready yet.
    async fn waits(turn: &mut (impl Future + Unpin)) -> bool {
        tokio::select! {
            biased;
            _ = turn => false,
            () = std::future::ready(()) => true,
        }
    }

    #[test]
    fn a_conflict_is_remembered_for_a_while() {
        let contention = Contention::default();
        contention.settled();
        assert!(!contention.is_high());
        contention.conflict();
        (1..MEMORY).for_each(|_| contention.settled());
        assert!(contention.is_high());
        contention.settled();
        assert!(!contention.is_high());
    }

    #[tokio::test]
    async fn who_has_lost_often_runs_alone() {
        let contention = Contention::default();
        assert!(contention.turn(0).await.is_none(), "no one is in another's way");
        contention.conflict();
        let (first, second) = (contention.turn(0).await, contention.turn(LOSSES_MAX - 1).await);
        assert!(matches!((&first, &second), (Some(Turn::Shared { .. }), Some(Turn::Shared { .. }))));

        let mut alone = Box::pin(contention.turn(LOSSES_MAX));
        assert!(waits(&mut alone).await, "two others run");
        drop(first);
        let mut later = Box::pin(contention.turn(0));
        assert!(waits(&mut later).await, "who came later does not overtake");
        assert!(waits(&mut alone).await, "one other runs");
        drop(second);
        let turn = alone.await;
        assert!(matches!(turn, Some(Turn::Alone { .. })));
        assert!(waits(&mut later).await, "one runs alone");
        drop(turn);
        assert!(matches!(later.await, Some(Turn::Shared { .. })));
    }
}
