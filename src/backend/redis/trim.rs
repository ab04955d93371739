//! Retention: old entries go, with all that belongs to them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::connection::Effect;
use super::groups::code;
use super::reply::{array, count, number_or_zero, text_or_empty};
use super::scripts::{Code, Script};
use super::{Redis, millis};
use crate::backend::{Error, Held, Result, Trim, Trimmed};
use crate::event::Name;

/// How long the names of a stream's groups are good for: finding them is a walk over all keys, and a
/// trim has many steps. A group that is created meanwhile is found by the script.
const NAMES_FOR: Duration = Duration::from_secs(2);

/// The groups of streams that are being trimmed.
#[derive(Default)]
pub(super) struct KnownGroups(Mutex<HashMap<Name, (Instant, Vec<Name>)>>);

impl KnownGroups {
    fn get(&self, stream: &Name) -> Option<Vec<Name>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, groups) = known.get(stream)?;
        (since.elapsed() < NAMES_FOR).then(|| groups.clone())
    }

    fn put(&self, stream: &Name, groups: &[Name]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (since, _)| since.elapsed() < NAMES_FOR);
        known.insert(stream.clone(), (Instant::now(), groups.to_vec()));
    }
}

impl Redis {
    pub(super) async fn do_trim(&self, stream: &Name, trim: Trim) -> Result<Trimmed> {
        self.check_partition(stream, trim.partition).await?;
        let groups = match self.trims.get(stream) {
            Some(groups) => groups,
            None => {
                let groups = self.list_groups(stream).await?;
                self.trims.put(stream, &groups);
                groups
            }
        };
        let p = trim.partition;
        let mut call = Script::Trim.call(&[
            self.keys.meta(stream),
            self.keys.entries(stream, p),
            self.keys.index(stream, p),
            self.keys.trimmed(stream),
        ]);
        let or_empty = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
        call.arg(p).arg(self.keys.prefix()).arg(stream.as_str());
        call.arg(or_empty(trim.max_length)).arg(or_empty(trim.max_age.map(millis))).arg(or_empty(trim.until));
        call.arg(u8::from(trim.force));
        for group in &groups {
            call.arg(group.as_str());
        }
        let answer = self.connection.script(call, Effect::Write).await;
        let keys = || {
            vec![
                (self.keys.meta(stream), "hash"),
                (self.keys.entries(stream, p), "stream"),
                (self.keys.index(stream, p), "zset"),
                (self.keys.trimmed(stream), "hash"),
            ]
        };
        let mut answer = array(self.blame(answer, keys).await?)?.into_iter();
        let mut next = || answer.next().unwrap_or(redis::Value::Nil);
        if code(next())? != Code::Ok {
            self.forget(stream);
            return Err(Error::StreamNotFound(stream.clone()));
        }
        let (removed, more) = (count(next())?, number_or_zero(next())? == 1);
        let (holder, sequence) = (text_or_empty(next())?, count(next())?);
        let held = Name::existing(&holder).ok().map(|group| Held { group, sequence });
        Ok(Trimmed { removed, more, held })
    }
}
