//! A stand-in for a Rheo process, written from the wire contract alone: it shares no code with `src/`.
//!
//! It sends the same commands as Rheo, in the same round trips: what Rheo reads and then writes in two
//! steps is two steps here, faults and all. Before each round trip but the first of an operation a
//! [`Gap`] hook runs, where a test lets others act in between, or lets the peer die. What was sent is
//! kept on a tape, to be compared with what Rheo was recorded to send.

use std::collections::{BTreeMap, HashMap};

use redis::{Cmd, ConnectionLike as _, FromRedisValue, Value};

mod control;
mod fetch;
mod hash;
mod settle;
mod streams;
mod views;

pub(crate) use fetch::Fetch;
pub(crate) use streams::{Append, Start};

/// The words of one command.
pub(crate) type Words = Vec<Vec<u8>>;

/// Why an operation did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    StreamNotFound,
    GroupNotFound,
    AlreadyExists,
    InvalidPartitionCount,
    InvalidPartition,
    ConfirmRequired,
    CursorNotFound,
    StaleLease,
    ReceiptMismatch,
    /// The hook ended the peer in a gap.
    Died,
    /// The server's own words.
    Failed(String),
}

pub(crate) type Outcome<T> = Result<T, Refusal>;

/// What time it is for the peer, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    System,
    Frozen(u64),
}

/// The place between two round trips of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) operation: &'static str,
    /// How many round trips of it are done; from 1.
    pub(crate) done: usize,
}

/// What happens after a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    Die,
}

/// One process of Rheo's.
pub(crate) struct Peer<'a> {
    connection: redis::Connection,
    prefix: String,
    pub(crate) clock: Clock,
    pub(crate) tape: Vec<Words>,
    operation: &'static str,
    done: usize,
    hook: Option<Box<dyn FnMut(Gap) -> Next + 'a>>,
}

/// An event by the peer's decoding rules.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) sequence: u64,
    pub(crate) partition: u32,
    pub(crate) timestamp: String,
    pub(crate) key: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) metadata: serde_json::Value,
    pub(crate) payload: serde_json::Value,
}

/// A lease as the peer holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lease {
    pub(crate) stream: String,
    pub(crate) group: String,
    pub(crate) lease_id: String,
    pub(crate) attempt: u64,
    pub(crate) expires_at_ms: u64,
    pub(crate) receipt: Option<String>,
    pub(crate) event: Event,
    /// The fields as they are stored, for a dead letter.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'a> Peer<'a> {
    pub(crate) fn new(url: &str, handle: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        Self {
            connection: client.get_connection().unwrap(),
            prefix: format!("rheo:{handle}:"),
            clock: Clock::System,
            tape: Vec::new(),
            operation: "",
            done: 0,
            hook: None,
        }
    }

    /// Runs `hook` in each gap from now on.
    pub(crate) fn in_gaps(&mut self, hook: impl FnMut(Gap) -> Next + 'a) {
        self.hook = Some(Box::new(hook));
    }

    /// Runs `act` once, in the gap after `done` round trips of the next operation of this name.
    pub(crate) fn once_in_gap(
        &mut self,
        operation: &'static str,
        done: usize,
        act: impl FnOnce() -> Next + 'a,
    ) {
        let mut act = Some(act);
        self.in_gaps(move |gap| {
            if gap == (Gap { operation, done })
                && let Some(act) = act.take()
            {
                return act();
            }
            Next::GoOn
        });
    }

    /// How many round trips of the last operation were made.
    pub(crate) fn trips(&self) -> usize {
        self.done
    }

    /// The time that [`Peer::clock`] shows, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        match self.clock {
            Clock::Frozen(ms) => ms,
            Clock::System => u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap(),
        }
    }

    /// Names the operation whose round trips follow.
    fn begin(&mut self, operation: &'static str) {
        self.operation = operation;
        self.done = 0;
    }

    /// One round trip: all commands in one write, then all answers.
    fn trip(&mut self, commands: &[Cmd]) -> Outcome<Vec<Value>> {
        if self.done > 0
            && let Some(hook) = &mut self.hook
            && hook(Gap { operation: self.operation, done: self.done }) == Next::Die
        {
            return Err(Refusal::Died);
        }
        self.done += 1;
        let mut packed = Vec::new();
        for command in commands {
            packed.extend(command.get_packed_command());
            self.tape.push(command.args_iter().map(word).collect());
        }
        let answers = self.connection.req_packed_commands(&packed, 0, commands.len());
        let answers = answers.map_err(|error| Refusal::Failed(error.to_string()))?;
        answers.into_iter().map(refused).collect()
    }

    /// One command alone.
    fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Outcome<T> {
        let answer = self.trip(std::slice::from_ref(command))?.remove(0);
        Ok(redis::from_redis_value(answer).unwrap())
    }

    fn key(&self, kind: &str, parts: &[&dyn std::fmt::Display]) -> String {
        let mut key = format!("{}{kind}", self.prefix);
        for part in parts {
            key.push_str(&format!(":{part}"));
        }
        key
    }

    /// How many partitions the stream has.
    fn partition_count(&mut self, stream: &str) -> Outcome<u32> {
        let meta = self.key("meta", &[&stream]);
        let count: Option<u32> = self.ask(cmd("HGET").arg(meta).arg("partition_count"))?;
        count.ok_or(Refusal::StreamNotFound)
    }

    /// The group's metadata.
    fn group_meta(&mut self, stream: &str, group: &str) -> Outcome<HashMap<String, String>> {
        let gmeta = self.key("gmeta", &[&stream, &group]);
        let meta: HashMap<String, String> = self.ask(cmd("HGETALL").arg(gmeta))?;
        if meta.is_empty() { Err(Refusal::GroupNotFound) } else { Ok(meta) }
    }
}

fn cmd(name: &str) -> Cmd {
    redis::cmd(name)
}

fn word(arg: redis::Arg<&[u8]>) -> Vec<u8> {
    match arg {
        redis::Arg::Simple(bytes) => bytes.to_vec(),
        _ => b"0".to_vec(),
    }
}

fn refused(answer: Value) -> Outcome<Value> {
    match answer {
        Value::ServerError(error) => {
            Err(Refusal::Failed(format!("{} {}", error.code(), error.details().unwrap_or_default())))
        }
        answer => Ok(answer),
    }
}

/// An instant as ISO 8601 with milliseconds and Z.
fn iso(ms: u64) -> String {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap();
    format!("{at:.3}")
}

/// Sixteen random bytes as 22 characters of base64url.
fn random_id() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>())
}

/// An entry of a stream: its id and its fields in order.
type Entry = (String, Option<Vec<(Vec<u8>, Vec<u8>)>>);

/// An event from an entry's fields.
fn decode(fields: &[(Vec<u8>, Vec<u8>)]) -> Event {
    let text = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let json = |name: &str| {
        let value = text(name).and_then(|text| serde_json::from_str(&text).ok());
        value.filter(serde_json::Value::is_object).unwrap_or_else(|| serde_json::json!({}))
    };
    Event {
        id: text("id").unwrap_or_default(),
        sequence: text("sequence").and_then(|text| text.parse().ok()).unwrap_or_default(),
        partition: text("partition").and_then(|text| text.parse().ok()).unwrap_or_default(),
        timestamp: text("timestamp").unwrap_or_default(),
        key: text("key"),
        event_type: text("type"),
        metadata: json("metadata"),
        payload: json("payload"),
    }
}

/// Sequences by partition, as a start position or a cursor gives them.
type BySequence = BTreeMap<u32, u64>;
