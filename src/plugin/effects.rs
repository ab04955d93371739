//! The host's side of the outbox and of the state: what a guest calls, led to [`super::staging`].

use wasmtime::component::{HasSelf, Linker, Resource};

use super::bindings::v0_1::wasi::keyvalue::{atomics, batch, store};
use super::bindings::v0_1::wasmill::handler::outbox;
use super::staging::{GuestEvent, Refused};
use super::state::State;
use crate::state::Bucket;

/// Adds both to what a component can import.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    outbox::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    store::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    atomics::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    batch::add_to_linker::<State, HasSelf<State>>(linker, |state| state)
}

impl outbox::Host for State {
    fn append(&mut self, stream_name: String, event: outbox::NewEvent) -> Result<(), outbox::Error> {
        let event = GuestEvent {
            event_type: event.event_type,
            key: event.key,
            partition: event.partition,
            metadata: event.metadata,
            payload: event.payload,
        };
        event.into_new().and_then(|event| self.staging.append(&stream_name, event)).map_err(outbox_error)
    }
}

fn outbox_error(refused: Refused) -> outbox::Error {
    match refused {
        Refused::Denied(text) => outbox::Error::AccessDenied(text),
        Refused::Invalid(text) | Refused::Store(text) => outbox::Error::Invalid(text),
        Refused::Limit(text) => outbox::Error::Limit(text),
    }
}

/// Of a bucket, only the error `other` has room for words.
fn store_error(refused: Refused) -> store::Error {
    match refused {
        Refused::Denied(text) | Refused::Invalid(text) | Refused::Limit(text) | Refused::Store(text) => {
            store::Error::Other(text)
        }
    }
}

impl State {
    fn bucket(&self, bucket: &Resource<Bucket>) -> Result<Bucket, store::Error> {
        let found = self.table.get(bucket).cloned();
        found.map_err(|error| store::Error::Other(format!("the bucket is closed: {error}")))
    }
}

impl store::Host for State {
    fn open(&mut self, identifier: String) -> Result<Resource<Bucket>, store::Error> {
        // The empty name is what some libraries open when no one names a bucket.
        let identifier = if identifier.is_empty() { "default" } else { &identifier };
        let bucket = self.staging.bucket(identifier).map_err(store_error)?;
        self.table.push(bucket).map_err(|error| store::Error::Other(error.to_string()))
    }
}

impl store::HostBucket for State {
    async fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Result<Option<Vec<u8>>, store::Error> {
        let bucket = self.bucket(&bucket)?;
        let mut values = self.staging.get(&bucket, vec![key]).await.map_err(store_error)?;
        Ok(values.pop().flatten())
    }

    fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Result<(), store::Error> {
        let bucket = self.bucket(&bucket)?;
        self.staging.set(&bucket, key, Some(value)).map_err(store_error)
    }

    fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Result<(), store::Error> {
        let bucket = self.bucket(&bucket)?;
        self.staging.set(&bucket, key, None).map_err(store_error)
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Result<bool, store::Error> {
        Ok(store::HostBucket::get(self, bucket, key).await?.is_some())
    }

    async fn list_keys(
        &mut self,
        bucket: Resource<Bucket>,
        cursor: Option<u64>,
    ) -> Result<store::KeyResponse, store::Error> {
        let bucket = self.bucket(&bucket)?;
        let page = self.staging.keys(&bucket, cursor).await.map_err(store_error)?;
        Ok(store::KeyResponse { keys: page.keys, cursor: page.cursor })
    }

    fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for State {
    async fn increment(
        &mut self,
        bucket: Resource<Bucket>,
        key: String,
        delta: u64,
    ) -> Result<u64, store::Error> {
        let bucket = self.bucket(&bucket)?;
        self.staging.increment(&bucket, key, delta).await.map_err(store_error)
    }
}

impl batch::Host for State {
    async fn get_many(
        &mut self,
        bucket: Resource<Bucket>,
        keys: Vec<String>,
    ) -> Result<Vec<Option<(String, Vec<u8>)>>, store::Error> {
        let bucket = self.bucket(&bucket)?;
        let values = self.staging.get(&bucket, keys.clone()).await.map_err(store_error)?;
        Ok(keys.into_iter().zip(values).map(|(key, value)| Some((key, value?))).collect())
    }

    fn set_many(
        &mut self,
        bucket: Resource<Bucket>,
        key_values: Vec<(String, Vec<u8>)>,
    ) -> Result<(), store::Error> {
        let bucket = self.bucket(&bucket)?;
        key_values
            .into_iter()
            .try_for_each(|(key, value)| self.staging.set(&bucket, key, Some(value)))
            .map_err(store_error)
    }

    fn delete_many(&mut self, bucket: Resource<Bucket>, keys: Vec<String>) -> Result<(), store::Error> {
        let bucket = self.bucket(&bucket)?;
        keys.into_iter().try_for_each(|key| self.staging.set(&bucket, key, None)).map_err(store_error)
    }
}
