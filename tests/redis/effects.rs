//! What can fail in the middle of an ack with effects: a script does not roll back, so each of it is
//! found before anything is written. And what only this store has to do about effects.

use wasmill::backend::{Backend, Error, Refusal, Settled};
use wasmill::event::{JsonObject, Leased, Name, NewEvent};
use wasmill::outcome::{Effects, Settlement, StagedEvent, Verdict};
use wasmill::state::{Bucket, StateRead, StateWrite};

use crate::kit::{Bench, event, until_back};

const STATE: &str = "rheo:T:state:p/accounts";

fn accounts() -> Bucket {
    Bucket::own("p", "accounts").unwrap()
}

fn staged(event: NewEvent) -> StagedEvent {
    StagedEvent { stream: Name::new("audit").unwrap(), event }
}

fn write(key: &str, value: Option<&str>) -> StateWrite {
    let value = value.map(|text| text.as_bytes().to_vec());
    StateWrite { bucket: accounts(), key: key.to_owned(), value }
}

fn append(partition: u32) -> Verdict {
    Verdict::Ack(Effects { appends: vec![staged(event(partition, 1))], ..Effects::default() })
}

fn set(key: &str) -> Verdict {
    Verdict::Ack(Effects { writes: vec![write(key, Some("1"))], ..Effects::default() })
}

/// Everything that an ack can carry; what is written last is of the last key.
fn everything() -> Verdict {
    let read = StateRead { bucket: accounts(), key: "r".to_owned(), version: 0 };
    Verdict::Ack(Effects {
        appends: vec![staged(event(0, 1)), staged(event(1, 2)), staged(event(0, 3))],
        writes: vec![write("a", Some("1")), write("b", None)],
        reads: vec![read],
    })
}

/// A bench with a second stream of two partitions, and events under lease.
async fn bench(events: usize) -> (Bench, Vec<Leased>) {
    let bench = Bench::new(1).await;
    bench.backend.create_stream(&Name::new("audit").unwrap(), 2).await.unwrap();
    bench.append(0, events).await;
    let leased = bench.claim("a", events).await.leased;
    assert_eq!(leased.len(), events);
    (bench, leased)
}

async fn settle(bench: &Bench, items: &[(&Leased, Verdict)]) -> Result<Vec<Settled>, Error> {
    let settlements: Vec<_> = items
        .iter()
        .map(|(leased, verdict)| Settlement {
            lease: leased.lease.clone(),
            verdict: verdict.clone(),
            plugin: None,
        })
        .collect();
    let request =
        wasmill::backend::SettleRequest { group: &bench.group, consumer: "c", settlements: &settlements };
    bench.backend.settle(&request).await
}

/// All that the server holds.
fn everything_stored(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let mut keys: Vec<String> = bench.raw("KEYS *");
    keys.sort();
    keys.into_iter().map(|key| (key.clone(), bench.raw_with("DUMP", &[key]))).collect()
}

/// The audit's payloads, in order.
async fn audit(bench: &Bench, partition: u32) -> Vec<String> {
    let events = bench.backend.read(&Name::new("audit").unwrap(), partition, 0, 1000).await.unwrap();
    let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
    assert!(sequences.iter().copied().eq(1..=sequences.len() as u64), "{sequences:?}");
    events.into_iter().map(|event| event.payload.as_str().to_owned()).collect()
}

