//! Bare wasmtime: the typed call of a component of the handler world, and nothing else. No limits, no
//! deadline, no output, no staging; of the imports only the log, which drops what it is told.

use wasmill::event::Event;
use wasmtime::component::{Component, HasSelf, Instance, Linker};
use wasmtime::{Config, Engine, Store};

use super::support::program::built_plugin;

mod bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "wasmill:handler/handler",
        ownership: Borrowing { duplicate_if_necessary: false },
    });
}

use bindings::wasi::logging::logging;
use bindings::wasmill::handler::types;

/// What its store holds.
struct Nothing;

impl logging::Host for Nothing {
    fn log(&mut self, _: logging::Level, _: String, _: String) {}
}

/// One instance.
pub(crate) struct Bare {
    store: Store<Nothing>,
    instance: Instance,
}

/// How it is called.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// On a stack of its own, so that it could wait in a function that it imports.
    Async,
    /// On the caller's stack.
    Sync,
}

impl Bare {
    /// An instance of the plugin `passthrough`. Its code can be interrupted, as in the engine, but no one
    /// does it.
    pub(crate) async fn new() -> Self {
        let engine = Engine::new(Config::new().epoch_interruption(true)).unwrap();
        let component = Component::from_file(&engine, built_plugin("passthrough")).unwrap();
        let mut linker = Linker::new(&engine);
        logging::add_to_linker::<Nothing, HasSelf<Nothing>>(&mut linker, |nothing| nothing).unwrap();
        linker.define_unknown_imports_as_traps(&component).unwrap();
        let mut store = Store::new(&engine, Nothing);
        store.set_epoch_deadline(1);
        let instance = linker.instantiate_async(&mut store, &component).await.unwrap();
        Self { store, instance }
    }

    /// Calls it so many times with one event.
    pub(crate) async fn call(&mut self, way: Way, event: &Event, calls: u32) {
        let metadata = event.metadata_pairs();
        let metadata: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let event = types::Event {
            id: &event.id,
            stream_name: event.stream.as_str(),
            partition: event.partition,
            sequence: event.sequence,
            timestamp: &event.timestamp,
            timestamp_ms: event.timestamp_ms(),
            key: event.key.as_deref(),
            event_type: event.event_type.as_deref(),
            metadata: &metadata,
            payload: event.payload.as_str().as_bytes(),
        };
        let delivery =
            types::Delivery { pipeline: "p", group: "g", attempt: 1, max_attempts: 5, timeout_ms: 30_000 };
        let handle = self
            .instance
            .get_typed_func::<(types::Event<'_>, types::Delivery<'_>), (Result<(), types::Failure>,)>(
                &mut self.store,
                "handle",
            )
            .unwrap();
        for _ in 0..calls {
            let params = (event.clone(), delivery.clone());
            let answer = match way {
                Way::Async => handle.call_async(&mut self.store, params).await,
                Way::Sync => handle.call(&mut self.store, params),
            };
            assert!(answer.unwrap().0.is_ok());
        }
    }
}
