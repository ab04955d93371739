//! The plugin host: WebAssembly components that handle events.
//!
//! [`Host`] is the process's one engine. [`Host::load`] makes a [`Plugin`] of a file: compiled (or
//! taken from the cache), checked against the contract in `wit/`, and tried once. [`Plugin::handle`]
//! calls it with an event. Instances are reused, and thrown away after anything but an answer. A
//! guest cannot hurt the process: its time, its memory, its stack, its handles, its output and its
//! effects are bounded, and it reaches what is granted to it ([`crate::grants`]) and nothing else.
//!
//! A guest's output becomes events of `tracing` with the target [`GUEST_TARGET`], in the span that
//! the caller of [`Plugin::handle`] is in.

mod bindings;
mod cache;
mod code;
mod deadline;
mod effects;
mod error;
mod fault;
mod host;
mod http;
mod inspect;
mod limits;
mod meter;
mod needs;
mod output;
mod pool;
mod prepare;
mod sockets;
mod staging;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use wasmtime::{Store, UpdateDeadline};

use self::bindings::v0_1::wasmill::handler::types;
use self::bindings::v0_1::{Failure, Handler, HandlerPre};
pub use self::error::{HostError, LoadError, Refusal};
pub use self::host::{Host, HostSettings};
pub use self::inspect::{Inspection, Producer};
pub use self::limits::{EffectLimits, Limits, TIMEOUT_MAX};
pub use self::needs::{Need, grant_of};
pub use self::output::{GUEST_TARGET, GuestLine, LINE_BYTES_MAX, LINES_MAX};
use self::pool::{Instance, Pool};
pub use self::staging::StateSource;
use self::state::{Config, State};
use crate::event::Event;
use crate::grants::Grants;
use crate::outcome::{Effects, Fault, Outcome};

/// Looks after which an instance has waited too long: the first one can come just after it began to wait.
const REAP_LOOKS: u32 = 2;

/// Shortest time between two looks for instances that have waited too long.
const REAP_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What is to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSpec {
    /// The plugin's name, for messages.
    pub name: String,
    /// The component's file.
    pub path: PathBuf,
    /// What an instance may use.
    pub limits: Limits,
    /// What the guest finds in `wasi:config`, as pairs of key and value.
    pub config: Vec<(String, String)>,
    /// What it may do.
    pub grants: Grants,
}

impl PluginSpec {
    /// The component at `path` under the name `name`, with default limits and no settings.
    #[must_use]
    pub fn new(name: impl Into<String>, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        Self {
            name: name.into(),
            path,
            limits: Limits::default(),
            config: Vec::new(),
            grants: Grants::default(),
        }
    }
}

/// How an event came to be delivered.
#[derive(Clone)]
pub struct Delivery<'a> {
    /// The pipeline that delivers.
    pub pipeline: &'a str,
    /// The consumer group.
    pub group: &'a str,
    /// Deliveries so far, from 1, this one included.
    pub attempt: u32,
    /// The attempt after which a failure is final.
    pub max_attempts: u32,
    /// Where the handler's state is read from; without it there is none.
    pub state: Option<Arc<dyn StateSource>>,
}

/// What a call left besides its answer.
#[derive(Clone, Debug, Default)]
pub struct CallReport {
    /// What the guest wrote, in order.
    pub lines: Vec<GuestLine>,
    /// Bytes of the instance's linear memories after the call, which is their peak.
    pub memory_bytes: usize,
    /// From the call of the handler to its answer; making an instance, where none was warm, counts.
    pub took: Duration,
}

/// What a loaded build uses at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Instances that are in a call, or are being made for one.
    pub busy: usize,
    /// Instances that wait for a call.
    pub warm: usize,
    /// Instances that may be busy at once.
    pub busy_max: usize,
    /// Bytes of linear memory of all of them.
    pub memory_bytes: usize,
}

/// One loaded build of a plugin.
pub struct Plugin {
    name: String,
    digest: Arc<str>,
    limits: Limits,
    config: Config,
    grants: Arc<Grants>,
    needs: Vec<Need>,
    handler: HandlerPre<State>,
    /// One permit for each instance that may run.
    turns: Semaphore,
    /// Bytes of linear memory of all instances.
    memory_bytes: Arc<AtomicUsize>,
    pool: Arc<Pool>,
    reaper: AbortHandle,
    host: Arc<Host>,
}

