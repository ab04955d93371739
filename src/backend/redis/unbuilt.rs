//! To be built: each method moves to the file that carries it out, and this file goes.
#![allow(clippy::unused_async, unused_variables)]

use super::Redis;
use crate::backend::{Error, Repair, Result, Trim, Trimmed};
use crate::event::{GroupKey, Name};

impl Redis {
    pub(super) async fn do_trim(&self, stream: &Name, trim: Trim) -> Result<Trimmed> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_heal(&self, group: &GroupKey, partition: u32) -> Result<Vec<Repair>> {
        Err(Error::Refused("not built yet".to_owned()))
    }
}
