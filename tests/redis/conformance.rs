//! Every promise of the suite, each on a server of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wasmill::backend::conformance::{EVENT_BYTES_MAX, Store};
use wasmill::backend::redis::Redis;
use wasmill::backend::{Settings, Shared};
use wasmill::target::Target;

use crate::support::redis::RedisServer;

struct RedisStore {
    server: RedisServer,
    backend: Shared,
}

async fn open(server: &RedisServer, namespace: &str) -> anyhow::Result<Shared> {
    let Target::Redis(url) = Target::parse(&server.url(), Path::new("."))? else { unreachable!() };
    let settings =
        Settings { namespace: namespace.to_owned(), event_bytes_max: EVENT_BYTES_MAX, ..Settings::default() };
    Ok(Arc::new(Redis::connect(&url, &settings).await?))
}

async fn redis() -> RedisStore {
    let server = RedisServer::start();
    let backend = open(&server, "Test").await.unwrap();
    RedisStore { server, backend }
}

#[async_trait::async_trait]
impl Store for RedisStore {
    fn backend(&self) -> Shared {
        self.backend.clone()
    }

    async fn other(&self) -> anyhow::Result<Shared> {
        open(&self.server, "Test").await
    }

    async fn elsewhere(&self) -> anyhow::Result<Shared> {
        open(&self.server, "Elsewhere").await
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn moves_time(&self) -> bool {
        false
    }
}

macro_rules! over_store {
    ([] $($family:ident { $($promise:ident)* })*) => {
        $(mod $family {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    let store = super::redis().await;
                    let kept = wasmill::backend::conformance::$family::$promise(&store).await;
                    kept.unwrap_or_else(|broken| panic!("{broken:#}"));
                }
            )*
        })*
    };
}

wasmill::conformance_promises!(over_store);
