//! A server of the benchmark's own, with the engine's store and a plain client on it.

use std::future::Future;
use std::path::Path;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use wasmill::backend::Settings;
use wasmill::backend::redis::Redis;
use wasmill::event::{JsonObject, NewEvent};
use wasmill::target::Target;

use super::support::redis::RedisServer;

pub(crate) struct Rig {
    pub(crate) store: Redis,
    pub(crate) plain: MultiplexedConnection,
    runtime: Runtime,
    server: RedisServer,
}

impl Rig {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let Ok(Target::Redis(url)) = Target::parse(&server.url(), Path::new("/")) else {
            panic!("the server's URL is no target")
        };
        let (store, plain) = runtime.block_on(async {
            let store = Redis::connect(&url, &Settings::default()).await.unwrap();
            let client = redis::Client::open(server.url()).unwrap();
            (store, client.get_multiplexed_async_connection().await.unwrap())
        });
        Self { store, plain, runtime, server }
    }

    /// The server's address for a client.
    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Runs something that asks the server, and gives what that cost the thread that runs commands, in
    /// microseconds.
    pub(crate) fn server_us(&self, work: impl Future<Output = ()>) -> f64 {
        self.runtime.block_on(async {
            let before = self.spent_us().await;
            work.await;
            self.spent_us().await - before
        })
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    async fn spent_us(&self) -> f64 {
        let mut plain = self.plain.clone();
        let info: String = redis::cmd("INFO").arg("cpu").query_async(&mut plain).await.unwrap();
        let seconds = |name: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.expect("the server says what it used").trim().parse().unwrap()
        };
        (seconds("used_cpu_sys_main_thread") + seconds("used_cpu_user_main_thread")) * 1e6
    }

    /// Empties the server, so that no round stands on what the one before left.
    pub(crate) fn clear(&self) {
        self.run(async {
            let mut plain = self.plain.clone();
            redis::cmd("FLUSHALL").exec_async(&mut plain).await.unwrap();
        });
    }
}

/// A payload of so many bytes.
pub(crate) fn payload(bytes: usize) -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(bytes - "{\"text\":\"\"}".len()))
}

/// An event with such a payload, an id and a type.
pub(crate) fn event(bytes: usize) -> NewEvent {
    let mut event = NewEvent::new(JsonObject::parse(payload(bytes)).unwrap());
    event.event_type = Some("bench".to_owned());
    event
}
