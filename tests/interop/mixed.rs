//! Rheo's consumers and our engine in one group, with producers of both kinds, failures, delays, dead
//! letters and deaths on either side.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wasmill::backend::redis::Redis;
use wasmill::backend::{Backend as _, GroupInfo, NewGroup, Start};
use wasmill::event::{GroupKey, JsonObject, Name, NewEvent};

use crate::checker::{Checker, Place, now_ms};
use crate::engines::{Behaves, Running, connect, pipeline};
use crate::peer::{Append, Fetch, Lease, Next, Outcome, Peer, Refusal};
use crate::server::RedisServer;

/// How long all of a run may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events that each of three producers appends.
const EVENTS: usize = 150;
/// Attempts of the group.
const ATTEMPTS_MAX: u32 = 5;

/// The kinds of events; see [`Behaves`].
const KINDS: [&str; 10] = ["ok", "retry", "ok", "slow", "reject", "ok", "trap", "ok", "retry", "slow"];

pub(crate) fn group() -> GroupKey {
    GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap())
}

/// What is shared by all who take part.
pub(crate) struct Scene {
    pub(crate) url: String,
    pub(crate) partitions: u32,
    pub(crate) checker: Checker,
    /// Where every event that was appended came to stand.
    pub(crate) events: Mutex<BTreeSet<Place>>,
    pub(crate) done: AtomicBool,
}

impl Scene {
    /// With the stream and the group.
    pub(crate) async fn new(backend: &Redis, url: &str, partitions: u32) -> Self {
        backend.create_stream(&group().stream, partitions).await.unwrap();
        let new = NewGroup { max_attempts: ATTEMPTS_MAX, start: Start::Beginning };
        backend.create_group(&group(), new).await.unwrap();
        let (checker, events, done) = Default::default();
        Self { url: url.to_owned(), partitions, checker, events, done }
    }

    fn peer<'a>(&self) -> Peer<'a> {
        Peer::new(&self.url, "T")
    }

    fn note(&self, places: impl IntoIterator<Item = Place>) {
        self.events.lock().unwrap().extend(places);
    }

