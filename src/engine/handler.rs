//! What the engine calls for each event.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::prepare::Output;
use crate::event::Event;
use crate::outcome::{Fault, Outcome};
pub use crate::plugin::Delivery;
use crate::plugin::{Plugin, Usage};

/// Something that handles events: a plugin, or a stand-in in tests of the loop.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// The handler's name, whatever its build.
    fn name(&self) -> &str;

    /// Names the build that answers.
    fn digest(&self) -> Arc<str>;

    /// Handles one event. The future may be dropped at any time, when its lease is lost or a
    /// drain ran out of time.
    async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault>;

    /// The longest time that a call takes, as far as it is bounded.
    fn call_max(&self) -> Duration {
        Duration::ZERO
    }

    /// What it uses at the moment, where it is a plugin.
    fn usage(&self) -> Option<Usage> {
        None
    }
}

#[async_trait]
impl Handler for Plugin {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn digest(&self) -> Arc<str> {
        Arc::clone(Self::digest(self))
    }

    async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault> {
        Self::handle(self, event, delivery).await
    }

    fn call_max(&self) -> Duration {
        self.limits().timeout
    }

    fn usage(&self) -> Option<Usage> {
        Some(Self::usage(self))
    }
}

/// A plugin's place in the pipelines that use it. A new attempt takes the build that stands there;
/// a running one keeps the build it began with, which goes once the last of them has ended.
pub struct Slot {
    /// With its number: how many stood there before.
    current: RwLock<(Arc<dyn Handler>, u64)>,
    replaced: Notify,
    /// The streams that it may append to: made again where the store loses them.
    outputs: RwLock<Arc<[Output]>>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (handler, number) = self.numbered();
        f.debug_struct("Slot").field("name", &handler.name()).field("number", &number).finish_non_exhaustive()
    }
}

impl Slot {
    /// A place that holds this build.
    #[must_use]
    pub fn new(handler: Arc<dyn Handler>) -> Arc<Self> {
        Arc::new(Self {
            current: RwLock::new((handler, 0)),
            replaced: Notify::new(),
            outputs: RwLock::new(Arc::new([])),
        })
    }

    /// The build that new attempts use.
    #[must_use]
    pub fn get(&self) -> Arc<dyn Handler> {
        self.numbered().0
    }

    /// The same, and its number: another one for each build, or set of settings, that stood there.
    pub(super) fn numbered(&self) -> (Arc<dyn Handler>, u64) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another build there, and gives back the one that stood there before.
    pub fn replace(&self, handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let number = current.1 + 1;
        let (before, _) = std::mem::replace(&mut *current, (handler, number));
        drop(current);
        self.replaced.notify_waiters();
        before
    }

    pub(super) fn outputs(&self) -> Arc<[Output]> {
        Arc::clone(&self.outputs.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_outputs(&self, outputs: Vec<Output>) {
        *self.outputs.write().unwrap_or_else(PoisonError::into_inner) = outputs.into();
    }

    /// Waits until something else than what has this number stands there.
    pub(super) async fn other_than(&self, number: u64) {
        loop {
            // Registered before the look, so that a change in between is not missed.
            let replaced = self.replaced.notified();
            if self.numbered().1 != number {
                return;
            }
            replaced.await;
        }
    }
}
