//! The connections to the server.
//!
//! One multiplexed connection carries everything but blocking waits. When it breaks, calls fail at
//! once until a background task has another one: a caller knows better than we whether to wait.
//! Nothing is ever sent twice, except what the server says it did not do (an unknown script).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo as _, Pipeline, ProtocolVersion, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::dial::dial;
use super::errors::{Failure, ServerCode, code_of, server_error};
use super::framing::Framing;
use super::reply::{checked, unexpected};
use super::{resp, scripts};
use crate::backend::{Error, Result};
use crate::target::RedisUrl;

/// How long an answer may take. Above every step that we ask for, below any sensible lease.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest that one blocking read lasts.
pub(super) const BLOCK_MAX: Duration = Duration::from_secs(1);
/// Waits between attempts to connect again.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Blocking connections that are kept when no one waits.
const IDLE_MAX: usize = 4;
/// Blocking reads at a time; a further one waits for its turn.
const READERS_MAX: usize = 256;

/// Whether a request can change something: then a lost answer leaves the outcome unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It reads, or its repetition and its loss do no harm.
    None,
    /// It writes.
    Write,
}

/// The server, with a connection that mends itself.
#[derive(Clone)]
pub(super) struct Connection(Arc<Inner>);

struct Inner {
    url: RedisUrl,
    /// Where it leads, without the password.
    name: String,
    state: Mutex<State>,
    generation: AtomicU64,
    idle: Mutex<Vec<MultiplexedConnection>>,
    readers: Arc<Semaphore>,
}

