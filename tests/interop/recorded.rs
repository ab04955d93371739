//! The stand-in for Rheo sends what Rheo was recorded to send: the same commands with the same words
//! in the same order, but for ids that are drawn anew.

use std::collections::HashMap;

use crate::peer::{Append, Clock, Fetch, Lease, Outcome, Peer, Refusal, Start, Words};
use crate::server::RedisServer;

const RECORDED: &str = include_str!("../fixtures/rheo/monitor_by_op.txt");

/// 2020-01-15T12:00:00Z, where the recording's clock began.
const BEGIN_MS: u64 = 1_579_089_600_000;
const HUNDRED_YEARS_MS: u64 = 36_500 * 86_400_000;

/// What was sent in one step of the recording.
struct Section {
    title: &'static str,
    commands: Vec<Words>,
}

fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in RECORDED.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("## ") {
            Some(title) => sections.push(Section { title, commands: Vec::new() }),
            None => sections.last_mut().unwrap().commands.push(words(line)),
        }
    }
    sections
}

/// The words of a line as the server's monitor writes them: in quotes, with escapes.
fn words(line: &str) -> Words {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while let Some(start) = bytes.next() {
        assert_eq!(start, b'"', "{line}");
        let mut word = Vec::new();
        loop {
            match bytes.next().unwrap() {
                b'"' => break,
                b'\\' => word.push(match bytes.next().unwrap() {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                        u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap()
                    }
                    other => other,
                }),
                other => word.push(other),
            }
        }
        words.push(word);
        assert!(bytes.next().is_none_or(|between| between == b' '), "{line}");
    }
    words
}

/// Numbers what is drawn anew in each run, by its first appearance.
#[derive(Default)]
struct Names(HashMap<Vec<u8>, usize>);

impl Names {
    fn normal(&mut self, word: &[u8]) -> String {
        let drawn = if is_random_id(word) {
            Some((b"".as_slice(), word))
        } else {
            // An entry id stands alone or at the end of a fence's key.
            let at = word.iter().rposition(|byte| *byte == b':').map_or(0, |at| at + 1);
            is_entry_id(&word[at..]).then(|| word.split_at(at))
        };
        match drawn {
            Some((prefix, id)) => {
                let next = self.0.len();
                let number = *self.0.entry(id.to_vec()).or_insert(next);
                format!("{}#{number}", String::from_utf8_lossy(prefix))
            }
            None => String::from_utf8_lossy(word).into_owned(),
        }
    }

    fn commands(&mut self, commands: &[Words]) -> Vec<Vec<String>> {
        commands.iter().map(|words| words.iter().map(|word| self.normal(word)).collect()).collect()
    }
}