impl Plugin {
    /// Tries a component that was checked, and keeps the first instance for the first call.
    async fn start(
        host: Arc<Host>,
        spec: &PluginSpec,
        digest: Arc<str>,
        (handler, needs): (HandlerPre<State>, Vec<Need>),
    ) -> Result<Arc<Self>, Refusal> {
        let limits = Limits { timeout: spec.limits.timeout.min(TIMEOUT_MAX), ..spec.limits };
        let pool = Arc::new(Pool::new(limits.reuse_count_max));
        let reaper = tokio::spawn(reap(Arc::clone(&pool), limits.idle_max)).abort_handle();
        let name = spec.name.clone();
        let (config, grants) = (spec.config.clone().into(), Arc::new(spec.grants.clone()));
        let turns = Semaphore::new(limits.instances_max.clamp(1, Semaphore::MAX_PERMITS));
        let plugin = Arc::new(Self {
            name,
            digest,
            limits,
            config,
            grants,
            needs,
            handler,
            turns,
            memory_bytes: Arc::default(),
            pool,
            reaper,
            host,
        });
        match plugin.instantiate(Instant::now() + limits.timeout).await {
            Ok(instance) => plugin.pool.put(instance),
            Err(fault) => return Err(Refusal::Start { reason: fault.message }),
        }
        Ok(plugin)
    }

    /// The plugin's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the component, in hexadecimal: the name of this generation.
    #[must_use]
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What it imports that does nothing without a grant that it does not have.
    pub fn missing_grants(&self) -> impl Iterator<Item = Need> {
        self.needs.iter().copied().filter(|need| !need.is_granted(&self.grants))
    }

    /// How many instances wait for a call.
    #[must_use]
    pub fn warm_count(&self) -> usize {
        self.pool.len()
    }

