//! Engines of ours in a mixed group, each with a runtime and a connection of its own, so that it can be
//! killed in the middle of anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wasmill::backend::redis::Redis;
use wasmill::backend::{Settings, Shared, Start};
use wasmill::engine::{
    self, Delivery, Ended, Handler, PartitionChoice, Pipeline, Retention, Slot, Summary, Wanted,
};
use wasmill::event::{Event, GroupKey};
use wasmill::outcome::{Effects, Fault, FaultKind, OnFault, Outcome};
use wasmill::retry::RetryPolicy;

use crate::checker::{Checker, Witness};

/// How long another writer's append may take in these tests.
pub(crate) const APPEND_TIME_MAX: Duration = Duration::from_millis(1500);

pub(crate) async fn connect(url: &str) -> Redis {
    let settings =
        Settings { namespace: "T".to_owned(), append_time_max: APPEND_TIME_MAX, ..Settings::default() };
    Redis::connect(&crate::kit::url(url), &settings).await.unwrap()
}

/// Does what the event's type says.
#[derive(Default)]
pub(crate) struct Behaves {
    /// The first attempt at an event of the type `stall` has begun.
    pub(crate) stalled: AtomicBool,
    /// It goes on once this is cancelled.
    pub(crate) gate: CancellationToken,
}

#[async_trait]
impl Handler for Behaves {
    fn name(&self) -> &str {
        "behaves"
    }

    fn digest(&self) -> Arc<str> {
        "test".into()
    }

    async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault> {
        let first = delivery.attempt == 1;
        match event.event_type.as_deref() {
            Some("retry") if first => {
                Ok(Outcome::Retry { reason: "later".to_owned(), delay: Some(Duration::from_millis(100)) })
            }
            Some("trap") if first => Err(Fault { kind: FaultKind::Trap, message: "it trapped".to_owned() }),
            Some("stall") if first => {
                self.stalled.store(true, Ordering::Relaxed);
                self.gate.cancelled().await;
                Ok(Outcome::Ack(Effects::default()))
            }
            Some("reject") => Ok(Outcome::Reject { reason: "never".to_owned() }),
            Some("slow") => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(Outcome::Ack(Effects::default()))
            }
            _ => Ok(Outcome::Ack(Effects::default())),
        }
    }
}

pub(crate) fn pipeline(
    group: &GroupKey,
    partitions: u32,
    lease: Duration,
    plugin: Arc<dyn Handler>,
) -> Pipeline {
    let retry = RetryPolicy {
        initial: Duration::from_millis(20),
        max: Duration::from_millis(100),
        ..RetryPolicy::default()
    };
    Pipeline {
        name: "p".into(),
        group: group.clone(),
        partitions: (0..partitions).collect(),
        concurrency: 4,
        in_flight_max: 32,
        lease,
        retry,
        on_fault: OnFault::default(),
        plugin: Slot::new(plugin),
        retention: Retention::default(),
        wanted: Wanted {
            group: group.clone(),
            stream_partitions: None,
            partitions: PartitionChoice::All,
            max_attempts: None,
            start: Start::Beginning,
        },
    }
}

/// An engine that runs.
pub(crate) struct Running {
    runtime: Runtime,
    stop: CancellationToken,
    ended: JoinHandle<Vec<Ended>>,
}

impl Running {
    /// Starts an engine on a connection of its own; `backend` may change how it works.
    pub(crate) fn start(
        url: &str,
        checker: &Checker,
        pipeline: Pipeline,
        consumer: &str,
        backend: impl FnOnce(Redis) -> Redis,
    ) -> Self {
        let runtime = Runtime::new().unwrap();
        // The caller may itself run on a runtime: block on this one from a thread of its own.
        let connected =
            std::thread::scope(|scope| scope.spawn(|| runtime.block_on(connect(url))).join().unwrap());
        let backend: Shared = Arc::new(backend(connected));
        let witness: Shared = Arc::new(Witness { backend, checker: checker.clone() });
        let settings = engine::Settings {
            drain_timeout: Duration::from_secs(5),
            until_idle: None,
            consumer: consumer.to_owned(),
            hops_max: 32,
        };
        let stop = CancellationToken::new();
        let engine = engine::run(witness, vec![pipeline], settings, Arc::default(), None, stop.clone());
        let ended = runtime.spawn(engine);
        Self { runtime, stop, ended }
    }

    /// Ends the engine as the end of its process would: nothing more is written.
    pub(crate) fn kill(self) {
        self.runtime.shutdown_background();
    }

    /// Ends the engine in order.
    pub(crate) async fn drain(self) -> Summary {
        self.stop.cancel();
        let mut ended = self.ended.await.unwrap();
        self.runtime.shutdown_background();
        let ended = ended.remove(0);
        assert!(ended.error.is_none(), "{ended:?}");
        ended.summary
    }
}