/// How a key that an ack with effects writes to is made useless, by its name and by commands.
const DAMAGE: [(&str, &[&str]); 17] = [
    ("the index of the second target", &["SET rheo:T:z:audit:1 x"]),
    ("its log", &["SET rheo:T:s:audit:1 x"]),
    ("its counter", &["RPUSH rheo:T:seq:audit:1 x"]),
    ("its counter's text", &["SET rheo:T:seq:audit:1 many"]),
    ("its counter's form", &["SET rheo:T:seq:audit:1 007"]),
    ("its counter's sign", &["SET rheo:T:seq:audit:1 -1"]),
    ("its counter's size", &["SET rheo:T:seq:audit:1 4503599627370000"]),
    ("its last entry", &["XADD rheo:T:s:audit:1 9007199254740992-1 f v"]),
    ("its last entry, as far as can be", &["XADD rheo:T:s:audit:1 18446744073709551615-1 f v"]),
    ("the last entry of the first target", &["XADD rheo:T:s:audit:0 18446744073709551615-1 f v"]),
    ("the index of the first target", &["SET rheo:T:z:audit:0 x"]),
    ("the metadata of the targets", &["DEL rheo:T:meta:audit", "SET rheo:T:meta:audit x"]),
    ("the bucket", &["SET rheo:T:state:p/accounts x"]),
    ("the counter of versions", &["RPUSH rheo:T:versions x"]),
    ("its text", &["SET rheo:T:versions many"]),
    ("its form", &["SET rheo:T:versions 007"]),
    ("its size", &["SET rheo:T:versions 9223372036854775807"]),
];

