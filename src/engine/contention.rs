//! Whether the handlers of a pipeline are in each other's way.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many events are settled after a conflict before it is forgotten.
const MEMORY: u32 = 256;

/// Remembers conflicts for a while.
///
/// Verdicts gather while others are written, and all that gather were computed on what the store had
/// before: where events touch the same keys, most of them are in vain. So after a conflict a worker
/// lets its verdict be written before it takes the next event, and no more verdicts than there are
/// workers can be in each other's way.
#[derive(Debug, Default)]
pub(super) struct Contention(AtomicU32);

impl Contention {
    pub(super) fn conflict(&self) {
        self.0.store(MEMORY, Ordering::Relaxed);
    }

    /// An event was settled.
    pub(super) fn settled(&self) {
        let less = |left: u32| left.checked_sub(1);
        // None is left to forget: nothing changes.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn is_high(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
