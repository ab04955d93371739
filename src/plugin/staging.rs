//! What a call wants to change: staged here, and handed over with its answer. State is read through,
//! so that a call sees its own writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::limits::EffectLimits;
use crate::event::{JsonObject, NewEvent};
use crate::grants::Grants;
use crate::outcome::{Effects, StagedEvent};
use crate::state::{Bucket, KEY_BYTES_MAX, StateKeys, StateRead, StateValue, StateWrite, VALUE_BYTES_MAX};

/// Keys that are read at a time: each can have a megabyte, and the limit is looked at in between.
const READ_KEYS_MAX: usize = 32;

/// Where a call's state is read from.
#[async_trait]
pub trait StateSource: Send + Sync + 'static {
    /// The values of some keys, with their versions, in the order asked for.
    ///
    /// # Errors
    /// Why the store did not answer, in words for the guest.
    async fn get(&self, bucket: &Bucket, keys: &[String]) -> Result<Vec<Option<StateValue>>, String>;

    /// A page of a bucket's keys.
    ///
    /// # Errors
    /// As [`StateSource::get`].
    async fn keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys, String>;
}

/// Why something was not staged, or not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// A grant is missing; the text names it.
    Denied(String),
    /// It cannot be stored, whoever asks.
    Invalid(String),
    /// Above a limit; the text names it.
    Limit(String),
    /// The store did not answer.
    Store(String),
}

/// One call's reads and writes.
pub(super) struct Staging {
    grants: Arc<Grants>,
    limits: EffectLimits,
    pipeline: String,
    source: Option<Arc<dyn StateSource>>,
    appends: Vec<StagedEvent>,
    append_bytes: usize,
    cells: BTreeMap<(Bucket, String), Cell>,
    state_bytes: usize,
}

/// What a call knows of a key.
#[derive(Default)]
struct Cell {
    /// The version that the store had, where it was asked.
    read: Option<u64>,
    /// Whether this call has written it.
    written: bool,
    value: Option<Vec<u8>>,
}

impl Staging {
    /// Of an instance that handles nothing yet: its start code reads and stages nothing.
    pub(super) fn new(grants: Arc<Grants>, limits: EffectLimits) -> Self {
        Self {
            grants,
            limits,
            pipeline: String::new(),
            source: None,
            appends: Vec::new(),
            append_bytes: 0,
            cells: BTreeMap::new(),
            state_bytes: 0,
        }
    }

    /// Begins a call. Whatever was staged before and not taken is dropped.
    pub(super) fn begin(&mut self, pipeline: &str, source: Option<Arc<dyn StateSource>>) {
        pipeline.clone_into(&mut self.pipeline);
        self.source = source;
        (self.append_bytes, self.state_bytes) = (0, 0);
        self.appends.clear();
        self.cells.clear();
    }

    /// What the call that has just ended wants to change.
    pub(super) fn take(&mut self) -> Effects {
        let mut effects = Effects { appends: std::mem::take(&mut self.appends), ..Effects::default() };
        for ((bucket, key), cell) in std::mem::take(&mut self.cells) {
            if let Some(version) = cell.read {
                effects.reads.push(StateRead { bucket: bucket.clone(), key: key.clone(), version });
            }
            if cell.written {
                effects.writes.push(StateWrite { bucket, key, value: cell.value });
            }
        }
        self.source = None;
        effects
    }

    /// Stages an event.
    pub(super) fn append(&mut self, stream: &str, event: NewEvent) -> Result<(), Refused> {
        let Some(stream) = self.grants.streams.iter().find(|granted| granted.as_str() == stream) else {
            return Err(Refused::Denied(format!(
                "appending to the stream `{stream}` is not granted to this plugin: add it to `allow_streams`"
            )));
        };
        event.check(self.limits.event_bytes_max).map_err(|error| Refused::Invalid(error.to_string()))?;
        let bytes = event.bytes();
        if self.appends.len() >= self.limits.events_max {
            let max = self.limits.events_max;
            return Err(Refused::Limit(format!(
                "a call appends at most {max} events (`max_outbox_events` raises it)"
            )));
        }
        if self.append_bytes.saturating_add(bytes) > self.limits.event_bytes_sum_max {
            let max = self.limits.event_bytes_sum_max;
            return Err(Refused::Limit(format!(
                "the events that a call appends have at most {max} bytes together (`max_outbox` raises it)"
            )));
        }
        self.append_bytes += bytes;
        self.appends.push(StagedEvent { stream: stream.clone(), event });
        Ok(())
    }

    /// The bucket that the guest means.
    pub(super) fn bucket(&self, identifier: &str) -> Result<Bucket, Refused> {
        self.grants.bucket(&self.pipeline, identifier).map_err(|error| Refused::Invalid(error.to_string()))
    }

