//! Pauses a pipeline whose plugin faults too often, so that a bad build does not spend the attempts
//! of every event.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::Notify;

use super::conditions::{Condition, Conditions, Pause};
use super::handler::{Handler, Slot};
use crate::outcome::{Fault, OnFault};
use crate::telemetry;

/// One pipeline's brake. It counts, and says whether attempts may start; the workers and the
/// dispatcher keep to it.
#[derive(Debug)]
pub(super) struct Brake {
    pipeline: Arc<str>,
    /// Faults that are too many, and the attempts among which they count.
    limit: Option<(usize, usize)>,
    engaged: AtomicBool,
    recent: Mutex<Recent>,
    resumed: Notify,
    conditions: Arc<Conditions>,
}

#[derive(Debug, Default)]
struct Recent {
    /// The last attempts, whether each ended in a fault.
    attempts: VecDeque<bool>,
    /// The build, by its number in the slot, for which the pipeline pauses, or paused until another one came: what still runs of
    /// it says nothing about the one that follows.
    blamed: Option<u64>,
}

impl Brake {
    pub(super) fn new(pipeline: &Arc<str>, on_fault: OnFault, conditions: Arc<Conditions>) -> Self {
        let limit = match on_fault {
            OnFault::Pause { after, of } => Some((after.max(1) as usize, of.max(after).max(1) as usize)),
            OnFault::Retry | OnFault::DeadLetter => None,
        };
        let (engaged, recent, resumed) = (AtomicBool::new(false), Mutex::default(), Notify::new());
        Self { pipeline: Arc::clone(pipeline), limit, engaged, recent, resumed, conditions }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the pipeline pauses: no attempt may start.
    pub(super) fn engaged(&self) -> bool {
        self.engaged.load(Ordering::Acquire)
    }

    /// An attempt has ended.
    pub(super) fn attempted(&self, fault: Option<&Fault>, handler: &dyn Handler, number: u64) {
        let Some((after, of)) = self.limit else { return };
        let mut recent = self.recent();
        // Attempts that ran when it paused end like any other, and change nothing.
        if self.engaged() || recent.blamed == Some(number) {
            return;
        }
        recent.attempts.push_back(fault.is_some());
        if recent.attempts.len() > of {
            recent.attempts.pop_front();
        }
        let faults = recent.attempts.iter().filter(|faulted| **faulted).count();
        let Some(fault) = fault.filter(|_| faults >= after) else { return };
        let pause = Pause {
            since: SystemTime::now(),
            faults,
            attempts: recent.attempts.len(),
            plugin: handler.name().to_owned(),
            digest: handler.digest(),
            fault: fault.message.clone(),
        };
        recent.blamed = Some(number);
        recent.attempts.clear();
        self.engaged.store(true, Ordering::Release);
        let counts = (faults, pause.attempts);
        telemetry::paused(&self.pipeline, &pause.plugin, &pause.digest, counts, &pause.fault);
        self.conditions.set(&self.pipeline, Condition::Paused(pause));
    }

    /// Somebody wants the pipeline to go on, with the build that it has.
    pub(super) fn release(&self) {
        self.recent().blamed = None;
        self.let_go("it was told to");
    }

    fn let_go(&self, why: &str) {
        if self.engaged.swap(false, Ordering::AcqRel) {
            telemetry::resumed(&self.pipeline, why);
            self.conditions.set(&self.pipeline, Condition::Running);
        }
        self.resumed.notify_waiters();
    }

    /// Waits until the pipeline may go on: somebody says so, or another build is in its slot.
    pub(super) async fn released(&self, slot: &Slot) {
        loop {
            let resumed = self.resumed.notified();
            let blamed = self.recent().blamed;
            let Some(blamed) = blamed.filter(|_| self.engaged()) else { return };
            tokio::select! {
                () = resumed => {}
                () = slot.other_than(blamed) => self.let_go("its plugin was replaced"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Delivery;
    use crate::event::Event;
    use crate::outcome::{FaultKind, Outcome};

    fn brake(on_fault: OnFault) -> Brake {
        Brake::new(&"p".into(), on_fault, Arc::default())
    }

    struct Broken;

    #[async_trait::async_trait]
    impl Handler for Broken {
        fn name(&self) -> &str {
            "x"
        }

        fn digest(&self) -> Arc<str> {
            "0123".into()
        }

        async fn handle(&self, _: &Event, _: &Delivery<'_>) -> Result<Outcome, Fault> {
            Err(fault())
        }
    }

    fn fault() -> Fault {
        Fault { kind: FaultKind::Trap, message: "it broke".to_owned() }
    }

    fn attempts(brake: &Brake, number: u64, faulted: &[bool]) {
        for faulted in faulted {
            brake.attempted(faulted.then(fault).as_ref(), &Broken, number);
        }
    }

    #[test]
    fn it_engages_at_the_fault_that_is_one_too_many() {
        let brake = brake(OnFault::Pause { after: 2, of: 3 });
        attempts(&brake, 1, &[true, false, false, true, false, false, true]);
        assert!(!brake.engaged(), "never two among three");
        attempts(&brake, 1, &[true]);
        assert!(brake.engaged());
        let condition = brake.conditions.snapshot().remove("p");
        let Some(Condition::Paused(pause)) = condition else { panic!("{condition:?}") };
        assert_eq!((pause.faults, pause.attempts, pause.fault.as_str()), (2, 3, "it broke"));
        brake.release();
        assert!(!brake.engaged());
        assert_eq!(brake.conditions.snapshot().get("p"), Some(&Condition::Running));
        attempts(&brake, 1, &[true]);
        assert!(!brake.engaged(), "it counts from zero");
        attempts(&brake, 1, &[true]);
        assert!(brake.engaged(), "the same build can be blamed again");
    }

    #[test]
    fn what_still_runs_of_a_blamed_build_does_not_count_against_the_next() {
        let brake = brake(OnFault::Pause { after: 2, of: 2 });
        attempts(&brake, 1, &[true, true]);
        assert!(brake.engaged());
        brake.let_go("a new build");
        attempts(&brake, 1, &[true, true, true]);
        assert!(!brake.engaged());
        attempts(&brake, 2, &[true, true]);
        assert!(brake.engaged());
    }

    #[test]
    fn without_the_policy_it_never_engages() {
        for on_fault in [OnFault::Retry, OnFault::DeadLetter] {
            let brake = brake(on_fault);
            attempts(&brake, 1, &[true; 100]);
            assert!(!brake.engaged());
        }
    }
}
