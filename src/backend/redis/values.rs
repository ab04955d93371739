//! What handlers keep (to be built).

use super::Redis;
use crate::backend::{Error, Result};
use crate::state::{Bucket, StateKeys, StateValue};

impl Redis {
    pub(super) async fn do_state(&self, _: &Bucket, _: &[String]) -> Result<Vec<Option<StateValue>>> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_state_keys(&self, _: &Bucket, _: Option<u64>) -> Result<StateKeys> {
        Err(Error::Refused("not built yet".to_owned()))
    }
}
