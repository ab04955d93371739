//! To be built: each method moves to the file that carries it out, and this file goes.
#![allow(clippy::unused_async, unused_variables)]

use super::Sqlite;
use crate::backend::{Error, Explanation, Redriven, Repair, Result, Rewind, RewindStep, Trim, Trimmed};
use crate::event::{GroupKey, Name};

impl Sqlite {
    pub(super) async fn do_trim(&self, stream: &Name, trim: Trim) -> Result<Trimmed> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_purge(&self, group: &GroupKey, rows: &[String]) -> Result<u64> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_redrive(&self, group: &GroupKey, rows: &[String]) -> Result<Vec<Redriven>> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_redeliver(
        &self,
        group: &GroupKey,
        events: &[(u32, u64)],
    ) -> Result<Vec<Redriven>> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_begin_rewind(&self, group: &GroupKey, rewind: &Rewind) -> Result<()> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_continue_rewind(&self, group: &GroupKey) -> Result<RewindStep> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_explain(&self, group: &GroupKey, partition: u32) -> Result<Explanation> {
        Err(Error::Refused("not built yet".to_owned()))
    }

    pub(super) async fn do_heal(&self, group: &GroupKey, partition: u32) -> Result<Vec<Repair>> {
        Err(Error::Refused("not built yet".to_owned()))
    }
}
