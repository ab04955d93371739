//! Short ways to act on a backend, and on the server behind its back.

use std::path::Path;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, ToRedisArgs};
use wasmill::backend::redis::Redis;
use wasmill::backend::{
    APPEND_BATCH_MAX, Backend, ClaimRequest, Claimed, Error, NewGroup, Result, Settings, SettleRequest,
    Settled, Start,
};
use wasmill::event::{GroupKey, JsonObject, Leased, Name, NewEvent};
use wasmill::outcome::{Effects, FailureKind, Settlement, Verdict};
use wasmill::target::{RedisUrl, Target};

use crate::server::RedisServer;

/// A lease that does not end in the course of a test.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
/// How long what must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn url(text: &str) -> RedisUrl {
    match Target::parse(text, Path::new(".")) {
        Ok(Target::Redis(url)) => url,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn connect(text: &str) -> Result<Redis> {
    connect_for(text, Settings::default().append_time_max).await
}

/// A backend for which an append is given up after this time.
pub(crate) async fn connect_for(text: &str, append_time_max: Duration) -> Result<Redis> {
    let settings = Settings { namespace: "T".to_owned(), append_time_max, ..Settings::default() };
    Redis::connect(&url(text), &settings).await
}

/// A server, a backend on it, and a connection for what others do.
pub(crate) struct Bench {
    pub(crate) server: RedisServer,
    pub(crate) backend: Redis,
    pub(crate) group: GroupKey,
    pub(crate) partitions: Vec<u32>,
    pub(crate) raw: redis::Client,
}

impl Bench {
    /// With a stream `s` of so many partitions and a group `g` of it.
    pub(crate) async fn new(partitions: u32) -> Self {
        Self::on(RedisServer::start(), partitions, 5).await
    }

    pub(crate) async fn on(server: RedisServer, partitions: u32, max_attempts: u32) -> Self {
        let backend = connect(&server.url()).await.unwrap();
        let group = GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap());
        backend.create_stream(&group.stream, partitions).await.unwrap();
        backend.create_group(&group, NewGroup { max_attempts, start: Start::Beginning }).await.unwrap();
        let raw = redis::Client::open(server.url()).unwrap();
        Self { server, backend, group, partitions: (0..partitions).collect(), raw }
    }

    /// Runs one command as another client would: the words of `command`, split at spaces.
    pub(crate) fn raw<T: FromRedisValue>(&self, command: &str) -> T {
        self.raw_with(command, &[] as &[&str])
    }

    pub(crate) fn raw_with<T: FromRedisValue, A: ToRedisArgs>(&self, command: &str, more: &[A]) -> T {
        let mut connection = self.raw.get_connection().unwrap();
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().unwrap());
        cmd.arg(words.collect::<Vec<_>>()).arg(more);
        cmd.query(&mut connection).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Appends events to a partition.
    pub(crate) async fn append(&self, partition: u32, count: usize) {
        let events: Vec<NewEvent> = (0..count).map(|n| event(partition, n)).collect();
        for batch in events.chunks(APPEND_BATCH_MAX) {
            self.backend.append(&self.group.stream, batch).await.unwrap();
        }
    }

    /// The sequence that an append of Rheo's takes first.
    pub(crate) fn take_sequence(&self, partition: u32) -> u64 {
        self.raw(&format!("INCRBY rheo:T:seq:s:{partition} 1"))
    }

    /// The entry that it adds then, and the row that it adds last.
    pub(crate) fn add_entry(&self, partition: u32, entry: &str, sequence: u64) -> String {
        self.raw(&format!(
            "XADD rheo:T:s:s:{partition} {entry} id rheo-{partition}-{sequence} sequence {sequence} \
             partition {partition} timestamp 2020-01-15T12:00:00.000Z metadata {{}} payload {{\"n\":1}}"
        ))
    }

    pub(crate) fn add_row(&self, partition: u32, entry: &str, sequence: u64) {
        let _: i64 = self.raw(&format!("ZADD rheo:T:z:s:{partition} {sequence} {entry}"));
    }

    /// Adds an event as Rheo does: with an id of the server's choice or this one. Returns the id.
    pub(crate) fn append_like_rheo(&self, partition: u32, entry: &str) -> String {
        let sequence = self.take_sequence(partition);
        let id = self.add_entry(partition, entry, sequence);
        self.add_row(partition, &id, sequence);
        id
    }

    pub(crate) async fn claim(&self, consumer: &str, limit: usize) -> Claimed {
        self.try_claim(consumer, limit, LONG, false).await.unwrap()
    }

    pub(crate) async fn try_claim(
        &self,
        consumer: &str,
        limit: usize,
        lease: Duration,
        sweep: bool,
    ) -> Result<Claimed> {
        let (group, partitions) = (&self.group, self.partitions.as_slice());
        self.backend
            .claim(&ClaimRequest { group, consumer, partitions, limit, lease, sweep, alone: false })
            .await
    }

    /// Claims with sweeps until so many events have come, and no more.
    pub(crate) async fn sweep_until(&self, consumer: &str, count: usize) -> Vec<Leased> {
        let mut leased = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while leased.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} came", leased.len());
            leased.extend(self.try_claim(consumer, 100, LONG, true).await.unwrap().leased);
        }
        assert_eq!(leased.len(), count);
        leased
    }

    pub(crate) async fn ack(&self, leased: &[Leased]) -> Vec<Settled> {
        self.settle(leased, |_| Verdict::Ack(Effects::default())).await.unwrap()
    }

    pub(crate) async fn settle(
        &self,
        leased: &[Leased],
        verdict: impl Fn(&Leased) -> Verdict,
    ) -> Result<Vec<Settled>> {
        let settlements: Vec<Settlement> = leased
            .iter()
            .map(|leased| Settlement { lease: leased.lease.clone(), verdict: verdict(leased), plugin: None })
            .collect();
        let request = SettleRequest { group: &self.group, consumer: "c", settlements: &settlements };
        self.backend.settle(&request).await
    }

    /// The processor time that the server has used: what its steps cost, however busy the machine is.
    pub(crate) fn server_cpu(&self) -> Duration {
        let info: String = self.raw("INFO cpu");
        let used = |name: &str| -> f64 {
            info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
        };
        Duration::from_secs_f64(used("used_cpu_user:") + used("used_cpu_sys:"))
    }

    pub(crate) async fn lag(&self) -> u64 {
        self.backend.group_info(&self.group).await.unwrap().lag(|_| true)
    }
}

pub(crate) fn event(partition: u32, n: usize) -> NewEvent {
    let payload = JsonObject::parse(format!("{{\"n\":{n}}}")).unwrap();
    NewEvent { partition: Some(partition), ..NewEvent::new(payload) }
}

pub(crate) fn retry(delay: Duration) -> Verdict {
    Verdict::Retry { delay, reason: "later".to_owned(), failure: FailureKind::Retry }
}

pub(crate) fn sequences(leased: &[Leased]) -> Vec<u64> {
    leased.iter().map(|leased| leased.event.sequence).collect()
}

/// Repeats a call until it succeeds; other errors than those of a store that is away fail at once.
pub(crate) async fn until_back<T>(mut call: impl AsyncFnMut() -> Result<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(Error::Unavailable(_) | Error::Ambiguous(_) | Error::Busy(_)) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < deadline, "the store did not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