fn is_random_id(word: &[u8]) -> bool {
    word.len() == 22 && word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

fn is_entry_id(word: &[u8]) -> bool {
    let text = std::str::from_utf8(word).unwrap_or_default();
    text.split_once('-')
        .is_some_and(|(ms, low)| ms.len() == 13 && [ms, low].iter().all(|part| part.parse::<u64>().is_ok()))
}

/// Goes through the recording, step by step.
struct Play {
    sections: std::vec::IntoIter<Section>,
    recorded: Names,
    sent: Names,
    seconds: u64,
}

impl Play {
    fn new() -> Self {
        Self {
            sections: sections().into_iter(),
            recorded: Names::default(),
            sent: Names::default(),
            seconds: 0,
        }
    }

    /// The next step, which must be called `title`: `act` must send what was sent then.
    fn step<T>(&mut self, peer: &mut Peer, title: &str, act: impl FnOnce(&mut Peer, &[Words]) -> T) -> T {
        let section = self.sections.next().unwrap();
        assert_eq!(section.title, title);
        peer.clock = Clock::Frozen(BEGIN_MS + self.seconds * 1000);
        let done = act(peer, &section.commands);
        let sent = self.sent.commands(&std::mem::take(&mut peer.tape));
        assert_eq!(sent, self.recorded.commands(&section.commands), "{title}");
        done
    }

    /// Appends what was appended in the next step, in one call.
    fn append(&mut self, peer: &mut Peer, stream: &str, title: &str, explicit: &Append) {
        self.step(peer, title, |peer, commands| append_recorded(peer, stream, &adds(commands), explicit));
    }
}

/// The field of this name of a recorded XADD.
fn field(add: &Words, name: &str) -> Option<String> {
    let fields = add[3..].chunks(2);
    let found = fields.into_iter().find(|pair| pair[0] == name.as_bytes())?;
    Some(String::from_utf8(found[1].clone()).unwrap())
}

fn adds(commands: &[Words]) -> Vec<Words> {
    commands.iter().filter(|words| words[0] == b"XADD").cloned().collect()
}

/// Appends these in one call. What the producer said beside the payload is `explicit`, and an id that
/// is no random one.
fn append_recorded(peer: &mut Peer, stream: &str, adds: &[Words], explicit: &Append) {
    let payloads: Vec<_> = adds.iter().map(|add| field(add, "payload").unwrap()).collect();
    let given = Append {
        id: field(&adds[0], "id").filter(|id| !is_random_id(id.as_bytes())),
        metadata: field(&adds[0], "metadata"),
        ..explicit.clone()
    };
    let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
    peer.append_batch(stream, &payloads, &given).unwrap();
    // As in the recording, the next call comes in another millisecond: else two partitions' entries
    // could get the same id.
    let then = crate::checker::now_ms();
    while crate::checker::now_ms() <= then {
        std::thread::yield_now();
    }
}

fn long(consumer: &str, limit: usize) -> Fetch {
    Fetch::new(consumer, limit).lease_ms(HUNDRED_YEARS_MS)
}

fn one(leases: Outcome<Vec<Lease>>) -> Lease {
    let mut leases = leases.unwrap();
    assert_eq!(leases.len(), 1);
    leases.remove(0)
}

#[test]
fn the_stand_in_sends_what_rheo_sends() {
    let server = RedisServer::start();
    let mut peer = Peer::new(&server.url(), "Fixture");
    let mut play = Play::new();
    orders(&mut play, &mut peer);
    other_groups(&mut play, &mut peer);
    multi(&mut play, &mut peer);
    rewound(&mut play, &mut peer);
    collide(&mut play, &server);
    views(&mut play, &mut peer);
}

fn orders(play: &mut Play, peer: &mut Peer) {
    let none = Append::default();
    play.step(peer, "create_stream orders", |peer, _| peer.create_stream("orders", 1)).unwrap();
    play.step(peer, "create_group orders risk max_attempts=3", |peer, _| {
        peer.create_group("orders", "risk", 3, Start::Beginning)
    })
    .unwrap();
    play.append(peer, "orders", "append #1 type+key+inline metadata lineage", &none);
    play.seconds = 1;
    play.append(peer, "orders", "append #2 unicode and escapes", &none);
    play.seconds = 2;
    let keyed = Append { key: Some("opt-key".to_owned()), ..none.clone() };
    play.append(peer, "orders", "append #3 nested and numbers", &keyed);
    play.seconds = 3;
    play.append(peer, "orders", "append_batch #4..#6", &none);
    play.seconds = 4;
    for (title, timestamp) in [
        ("append #7 explicit timestamp microseconds", "2019-12-31T23:59:59.123456Z"),
        ("append #8 explicit timestamp seconds", "2020-02-01T00:00:00Z"),
    ] {
        play.append(peer, "orders", title, &Append { timestamp: Some(timestamp.to_owned()), ..none.clone() });
    }
    play.append(peer, "orders", "append #9 big map 40 keys", &none);
    play.append(peer, "orders", "append_batch #10..#12", &none);

    let first = play
        .step(peer, "fetch risk c1 limit 7 (1..7)", |peer, _| peer.fetch("orders", "risk", &long("c1", 7)))
        .unwrap();
    play.step(peer, "fetch risk c-expired limit 1 lease_ms 1000 (8)", |peer, _| {
        peer.fetch("orders", "risk", &Fetch::new("c-expired", 1).lease_ms(1000))
    })
    .unwrap();
    // Rheo's clock stood still while it was recorded: the lease of 8 had not run out yet.
    let more = play
        .step(peer, "fetch risk c1 limit 2 (9,10)", |peer, _| peer.fetch("orders", "risk", &long("c1", 2)))
        .unwrap();
    for (title, at) in [("ack 1", 0), ("ack 2", 1), ("ack 4 (gap)", 3), ("ack 6 (gap)", 5)] {
        play.step(peer, title, |peer, _| peer.ack(&first[at])).unwrap();
    }
    play.step(peer, "reject 5 string reason", |peer, _| peer.reject(&first[4], "poison: bad schéma"))
        .unwrap();
    play.step(peer, "nack 7 attempt 1", |peer, _| peer.nack(&first[6], ":boom")).unwrap();
    let mut seven = None;
    for (fetch, nack) in [
        ("fetch risk c3 limit 1 -> 7 attempt 2", "nack 7 attempt 2"),
        ("fetch risk c3 limit 1 -> 7 attempt 3", "nack 7 attempt 3 -> dead letter max_attempts"),
    ] {
        let lease = one(play.step(peer, fetch, |peer, _| peer.fetch("orders", "risk", &long("c3", 1))));
        play.step(peer, nack, |peer, _| peer.nack(&lease, ":boom")).unwrap();
        seven = Some(lease);
    }
    let seven = seven.unwrap();
    assert_eq!((seven.event.sequence, seven.attempt), (7, 3));
    play.step(peer, "nack 3", |peer, _| peer.nack(&first[2], ":temporary_error")).unwrap();
    one(play.step(peer, "fetch risk c2 limit 1 -> 3 attempt 2 (left active)", |peer, _| {
        peer.fetch("orders", "risk", &long("c2", 1))
    }));
    play.step(peer, "nack 9 tuple reason (left released)", |peer, _| {
        peer.nack(&more[0], "{:error, %{code: 42}}")
    })
    .unwrap();
    play.step(peer, "renew 10", |peer, _| peer.renew(&more[1], 2 * HUNDRED_YEARS_MS)).unwrap();
    let stale = play.step(peer, "stale ack of l7 -> error", |peer, _| peer.ack(&seven));
    assert_eq!(stale, Err(Refusal::StaleLease));
    let other = Lease { receipt: Some("1-1".to_owned()), ..more[1].clone() };
    let mismatch = play.step(peer, "receipt mismatch ack of l10", |peer, _| peer.ack(&other));
    assert_eq!(mismatch, Err(Refusal::ReceiptMismatch));
}

fn other_groups(play: &mut Play, peer: &mut Peer) {
    play.seconds = 9;
    play.step(peer, "create_group orders audit start_after=2", |peer, _| {
        peer.create_group("orders", "audit", 5, Start::After(2))
    })
    .unwrap();
    let audit = play
        .step(peer, "fetch audit limit 5 (3..7)", |peer, _| {
            peer.fetch("orders", "audit", &long("auditor", 5))
        })
        .unwrap();
    for (title, at) in [("ack audit 4", 1), ("ack audit 5", 2), ("ack audit 7", 4)] {
        play.step(peer, title, |peer, _| peer.ack(&audit[at])).unwrap();
    }
    play.step(peer, "create_group orders late start_at=event 4 timestamp", |peer, _| {
        peer.create_group("orders", "late", 5, Start::At(BEGIN_MS + 3000))
    })
    .unwrap();
    play.step(peer, "create_group orders clean", |peer, _| {
        peer.create_group("orders", "clean", 5, Start::Beginning)
    })
    .unwrap();
    let clean = play
        .step(peer, "fetch clean limit 100", |peer, _| {
            peer.fetch("orders", "clean", &Fetch::new("rheo", 100))
        })
        .unwrap();
    play.step(peer, "ack clean all, descending", |peer, _| {
        clean.iter().rev().for_each(|lease| peer.ack(lease).unwrap());
    });
}

fn multi(play: &mut Play, peer: &mut Peer) {
    let none = Append::default();
    play.step(peer, "create_stream multi partition_count=4", |peer, _| peer.create_stream("multi", 4))
        .unwrap();
    play.step(peer, "create_group multi g", |peer, _| peer.create_group("multi", "g", 5, Start::Beginning))
        .unwrap();
    let title = "append multi keyed 12, one call each, 2 ms apart (so entry ids differ between partitions)";
    play.step(peer, title, |peer, commands| {
        for add in adds(commands) {
            append_recorded(peer, "multi", &[add], &none);
        }
    });
    let third = Append { partition: Some(3), ..none.clone() };
    play.append(peer, "multi", "append multi explicit partition 3", &third);
    play.append(peer, "multi", "append multi no key -> partition 0", &none);
    let leases = play
        .step(peer, "fetch multi g limit 6 all partitions", |peer, _| {
            peer.fetch("multi", "g", &long("w1", 6))
        })
        .unwrap();
    play.step(peer, "ack multi last of the batch, then reject the first", |peer, _| {
        peer.ack(leases.last().unwrap()).unwrap();
        peer.reject(&leases[0], "{:bad, \"x\"}").unwrap();
    });
    play.step(peer, "fetch multi g partition 3 only", |peer, _| {
        peer.fetch("multi", "g", &long("w2", 2).partition(3))
    })
    .unwrap();
    play.step(peer, "create_stream empty partition_count=2", |peer, _| peer.create_stream("empty", 2))
        .unwrap();
    play.step(peer, "create_group empty g max_attempts=1", |peer, _| {
        peer.create_group("empty", "g", 1, Start::Beginning)
    })
    .unwrap();
    let empty = play.step(peer, "fetch empty g", |peer, _| peer.fetch("empty", "g", &Fetch::new("rheo", 10)));
    assert_eq!(empty, Ok(Vec::new()));
}

fn rewound(play: &mut Play, peer: &mut Peer) {
    let none = Append::default();
    play.step(peer, "create_stream replayed + group + 5 events, ack all", |peer, commands| {
        peer.create_stream("replayed", 1).unwrap();
        peer.create_group("replayed", "g", 5, Start::Beginning).unwrap();
        append_recorded(peer, "replayed", &adds(commands), &none);
        for lease in peer.fetch("replayed", "g", &long("rheo", 5)).unwrap() {
            peer.ack(&lease).unwrap();
        }
    });
    play.step(peer, "replay replayed g from_sequence=2", |peer, _| peer.replay("replayed", "g", 2)).unwrap();
    let again = one(play.step(peer, "fetch replayed g limit 1 (3, attempt 1)", |peer, _| {
        peer.fetch("replayed", "g", &long("rheo", 1))
    }));
    assert_eq!((again.event.sequence, again.attempt), (3, 1));
    let title = "create_stream wiped + group + 3 events, reject 1, ack 3, reset confirm start_after=1";
    play.step(peer, title, |peer, commands| {
        peer.create_stream("wiped", 1).unwrap();
        peer.create_group("wiped", "g", 5, Start::Beginning).unwrap();
        let events: Vec<_> =
            adds(commands).into_iter().filter(|add| add[1].ends_with(b":s:wiped:0")).collect();
        append_recorded(peer, "wiped", &events, &none);
        let leases = peer.fetch("wiped", "g", &long("rheo", 3)).unwrap();
        peer.reject(&leases[0], ":bad").unwrap();
        peer.ack(&leases[2]).unwrap();
    });
    play.step(peer, "reset_group wiped g confirm start_after=1", |peer, _| {
        peer.reset_group("wiped", "g", Start::After(1), true)
    })
    .unwrap();
}

/// Two partitions whose entries got the same id.
fn collide(play: &mut Play, server: &RedisServer) {
    let mut peer = Peer::new(&server.url(), "Collide");
    let peer = &mut peer;
    let payloads = [r#"{"type":"p0"}"#, r#"{"key":"EUR","type":"p1"}"#];
    let title = "COLLIDE create_stream/group/append_batch in one MULTI-less pipeline on 2 partitions until ids collide";
    let mut raw = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    play.step(peer, title, |peer, _| {
        for _ in 0..1000 {
            let keys: Vec<String> = redis::cmd("KEYS").arg("rheo:Collide:*").query(&mut raw).unwrap();
            if !keys.is_empty() {
                redis::cmd("DEL").arg(keys).exec(&mut raw).unwrap();
            }
            peer.tape.clear();
            peer.create_stream("multi", 2).unwrap();
            peer.create_group("multi", "g", 5, Start::Beginning).unwrap();
            peer.append_batch("multi", &payloads, &Append::default()).unwrap();
            let rows = peer.tape.iter().filter(|words| words[0] == b"ZADD");
            let ids: Vec<_> = rows.map(|words| words[3].clone()).collect();
            if ids[0] == ids[1] {
                return;
            }
        }
        panic!("the ids never collided");
    });
    let leases = play
        .step(peer, "COLLIDE fetch both partitions", |peer, _| peer.fetch("multi", "g", &long("w1", 10)))
        .unwrap();
    let stale = play.step(peer, "COLLIDE ack p0 (stale: the fence was overwritten by p1)", |peer, _| {
        peer.ack(&leases[0])
    });
    assert_eq!(stale, Err(Refusal::StaleLease));
    let title = "COLLIDE second consumer fetch (p0 not reclaimable while p1's fence stands)";
    let none = play.step(peer, title, |peer, _| peer.fetch("multi", "g", &long("w2", 10)));
    assert_eq!(none, Ok(Vec::new()));
    play.step(peer, "COLLIDE ack p1 deletes the shared fence", |peer, _| peer.ack(&leases[1])).unwrap();
    let title = "COLLIDE second consumer fetch steals p0 from the still active w1 lease";
    let stolen = one(play.step(peer, title, |peer, _| peer.fetch("multi", "g", &long("w2", 10))));
    assert_eq!((stolen.event.partition, stolen.event.sequence, stolen.attempt), (0, 1, 2));
}

fn views(play: &mut Play, peer: &mut Peer) {
    play.step(peer, "end of writes; semantic views follow", |_, _| {});
    let lag = play.step(peer, "view: lag orders risk", |peer, _| peer.lag("orders", "risk")).unwrap();
    assert_eq!(lag.partitions[&0], (2, 12));
    let info = play.step(peer, "view: group_info multi g", |peer, _| peer.group_info("multi", "g")).unwrap();
    assert_eq!((info.0.lag, info.1, info.2), (13, 6, 1));
    let dead = play
        .step(peer, "view: dead_letters orders risk", |peer, _| {
            peer.dead_letters("orders", "risk", 100, None)
        })
        .unwrap();
    assert_eq!(dead[1].reason, "{:max_attempts, :boom}");
    let streams = play.step(peer, "view: list_streams", |peer, _| peer.list_streams()).unwrap();
    assert_eq!(streams, ["empty", "multi", "orders", "replayed", "wiped"]);
    let groups = play.step(peer, "view: list_groups orders", |peer, _| peer.list_groups("orders")).unwrap();
    assert_eq!(groups, ["audit", "clean", "late", "risk"]);
    let fx = play
        .step(peer, "view: query multi type=fx limit 5", |peer, _| {
            peer.query("multi", 0, None, 5, |event| event.event_type.as_deref() == Some("fx"))
        })
        .unwrap();
    assert_eq!(
        fx.iter().map(|event| (event.partition, event.sequence)).collect::<Vec<_>>(),
        [(0, 1), (1, 1), (3, 1), (0, 2), (1, 2)]
    );
    let between = play
        .step(peer, "view: query orders after 1 until 5", |peer, _| {
            peer.query("orders", 1, Some(5), 100, |_| true)
        })
        .unwrap();
    assert_eq!(between.len(), 4);
    let read = play.step(peer, "view: read orders after 3 limit 2", |peer, _| peer.read("orders", 0, 3, 2));
    assert_eq!(read.unwrap().len(), 2);
}
