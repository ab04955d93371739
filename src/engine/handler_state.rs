//! A handler's state, read from the store.

use async_trait::async_trait;

use crate::backend::Shared;
use crate::plugin::StateSource;
use crate::state::{Bucket, StateKeys, StateValue};

/// The store as a handler sees it.
pub struct StoreState(pub Shared);

#[async_trait]
impl StateSource for StoreState {
    async fn get(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>, String> {
        self.0.state(bucket, keys).await.map_err(|error| error.to_string())
    }

    async fn keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys, String> {
        self.0.state_keys(bucket, cursor).await.map_err(|error| error.to_string())
    }
}