    /// Appends as Rheo does, and dies now and then half-way: a sequence without an entry, an entry
    /// without its index row.
    pub(crate) fn produce_like_rheo(&self, producer: usize) {
        let mut peer = self.peer();
        for n in 0..EVENTS / 3 {
            let key = format!("{producer}-{n}");
            let payload =
                |i: usize| format!(r#"{{"key":"{key}-{i}","type":"{}","n":{n}}}"#, KINDS[(3 * n + i) % 10]);
            let payloads = [payload(0), payload(1), payload(2)];
            let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
            let dies_after = match n % 25 {
                7 => Some(2),  // sequences, no entries
                19 => Some(3), // entries, no index rows
                _ => None,
            };
            peer.tape.clear();
            if let Some(after) = dies_after {
                peer.once_in_gap("append", after, || Next::Die);
            }
            match peer.append_batch("s", &payloads, &Append::default()) {
                Ok(events) => self.note(events.iter().map(|event| (event.partition, event.sequence))),
                Err(Refusal::Died) => {
                    let adds = peer.tape.iter().filter(|words| words[0] == b"XADD");
                    self.note(adds.map(|words| place_of(words)));
                    peer = self.peer();
                }
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
    }

    async fn produce_like_us(&self, backend: &Redis) {
        let event = |n: usize| {
            let payload = JsonObject::parse(format!("{{\"n\":{n}}}")).unwrap();
            NewEvent {
                key: Some(format!("ours-{n}")),
                event_type: Some(KINDS[n % 10].to_owned()),
                ..NewEvent::new(payload)
            }
        };
        let events: Vec<NewEvent> = (0..EVENTS).map(event).collect();
        for batch in events.chunks(5) {
            let appended = backend.append(&group().stream, batch).await.unwrap();
            self.note(appended.iter().map(|event| (event.partition, event.sequence)));
            tokio::task::yield_now().await;
        }
    }

    /// Consumes as Rheo does until all is done. Dies now and then, wherever it is, and is replaced.
    pub(crate) fn consume_like_rheo(&self, name: &str) {
        for life in 0.. {
            if self.done.load(Ordering::Relaxed) {
                return;
            }
            let left = Cell::new(150 + 37 * (life % 5));
            let mut peer = self.peer();
            peer.in_gaps(|_| {
                left.set(left.get() - 1);
                if left.get() == 0 { Next::Die } else { Next::GoOn }
            });
            let end = self.consume(&mut peer, &format!("{name}-{life}"));
            assert!(matches!(end, Ok(()) | Err(Refusal::Died)), "{end:?}");
        }
    }

    fn consume(&self, peer: &mut Peer, consumer: &str) -> Outcome<()> {
        let fetch = Fetch::new(consumer, 4).lease_ms(400);
        while !self.done.load(Ordering::Relaxed) {
            let began = now_ms();
            let leases = peer.fetch("s", "g", &fetch)?;
            leases.iter().for_each(|lease| self.checker.peer_took(lease, began));
            if leases.is_empty() {
                // Rheo polls, too.
                std::thread::sleep(Duration::from_millis(5));
            }
            for lease in &leases {
                match self.handle(peer, lease) {
                    Ok(()) | Err(Refusal::StaleLease) => {}
                    end => return end,
                }
            }
        }
        Ok(())
    }

    fn handle(&self, peer: &mut Peer, lease: &Lease) -> Outcome<()> {
        let (kind, first) = (lease.event.event_type.as_deref(), lease.attempt == 1);
        // Settled with this round trip, whatever comes after.
        let (end, settling) = match kind {
            Some("retry" | "trap") if first => (peer.nack(lease, ":boom"), None),
            Some("reject") => (peer.reject(lease, ":never"), Some(3)),
            Some("slow") => match peer.renew(lease, 400) {
                Ok(()) => (peer.ack(lease), Some(3)),
                stale => (stale, None),
            },
            _ => (peer.ack(lease), Some(3)),
        };
        let died_later = end == Err(Refusal::Died) && settling.is_some_and(|trip| peer.trips() >= trip);
        if settling.is_some() && (end.is_ok() || died_later) {
            self.checker.peer_settled(lease);
        }
        end
    }

    /// Forces the interleaving that fencing is for: an attempt of ours stalls until its lease has run
    /// out, a peer takes the event and lets it go, it is handled and acked, and then the stalled attempt
    /// acks as well.
    async fn take_over_a_stalled_event(
        &self,
        backend: &Redis,
        handler: &Behaves,
        deadline: Instant,
    ) -> Place {
        let stall = NewEvent { event_type: Some("stall".to_owned()), ..NewEvent::new(JsonObject::empty()) };
        let appended = backend.append(&group().stream, &[stall]).await.unwrap().remove(0);
        let place = (appended.partition, appended.sequence);
        self.note([place]);
        until("the attempt has begun", deadline, || handler.stalled.load(Ordering::Relaxed)).await;
        let (mut peer, mut raw) = (self.peer(), redis::Client::open(self.url.as_str()).unwrap());
        let fences: Vec<String> = redis::cmd("KEYS").arg("rheo:T:fence:*").query(&mut raw).unwrap();
        let mut taken = Vec::new();
        // The engine may renew in between.
        while taken.is_empty() {
            assert!(Instant::now() < deadline, "the peer never got it");
            redis::cmd("HSET").arg(&fences[0]).arg("expires_at_ms").arg(1).exec(&mut raw).unwrap();
            taken = peer.fetch("s", "g", &Fetch::new("rheo", 1).lease_ms(60_000)).unwrap();
        }
        peer.nack(&taken[0], ":boom").unwrap();
        until("another attempt has acked it", deadline, || self.checker.by_us(place) == 1).await;
        handler.gate.cancel();
        place
    }

    /// Whether nothing is left to do.
    pub(crate) async fn look(&self, backend: &Redis) -> GroupInfo {
        for p in 0..self.partitions {
            backend.heal(&group(), p).await.unwrap();
        }
        backend.group_info(&group()).await.unwrap()
    }
}

/// Partition and sequence that an XADD writes.
fn place_of(words: &[Vec<u8>]) -> Place {
    let field = |name: &[u8]| {
        let at = words.iter().position(|word| word == name).unwrap();
        std::str::from_utf8(&words[at + 1]).unwrap().parse::<u64>().unwrap()
    };
    (u32::try_from(field(b"partition")).unwrap(), field(b"sequence"))
}

pub(crate) fn at_end(info: &GroupInfo) -> bool {
    info.partitions.iter().all(|p| p.lag() == 0 && p.in_flight == 0 && p.parked == 0)
}

/// Runs until all is settled, and gives what the checker has to say. Without fencing, only the forced
/// part: what follows need not come to an end then.
async fn a_mixed_group(partitions: u32, without_fencing: Option<fn(Redis) -> Redis>) -> Vec<String> {
    let server = RedisServer::start();
    let url = server.url();
    let backend = connect(&url).await;
    let scene = Arc::new(Scene::new(&backend, &url, partitions).await);
    let handler = Arc::new(Behaves::default());
    let start = |life: usize| {
        let pipeline = pipeline(&group(), partitions, Duration::from_secs(1), Arc::clone(&handler) as _);
        let change = without_fencing.unwrap_or(|backend| backend);
        Running::start(&url, &scene.checker, pipeline, &format!("ours-{life}"), change)
    };
    let mut engine = start(0);
    let deadline = Instant::now() + PATIENCE;

    let stalled = scene.take_over_a_stalled_event(&backend, &handler, deadline).await;
    if without_fencing.is_some() {
        until("the stalled attempt is settled, too", deadline, || scene.checker.by_us(stalled) > 1).await;
        engine.kill();
        let info = backend.group_info(&group()).await.unwrap();
        return scene.checker.violations(&scene.events.lock().unwrap(), &info);
    }

    let thread = |act: Box<dyn FnOnce(&Scene) + Send>| {
        let scene = Arc::clone(&scene);
        std::thread::spawn(move || act(&scene))
    };
    let producers: Vec<_> =
        (0..2).map(|n| thread(Box::new(move |scene| scene.produce_like_rheo(n)))).collect();
    let consumers: Vec<_> = (0..2)
        .map(|n| thread(Box::new(move |scene| scene.consume_like_rheo(&format!("rheo-{n}")))))
        .collect();
    scene.produce_like_us(&backend).await;
    // Killed twice in the middle of it.
    for life in 1..=2 {
        until("a third more is settled", deadline, || scene.checker.settled() > life * EVENTS).await;
        engine.kill();
        engine = start(life);
    }
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    let mut info = scene.look(&backend).await;
    while !at_end(&info) {
        let known = scene.checker.violations(&scene.events.lock().unwrap(), &info);
        assert!(Instant::now() < deadline, "it does not come to an end: {known:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        info = scene.look(&backend).await;
    }
    scene.done.store(true, Ordering::Relaxed);
    consumers.into_iter().for_each(|consumer| consumer.join().unwrap());
    engine.drain().await;

    let events = scene.events.lock().unwrap().clone();
    assert!(events.len() > 2 * EVENTS, "{}", events.len());
    let (ours, theirs) = (scene.checker.ours(), scene.checker.theirs());
    assert!(ours > 20 && theirs > 20, "both sides took part: {ours} by us, {theirs} by the peers");
    let info = scene.look(&backend).await;
    scene.checker.violations(&events, &info)
}

pub(crate) async fn until(what: &str, deadline: Instant, done: impl Fn() -> bool) {
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_partition() {
    let violations = a_mixed_group(1, None).await;
    assert!(violations.is_empty(), "{violations:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_four_partitions() {
    let violations = a_mixed_group(4, None).await;
    assert!(violations.is_empty(), "{violations:#?}");
}

// A release build has no such switch.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fencing_the_same_run_fails() {
    let violations = a_mixed_group(1, Some(Redis::without_fencing)).await;
    let twice = violations.iter().any(|violation| violation.contains("more than once by us"));
    assert!(twice, "{violations:#?}");
}
