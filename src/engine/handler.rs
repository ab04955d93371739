//! What the engine calls for each event.

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::Event;
use crate::outcome::{Fault, Outcome};
pub use crate::plugin::Delivery;
use crate::plugin::Plugin;

/// Something that handles events: a plugin, or a stand-in in tests of the loop.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Names the build that answers.
    fn digest(&self) -> Arc<str>;

    /// Handles one event. The future may be dropped at any time, when its lease is lost or a
    /// drain ran out of time.
    async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault>;
}

#[async_trait]
impl Handler for Plugin {
    fn digest(&self) -> Arc<str> {
        Arc::clone(Self::digest(self))
    }

    async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault> {
        Self::handle(self, event, delivery).await
    }
}