    /// What it uses at the moment.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let busy_max = self.limits.instances_max.clamp(1, Semaphore::MAX_PERMITS);
        Usage {
            busy: busy_max.saturating_sub(self.turns.available_permits()),
            warm: self.pool.len(),
            busy_max,
            memory_bytes: self.memory_bytes.load(Ordering::Relaxed),
        }
    }

    /// Calls the handler with an event. As many calls run at once as the caller makes; each has an
    /// instance for itself. Dropping the future cuts the call off and discards its instance.
    ///
    /// # Errors
    /// The guest did not answer: see [`crate::outcome::FaultKind`].
    pub async fn handle(&self, event: &Event, delivery: &Delivery<'_>) -> Result<Outcome, Fault> {
        self.answer(event, delivery, None).await
    }

    /// Calls the handler as [`Plugin::handle`] does, and tells what happened besides. The guest's lines
    /// come with the report and do not go to the log, but for those that its start code wrote.
    pub async fn handle_reported(
        &self,
        event: &Event,
        delivery: &Delivery<'_>,
    ) -> (Result<Outcome, Fault>, CallReport) {
        let mut report = CallReport::default();
        let start = Instant::now();
        let result = self.answer(event, delivery, Some(&mut report)).await;
        report.took = start.elapsed();
        (result, report)
    }

    async fn answer(
        &self,
        event: &Event,
        delivery: &Delivery<'_>,
        report: Option<&mut CallReport>,
    ) -> Result<Outcome, Fault> {
        let deadline = Instant::now() + self.limits.timeout;
        let mut left = self.limits.timeout;
        // Held until the instance is back or gone.
        let _turn = match self.turns.try_acquire() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = self.wait(deadline).await?;
                left = deadline.saturating_duration_since(Instant::now());
                turn
            }
        };
        // Taken out of the pool it is this call's own, and gone with it unless it is put back.
        let home = tokio::runtime::Handle::current().id();
        let mut instance = match self.pool.take(home) {
            Some(instance) => instance,
            None => {
                // Those that wait on other runtimes count too.
                self.pool.shrink(self.turns.available_permits());
                let instance = self.instantiate(deadline).await?;
                left = deadline.saturating_duration_since(Instant::now());
                instance
            }
        };
        instance.home = Some(home);
        begin(&mut instance.store, deadline);
        if report.is_some() {
            instance.store.data().output.keep();
        }
        instance.store.data_mut().staging.begin(delivery.pipeline, delivery.state.clone());
        let Instance { store, handler, meter, .. } = &mut instance;
        let called = meter.measure(call(store, handler, event, delivery, left));
        let answer = deadline::until(deadline, called).await;
        instance.store.data().output.finish();
        if let Some(report) = report {
            report.lines = instance.store.data().output.take();
            report.memory_bytes = instance.store.data().guard.bytes();
        }
        match answer {
            Some(Ok(answer)) => {
                instance.calls += 1;
                let effects = instance.store.data_mut().staging.take();
                // One that was refused memory and lived on is full: the next event would fare no better.
                if instance.store.data().guard.refused_bytes.is_none() {
                    self.pool.put(instance);
                }
                Ok(outcome(answer, effects))
            }
            Some(Err(error)) => Err(fault::classify(&error, instance.store.data(), self.timeout_ms())),
            None => Err(fault::overdue(instance.store.data(), self.timeout_ms())),
        }
    }

    /// Waits until one of those that run has ended.
    async fn wait(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, Fault> {
        let turn = deadline::until(deadline, self.turns.acquire()).await;
        // Whoever waited until its last moment has no time left to be called in. It is never closed.
        let turn = turn.and_then(Result::ok).filter(|_| Instant::now() < deadline);
        turn.ok_or_else(|| fault::crowded(self.limits.instances_max, self.timeout_ms()))
    }

    /// Makes an instance; its start code runs under the same limits as a call.
    async fn instantiate(&self, deadline: Instant) -> Result<Instance, Fault> {
        let state = State::new(Arc::clone(&self.config), &self.grants, &self.limits, deadline);
        let mut state = state.map_err(fault::no_directory)?;
        state.guard.count_into(&self.memory_bytes);
        let meter = state.meter.clone();
        let mut store = Store::new(self.host.engine(), state);
        store.set_hostcall_fuel(self.limits.effects.call_bytes_max());
        store.limiter(|state| &mut state.guard);
        store.epoch_deadline_callback(|store| {
            let state = store.data();
            if Instant::now() >= state.deadline {
                Err(fault::Overdue.into())
            } else if state.meter.is_spent() {
                Err(meter::Spent.into())
            } else {
                Ok(UpdateDeadline::Yield(1))
            }
        });
        begin(&mut store, deadline);
        let started = meter.measure(self.handler.instantiate_async(&mut store));
        let started = deadline::until(deadline, started).await;
        store.data().output.finish();
        match started {
            Some(Ok(handler)) => Ok(Instance { store, handler, meter, home: None, calls: 0 }),
            Some(Err(error)) => Err(fault::classify(&error, store.data(), self.timeout_ms())),
            None => Err(fault::overdue(store.data(), self.timeout_ms())),
        }
    }

    fn timeout_ms(&self) -> u128 {
        self.limits.timeout.as_millis()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.reaper.abort();
    }
}

/// Sets a store up for what runs next in it.
fn begin(store: &mut Store<State>, deadline: Instant) {
    let state = store.data_mut();
    state.deadline = deadline;
    (state.guard.refused_bytes, state.guard.refused_elements) = (None, None);
    state.output.begin();
    store.set_epoch_deadline(1);
}

async fn call(
    store: &mut Store<State>,
    handler: &Handler,
    event: &Event,
    delivery: &Delivery<'_>,
    left: Duration,
) -> wasmtime::Result<Result<(), Failure>> {
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
    let delivery = types::Delivery {
        pipeline: delivery.pipeline,
        group: delivery.group,
        attempt: delivery.attempt,
        max_attempts: delivery.max_attempts,
        timeout_ms: u32::try_from(left.as_millis()).unwrap_or(u32::MAX),
    };
    handler.call_handle(store, event, delivery).await
}

/// Only an ack takes along what was staged.
fn outcome(answer: Result<(), Failure>, effects: Effects) -> Outcome {
    match answer {
        Ok(()) => Outcome::Ack(effects),
        Err(Failure::Retry(retry)) => {
            let delay = retry.delay_ms.map(|ms| Duration::from_millis(ms.into()));
            Outcome::Retry { reason: retry.reason, delay }
        }
        Err(Failure::Reject(reason)) => Outcome::Reject { reason },
    }
}

/// Drops a plugin's unused instances in time, also when no call comes any more.
async fn reap(pool: Arc<Pool>, idle_max: Duration) {
    let interval = (idle_max / REAP_LOOKS).max(REAP_INTERVAL_MIN);
    loop {
        tokio::time::sleep(interval).await;
        pool.reap(REAP_LOOKS.into());
    }
}