    /// The values of keys, the call's own writes before what the store has.
    pub(super) async fn get(
        &mut self,
        bucket: &Bucket,
        keys: Vec<String>,
    ) -> Result<Vec<Option<Vec<u8>>>, Refused> {
        let mut unknown = Vec::new();
        for key in &keys {
            check_key(key)?;
            if !self.cells.contains_key(&(bucket.clone(), key.clone())) && !unknown.contains(key) {
                unknown.push(key.clone());
            }
        }
        if !unknown.is_empty() {
            self.fetch(bucket, unknown).await?;
        }
        let value = |key: String| self.cells.get(&(bucket.clone(), key)).and_then(|cell| cell.value.clone());
        Ok(keys.into_iter().map(value).collect())
    }

    async fn fetch(&mut self, bucket: &Bucket, keys: Vec<String>) -> Result<(), Refused> {
        let source = self.source.clone();
        let source =
            source.ok_or_else(|| Refused::Denied("there is no state outside of a call".to_owned()))?;
        self.room_for(keys.len())?;
        for keys in keys.chunks(READ_KEYS_MAX) {
            let values = source.get(bucket, keys).await.map_err(Refused::Store)?;
            for (key, value) in keys.iter().zip(values) {
                let (version, value) = value.map_or((0, None), |value| (value.version, Some(value.bytes)));
                self.grow(key.len() + value.as_ref().map_or(0, Vec::len))?;
                let cell = Cell { read: Some(version), written: false, value };
                self.cells.insert((bucket.clone(), key.clone()), cell);
            }
        }
        Ok(())
    }

    /// Stages a write.
    pub(super) fn set(
        &mut self,
        bucket: &Bucket,
        key: String,
        value: Option<Vec<u8>>,
    ) -> Result<(), Refused> {
        check_key(&key)?;
        let bytes = value.as_ref().map_or(0, Vec::len);
        if bytes > VALUE_BYTES_MAX {
            return Err(Refused::Invalid(format!(
                "a value has at most {VALUE_BYTES_MAX} bytes, not {bytes}"
            )));
        }
        let place = (bucket.clone(), key);
        if !self.cells.contains_key(&place) {
            self.room_for(1)?;
        }
        self.grow(place.1.len() + bytes)?;
        let cell = self.cells.entry(place).or_default();
        (cell.written, cell.value) = (true, value);
        Ok(())
    }

    /// Adds to a number, and gives the sum.
    pub(super) async fn increment(
        &mut self,
        bucket: &Bucket,
        key: String,
        delta: u64,
    ) -> Result<u64, Refused> {
        let value = self.get(bucket, vec![key.clone()]).await?.pop().flatten();
        let number = match &value {
            None => 0,
            Some(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
                .ok_or_else(|| Refused::Invalid(format!("the value of `{key}` is no number")))?,
        };
        let sum = number
            .checked_add(delta)
            .ok_or_else(|| Refused::Invalid(format!("`{key}` would exceed 2^64")))?;
        self.set(bucket, key, Some(sum.to_string().into_bytes()))?;
        Ok(sum)
    }

    /// A page of a bucket's keys, as the store has them.
    pub(super) async fn keys(&self, bucket: &Bucket, cursor: Option<u64>) -> Result<StateKeys, Refused> {
        let source = self.source.clone();
        let source =
            source.ok_or_else(|| Refused::Denied("there is no state outside of a call".to_owned()))?;
        source.keys(bucket, cursor).await.map_err(Refused::Store)
    }

    fn room_for(&self, keys: usize) -> Result<(), Refused> {
        let max = self.limits.state_keys_max;
        if self.cells.len().saturating_add(keys) > max {
            return Err(Refused::Limit(format!(
                "a call touches at most {max} keys of its state (`max_state_keys` raises it)"
            )));
        }
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Refused> {
        let max = self.limits.state_bytes_max;
        let grown = self.state_bytes.saturating_add(bytes);
        if grown > max {
            return Err(Refused::Limit(format!(
                "a call reads and writes at most {max} bytes of state (`max_state` raises it)"
            )));
        }
        self.state_bytes = grown;
        Ok(())
    }
}

fn check_key(key: &str) -> Result<(), Refused> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let bytes = key.len();
        return Err(Refused::Invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {bytes}")));
    }
    Ok(())
}

/// An event as a guest stages it.
pub(super) struct GuestEvent {
    pub(super) event_type: Option<String>,
    pub(super) key: Option<String>,
    pub(super) partition: Option<u32>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) payload: Vec<u8>,
}

impl GuestEvent {
    /// The event to append; its id and what says where it comes from are added later.
    pub(super) fn into_new(self) -> Result<NewEvent, Refused> {
        let payload = String::from_utf8(self.payload)
            .map_err(|_| Refused::Invalid("the payload is not UTF-8".to_owned()))?;
        let payload =
            JsonObject::parse(payload).map_err(|error| Refused::Invalid(format!("the payload: {error}")))?;
        let mut metadata = serde_json::Map::new();
        for (key, value) in self.metadata {
            metadata.insert(key, value.into());
        }
        let metadata = JsonObject::parse(serde_json::Value::Object(metadata).to_string())
            .map_err(|error| Refused::Invalid(format!("the metadata: {error}")))?;
        let (event_type, key, partition) = (self.event_type, self.key, self.partition);
        Ok(NewEvent { id: None, partition, key, event_type, timestamp: None, metadata, payload })
    }
}

#[cfg(test)]
mod tests;