enum State {
    Up { connection: MultiplexedConnection, generation: u64 },
    Down { why: String },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is replaced whole: a panic elsewhere leaves it consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Busy`] (it still loads), [`Error::Refused`] (credentials,
    /// or a URL that the client cannot use).
    pub(super) async fn open(url: &RedisUrl) -> Result<Self> {
        // With several cryptography providers in a program one has to be chosen. Where another
        // part of it has done so before, that one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connection = connect(url).await.map_err(|failure| match failure {
            // At the start someone looks on who can mend it; later on, we try until it is mended.
            Failure::Tls(why) => Error::Refused(why),
            // A port without TLS waits for the end of what it takes for a command.
            Failure::Overdue(why) if url.is_tls() => {
                Error::Unavailable(format!("{why}; is this the server's port for TLS?"))
            }
            other => other.report(false),
        })?;
        let state = Mutex::new(State::Up { connection, generation: 0 });
        Ok(Self(Arc::new(Inner {
            url: url.clone(),
            name: url.to_string(),
            state,
            generation: AtomicU64::new(0),
            idle: Mutex::new(Vec::new()),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
        })))
    }

    /// Sends one command.
    pub(super) async fn call(&self, cmd: &Cmd, effect: Effect) -> Result<Value> {
        let mut pipe = redis::pipe();
        pipe.add_command(cmd.clone());
        let value = self.pipeline(&pipe, effect).await?.into_iter().next().unwrap_or(Value::Nil);
        checked(value)
    }

    /// Sends commands in one go; each one's answer may be an error of the server.
    pub(super) async fn pipeline(&self, pipe: &Pipeline, effect: Effect) -> Result<Vec<Value>> {
        let values = self.send(pipe, 0, pipe.len(), effect).await?;
        values.into_iter().map(opened).collect()
    }

    /// Sends commands as one transaction; each one's answer may be an error of the server.
    pub(super) async fn transaction(&self, pipe: &Pipeline, effect: Effect) -> Result<Vec<Value>> {
        match resp::value(&self.transaction_bytes(pipe, effect).await?)? {
            Value::Array(values) => Ok(values),
            _ => Err(unexpected("no transaction")),
        }
    }

    /// Sends commands as one transaction. Gives the bytes of its answer, for [`resp::Reader`]: an array of
    /// one answer for each command, which may be an error of the server.
    pub(super) async fn transaction_bytes(&self, pipe: &Pipeline, effect: Effect) -> Result<Vec<u8>> {
        let values = self.send(pipe, pipe.len() + 1, 1, effect).await?;
        match values.into_iter().next() {
            Some(Value::BulkString(answer)) => Ok(answer),
            Some(Value::ServerError(error)) => Err(server_error(&error)),
            _ => Err(unexpected("no transaction")),
        }
    }

    /// Sends calls of scripts in one go; each one's answer may be an error of the server, but not
    /// that it does not know the script.
    pub(super) async fn scripts(&self, calls: Vec<Cmd>, effect: Effect) -> Result<Vec<Value>> {
        let mut pipe = redis::pipe();
        for call in calls {
            pipe.add_command(call);
        }
        let mut values = self.pipeline(&pipe, effect).await?;
        let unknown: Vec<usize> = (0..values.len()).filter(|&i| is_unknown_script(&values[i])).collect();
        if unknown.is_empty() {
            return Ok(values);
        }
        self.load_scripts().await?;
        let calls: Vec<&Cmd> = pipe.cmd_iter().collect();
        let mut pipe = redis::pipe();
        for call in unknown.iter().filter_map(|&i| calls.get(i)) {
            pipe.add_command((*call).clone());
        }
        for (i, value) in unknown.into_iter().zip(self.pipeline(&pipe, effect).await?) {
            values[i] = value;
        }
        Ok(values)
    }

    /// Calls one script.
    pub(super) async fn script(&self, call: Cmd, effect: Effect) -> Result<Value> {
        let values = self.scripts(vec![call], effect).await?;
        checked(values.into_iter().next().unwrap_or(Value::Nil))
    }

    /// Gives the server all scripts.
    pub(super) async fn load_scripts(&self) -> Result<()> {
        for value in self.pipeline(&scripts::load_all(), Effect::None).await? {
            checked(value)?;
        }
        Ok(())
    }

    /// Sends a command that may block for up to [`BLOCK_MAX`], on a connection of its own.
    ///
    /// The read runs to its end also when the caller loses interest: so the connection is never
    /// left with an answer under way, and can be used again.
    pub(super) async fn blocking(&self, cmd: Cmd) -> Result<Value> {
        self.current()?;
        let permit = Arc::clone(&self.0.readers).acquire_owned().await;
        let permit = permit.map_err(|error| Error::Unavailable(error.to_string()))?;
        let this = self.clone();
        let read = tokio::spawn(async move {
            let _permit = permit;
            let pooled = lock(&this.0.idle).pop();
            if let Some(connection) = pooled
                && let Ok(value) = this.block_on(connection, &cmd).await
            {
                return Ok(value);
            }
            // None was there, or the one that was had broken since: reading twice does no harm.
            let connection = connect_with(&this.0.url, BLOCK_MAX + RESPONSE_TIMEOUT).await;
            this.block_on(connection.map_err(|failure| failure.report(false))?, &cmd).await
        });
        read.await.unwrap_or_else(|error| Err(Error::Unavailable(error.to_string())))
    }

    async fn block_on(&self, mut connection: MultiplexedConnection, cmd: &Cmd) -> Result<Value> {
        let value = connection.send_packed_command(cmd).await;
        let value = value.map_err(|error| Failure::of(&error).report(false))?;
        let mut idle = lock(&self.0.idle);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        checked(opened(value)?)
    }

    fn current(&self) -> Result<(MultiplexedConnection, u64)> {
        match &*lock(&self.0.state) {
            State::Up { connection, generation } => Ok((connection.clone(), *generation)),
            State::Down { why } => {
                Err(Error::Unavailable(format!("not connected to {}: {why}", self.0.name)))
            }
        }
    }

    async fn send(&self, pipe: &Pipeline, skip: usize, count: usize, effect: Effect) -> Result<Vec<Value>> {
        let (mut connection, generation) = self.current()?;
        match connection.send_packed_commands(pipe, skip, count).await {
            Ok(values) => {
                let lost = values.iter().any(|value| {
                    matches!(value, Value::ServerError(error) if code_of(error) == ServerCode::NotPrimary)
                });
                if lost {
                    self.give_up(generation, "the server is no primary");
                }
                Ok(values)
            }
            Err(error) => {
                let failure = Failure::of(&error);
                match &failure {
                    Failure::Broken(why) | Failure::Overdue(why) | Failure::Tls(why) => {
                        self.give_up(generation, why)
                    }
                    Failure::Server(errors)
                        if errors.iter().any(|e| code_of(e) == ServerCode::NotPrimary) =>
                    {
                        self.give_up(generation, "the server is no primary");
                    }
                    Failure::Server(_) | Failure::Client(_) => {}
                }
                Err(failure.report(effect == Effect::Write))
            }
        }
    }

    /// Lets go of a connection, says so, and looks for another; once for each connection.
    fn give_up(&self, broken: u64, why: &str) {
        {
            let mut state = lock(&self.0.state);
            match &*state {
                State::Up { generation, .. } if *generation == broken => {}
                State::Up { .. } | State::Down { .. } => return,
            }
            *state = State::Down { why: why.to_owned() };
        }
        lock(&self.0.idle).clear();
        tracing::debug!(server = %self.0.name, reason = why, "lost the connection to Redis; connecting again");
        tokio::spawn(reconnect(Arc::downgrade(&self.0)));
    }
}

/// Tries until there is a connection again, or no one wants one any more.
async fn reconnect(inner: Weak<Inner>) {
    let mut wait = BACKOFF_MIN;
    loop {
        tokio::time::sleep(wait.mul_f64(0.8 + 0.4 * rand::random::<f64>())).await;
        wait = (wait * 2).min(BACKOFF_MAX);
        let Some(inner) = inner.upgrade() else { return };
        match connect(&inner.url).await {
            Ok(connection) => {
                let generation = inner.generation.fetch_add(1, Ordering::Relaxed) + 1;
                *lock(&inner.state) = State::Up { connection, generation };
                tracing::debug!(server = %inner.name, "connected to Redis again");
                return;
            }
            Err(failure) => *lock(&inner.state) = State::Down { why: failure.report(false).to_string() },
        }
    }
}

/// A connection that carries everything, with all scripts loaded.
async fn connect(url: &RedisUrl) -> Result<MultiplexedConnection, Failure> {
    let mut connection = connect_with(url, RESPONSE_TIMEOUT).await?;
    let load = scripts::load_all();
    let answers = connection.send_packed_commands(&load, 0, load.len()).await;
    let mut errors = Vec::new();
    for answer in answers.map_err(|error| Failure::of(&error))? {
        if let Value::ServerError(error) = answer {
            errors.push(error);
        }
    }
    if errors.is_empty() { Ok(connection) } else { Err(Failure::Server(errors)) }
}

async fn connect_with(url: &RedisUrl, response: Duration) -> Result<MultiplexedConnection, Failure> {
    let server = url.secret().into_connection_info().map_err(|error| Failure::of(&error))?;
    // The protocol that our reading of answers is made for; newer ones bring nothing that we ask for.
    let settings = server.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(response));
    let connected = async {
        let stream = Framing::new(dial(server.addr(), url.tls()).await?);
        let connected = MultiplexedConnection::new_with_config(&settings, stream, config).await;
        connected.map_err(|error| Failure::of(&error))
    };
    let connected = timeout(CONNECT_TIMEOUT, connected).await;
    let (connection, driver) = connected.map_err(|_| Failure::Overdue("timed out".to_owned()))??;
    tokio::spawn(driver);
    Ok(connection)
}

/// An answer that came whole, taken apart.
fn opened(value: Value) -> Result<Value> {
    match value {
        Value::BulkString(answer) => resp::value(&answer),
        value => Ok(value),
    }
}

/// Whether the server does not know the script.
pub(super) fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if code_of(error) == ServerCode::NoScript)
}