#[tokio::test]
async fn whatever_can_fail_is_found_before_the_first_write() {
    for (what, commands) in DAMAGE {
        let (bench, held) = bench(3).await;
        // What is known of the streams may be remembered, or asked for.
        if what.len() % 2 == 0 {
            assert_eq!(settle(&bench, &[(&held[0], append(0))]).await.unwrap(), [Settled::Done], "{what}");
        } else {
            bench.ack(&held[..1]).await;
        }
        let before = everything_stored(&bench);
        for command in commands {
            let _: redis::Value = bench.raw(command);
        }
        let damaged = everything_stored(&bench);
        let answer = settle(&bench, &[(&held[1], everything())]).await;
        assert_eq!(answer.unwrap(), [Settled::Refused(Refusal::WrongType)], "{what}");
        assert!(everything_stored(&bench) == damaged, "{what}: something was written");

        // Its neighbours in a batch do not feel it; and the lease holds on.
        let plain = Verdict::Ack(Effects::default());
        let batch = [(&held[1], everything()), (&held[2], plain), (&held[1], everything())];
        let refused = Settled::Refused(Refusal::WrongType);
        assert_eq!(settle(&bench, &batch).await.unwrap(), [refused, Settled::Done, refused], "{what}");

        // On what was there before the damage, the same item goes through.
        let _: () = bench.raw("FLUSHALL");
        for (key, dump) in before {
            let restore: [&[u8]; 3] = [key.as_bytes(), b"0", &dump];
            let _: () = bench.raw_with("RESTORE", &restore);
        }
        assert_eq!(bench.ack(&held[2..]).await, [Settled::Done], "{what}");
        assert_eq!(settle(&bench, &[(&held[1], everything())]).await.unwrap(), [Settled::Done], "{what}");
        let first = if what.len() % 2 == 0 { vec![r#"{"n":1}"#] } else { vec![] };
        assert_eq!(audit(&bench, 0).await, [first, vec![r#"{"n":1}"#, r#"{"n":3}"#]].concat(), "{what}");
        assert_eq!(audit(&bench, 1).await, [r#"{"n":2}"#], "{what}");
        assert_eq!(bench.lag().await, 0, "{what}");
    }
}

#[tokio::test]
async fn a_damaged_target_refuses_only_what_goes_there() {
    let (bench, held) = bench(4).await;
    let _: () = bench.raw("SET rheo:T:z:audit:1 x");
    let _: String = bench.raw("XADD rheo:T:s:audit:0 9000000000000000-7 f v");
    let batch =
        [(&held[0], set("a")), (&held[1], everything()), (&held[2], append(0)), (&held[3], append(1))];
    let refused = Settled::Refused(Refusal::WrongType);
    let answers = settle(&bench, &batch).await.unwrap();
    assert_eq!(answers, [Settled::Done, refused, Settled::Done, refused]);
    // An entry from the far future is only stepped over.
    assert_eq!(audit(&bench, 0).await, [r#"{"n":1}"#]);
    let _: i64 = bench.raw("DEL rheo:T:z:audit:1");
    assert_eq!(settle(&bench, &batch[1..2]).await.unwrap(), [Settled::Done]);
    assert_eq!(settle(&bench, &batch[3..]).await.unwrap(), [Settled::Done]);
    assert_eq!(audit(&bench, 0).await, [r#"{"n":1}"#, r#"{"n":1}"#, r#"{"n":3}"#]);
    assert_eq!(audit(&bench, 1).await, [r#"{"n":2}"#, r#"{"n":1}"#]);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_damaged_key_of_the_group_is_named_before_the_first_write() {
    for key in ["s:s:0", "z:s:0", "done:s:g:0", "gmeta:s:g", "suspect:s:g:0", "redriven:s:g:0"] {
        let (bench, held) = bench(2).await;
        let key = format!("rheo:T:{key}");
        let existed: i64 = bench.raw(&format!("EXISTS {key}"));
        if existed == 1 {
            let _: () = bench.raw(&format!("RENAME {key} kept"));
        }
        let _: () = bench.raw(&format!("SET {key} x"));
        let damaged = everything_stored(&bench);
        let error = settle(&bench, &[(&held[0], everything()), (&held[1], set("b"))]).await.unwrap_err();
        assert!(matches!(&error, Error::WrongType { key: named, .. } if *named == key), "{key}: {error}");
        assert!(everything_stored(&bench) == damaged, "{key}: something was written");
        let _: i64 = bench.raw(&format!("DEL {key}"));
        if existed == 1 {
            let _: () = bench.raw(&format!("RENAME kept {key}"));
        }
        let answers = settle(&bench, &[(&held[0], everything()), (&held[1], set("b"))]).await.unwrap();
        assert_eq!(answers, [Settled::Done; 2], "{key}");
        assert_eq!((audit(&bench, 0).await.len(), bench.lag().await), (2, 0), "{key}");
    }
}

#[tokio::test]
async fn a_full_server_refuses_effects_whole() {
    let (bench, held) = bench(6).await;
    assert_eq!(settle(&bench, &[(&held[0], set("b"))]).await.unwrap(), [Settled::Done]);
    let _: () = bench.raw("CONFIG SET maxmemory 1");
    let full = everything_stored(&bench);
    let remove = Verdict::Ack(Effects { writes: vec![write("b", None)], ..Effects::default() });
    for verdict in [everything(), append(0), set("a"), remove] {
        let error = settle(&bench, &[(&held[1], verdict.clone()), (&held[2], verdict)]).await.unwrap_err();
        assert!(matches!(error, Error::Busy(_)), "{error}");
        assert!(everything_stored(&bench) == full, "something was written");
    }
    // Without effects it still drains, beside what has some too.
    assert_eq!(bench.ack(&held[3..4]).await, [Settled::Done]);
    let plain = Verdict::Ack(Effects::default());
    let error = settle(&bench, &[(&held[4], plain), (&held[5], everything())]).await.unwrap_err();
    assert!(matches!(error, Error::Ambiguous(_)), "{error}");
    assert_eq!(bench.ack(&held[4..5]).await, [Settled::Stale], "it went through");

    let _: () = bench.raw("CONFIG SET maxmemory 0");
    assert_eq!(settle(&bench, &[(&held[1], everything())]).await.unwrap(), [Settled::Done]);
    assert_eq!(bench.ack(&[held[2].clone(), held[5].clone()]).await, [Settled::Done; 2]);
    assert_eq!((audit(&bench, 0).await.len(), audit(&bench, 1).await.len()), (2, 1));
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_lost_answer_is_no_second_effect() {
    let (bench, held) = bench(2).await;
    assert_eq!(settle(&bench, &[(&held[1], append(1))]).await.unwrap(), [Settled::Done]);
    bench.server.freeze();
    let error = settle(&bench, &[(&held[0], everything())]).await.unwrap_err();
    bench.server.thaw();
    assert!(matches!(error, Error::Ambiguous(_)), "{error}");
    let answer = until_back(async || settle(&bench, &[(&held[0], everything())]).await).await;
    // What was under way when the connection was given up may have arrived or not.
    assert!(matches!(answer[..], [Settled::Stale | Settled::Done]), "{answer:?}");
    assert_eq!((audit(&bench, 0).await.len(), audit(&bench, 1).await.len()), (2, 2));
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_target_that_has_changed_is_looked_at_again() {
    let (bench, held) = bench(6).await;
    let keyed =
        |key: &str| NewEvent { key: Some(key.to_owned()), ..NewEvent::new(JsonObject::parse("{}").unwrap()) };
    let routed =
        |key: &str| Verdict::Ack(Effects { appends: vec![staged(keyed(key))], ..Effects::default() });
    let place = |key: &str, partitions| wasmill::routing::partition_for_key(Some(key), partitions);
    let key = (0..).map(|n| format!("k{n}")).find(|key| place(key, 5) >= 2).unwrap();
    assert_eq!(settle(&bench, &[(&held[0], routed(&key))]).await.unwrap(), [Settled::Done]);
    assert_eq!(audit(&bench, place(&key, 2)).await.len(), 1);
    // As another program makes it anew.
    let _: i64 = bench.raw("HSET rheo:T:meta:audit partition_count 5");
    assert_eq!(settle(&bench, &[(&held[1], routed(&key))]).await.unwrap(), [Settled::Done]);
    assert_eq!(audit(&bench, place(&key, 5)).await.len(), 1);
    let _: i64 = bench.raw("HSET rheo:T:meta:audit partition_count 7");
    assert_eq!(settle(&bench, &[(&held[2], append(6))]).await.unwrap(), [Settled::Done]);
    let beyond = settle(&bench, &[(&held[3], append(7))]).await.unwrap();
    assert_eq!(beyond, [Settled::Refused(Refusal::PartitionNotFound)]);
    let _: i64 = bench.raw("DEL rheo:T:meta:audit");
    for _ in 0..2 {
        let gone = settle(&bench, &[(&held[3], append(0)), (&held[4], set("a"))]).await.unwrap();
        assert_eq!(gone[0], Settled::Refused(Refusal::StreamNotFound));
    }
    assert_eq!(bench.ack(&[held[3].clone(), held[5].clone()]).await, [Settled::Done; 2]);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn many_small_effects_are_many_short_steps() {
    const EVENTS: usize = 40;
    let (bench, held) = bench(256).await;
    let verdict = Verdict::Ack(Effects {
        appends: (0..EVENTS).map(|n| staged(event(0, n))).collect(),
        ..Effects::default()
    });
    let calls = || -> usize {
        let stats: String = bench.raw("INFO commandstats");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
        line.split(',').next().unwrap().parse().unwrap()
    };
    let before = calls();
    let items: Vec<_> = held.iter().map(|leased| (leased, verdict.clone())).collect();
    assert_eq!(settle(&bench, &items).await.unwrap(), vec![Settled::Done; 256]);
    let steps = calls() - before;
    assert!((10..=20).contains(&steps), "{steps} steps for {} events", 256 * EVENTS);
    let info = bench.backend.stream_info(&Name::new("audit").unwrap()).await.unwrap();
    assert_eq!(info.partitions[0].high_watermark, 256 * EVENTS as u64);
}

#[tokio::test]
async fn a_value_that_is_none_of_ours_is_named_and_can_be_replaced() {
    let (bench, held) = bench(2).await;
    let _: i64 = bench.raw(&format!("HSET {STATE} a unversioned"));
    let error = bench.backend.state(&accounts(), &["a".to_owned()]).await.unwrap_err();
    assert!(matches!(&error, Error::WrongType { key, .. } if key == STATE), "{error}");
    assert_eq!(bench.backend.state_keys(&accounts(), None).await.unwrap().keys, ["a"]);
    assert_eq!(settle(&bench, &[(&held[0], set("a"))]).await.unwrap(), [Settled::Done]);
    let value = bench.backend.state(&accounts(), &["a".to_owned()]).await.unwrap().remove(0).unwrap();
    assert_eq!((value.bytes.as_slice(), value.version > 0), (&b"1"[..], true));
}
