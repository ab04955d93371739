//! What a client of Redis can ask for, each operation once.

use std::time::Duration;

use wasmill::backend::redis::Redis;
use wasmill::backend::{
    Backend as _, ClaimRequest, Error, NewGroup, Positions, Rewind, RewindKind, ScanRange, SettleRequest,
    Start, Trim,
};
use wasmill::event::{GroupKey, JsonObject, Lease, Name, NewEvent};
use wasmill::outcome::{Cause, Effects, Settlement, StagedEvent, Verdict};
use wasmill::state::{Bucket, StateRead, StateWrite};

/// The operations by name. Their numbers are part of the corpus: new ones go to the end.
pub(crate) const OPERATIONS: &[&str] = &[
    "ping",
    "create-stream",
    "streams",
    "stream-info",
    "create-group",
    "groups",
    "group-info",
    "append",
    "scan",
    "trim",
    "claim",
    "renew",
    "settle",
    "settle-effects",
    "pending",
    "dead-letters",
    "purge",
    "redrive",
    "redeliver",
    "rewind",
    "explain",
    "heal",
    "state",
    "state-keys",
    "wait",
    "report",
];

/// A stream `s` with the group `g`.
pub(crate) fn group() -> GroupKey {
    GroupKey::new(Name::new("s").unwrap(), Name::new("g").unwrap())
}

pub(crate) fn event() -> NewEvent {
    NewEvent { key: Some("k".to_owned()), ..NewEvent::new(JsonObject::parse("{\"n\":1}").unwrap()) }
}

/// Carries out an operation on two partitions of [`group`]; `leases` are those that it renews or
/// settles, `rows` the dead letters that it removes. An answer is only looked at for its size.
pub(crate) async fn carry_out(
    name: &str,
    redis: &Redis,
    leases: &[Lease],
    rows: &[String],
) -> Result<(), Error> {
    let group = &group();
    let stream = &group.stream;
    let bucket = Bucket::own("p", "default").unwrap();
    let keys = ["a".to_owned(), "b".to_owned()];
    match name {
        "ping" => redis.ping().await,
        "create-stream" => redis.create_stream(&Name::new("s2").unwrap(), 2).await,
        "streams" => redis.streams().await.map(drop),
        "stream-info" => redis.stream_info(stream).await.map(drop),
        "create-group" => {
            let second = GroupKey::new(stream.clone(), Name::new("g2").unwrap());
            redis.create_group(&second, NewGroup { max_attempts: 3, start: Start::End }).await
        }
        "groups" => redis.groups(stream).await.map(drop),
        "group-info" => redis.group_info(group).await.map(drop),
        "append" => redis.append(stream, &[event(), event()]).await.map(drop),
        "scan" => {
            redis.scan(stream, 0, ScanRange::after(0, 10)).await?;
            redis.read(stream, 1, 0, 10).await.map(drop)
        }
        "trim" => {
            let trim = Trim { partition: 0, max_length: Some(1), max_age: None, until: None, force: false };
            redis.trim(stream, trim).await.map(drop)
        }
        "claim" => {
            for alone in [false, true] {
                let request = ClaimRequest {
                    group,
                    consumer: "c",
                    partitions: &[0, 1],
                    limit: 10,
                    lease: Duration::from_secs(30),
                    sweep: true,
                    alone,
                };
                let claimed = redis.claim(&request).await?;
                assert!(claimed.leased.iter().all(|leased| leased.lease.attempt >= 1));
            }
            Ok(())
        }
        "renew" => {
            let answers = redis.renew(group, leases, Duration::from_secs(30)).await?;
            assert_eq!(answers.len(), leases.len(), "an answer an item");
            Ok(())
        }
        "settle" => {
            settle(redis, leases, |n| match n {
                0 => Verdict::Ack(Effects::default()),
                1 => Verdict::Retry {
                    delay: Duration::from_secs(1),
                    reason: "later".to_owned(),
                    failure: wasmill::outcome::FailureKind::Retry,
                },
                _ => Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None },
            })
            .await
        }
        "settle-effects" => {
            settle(redis, leases, |_| {
                Verdict::Ack(Effects {
                    appends: vec![StagedEvent { stream: stream.clone(), event: event() }],
                    writes: vec![StateWrite {
                        bucket: bucket.clone(),
                        key: "a".to_owned(),
                        value: Some(b"1".to_vec()),
                    }],
                    reads: vec![StateRead { bucket: bucket.clone(), key: "a".to_owned(), version: 0 }],
                })
            })
            .await
        }
        "pending" => redis.pending(group, 0, None, 10).await.map(drop),
        "dead-letters" => redis.dead_letters(group, None, 10).await.map(drop),
        "purge" => redis.purge(group, rows).await.map(drop),
        "redrive" => redis.redrive(group, rows).await.map(drop),
        "redeliver" => redis.redeliver(group, &[(0, 1), (1, 1)]).await.map(drop),
        "rewind" => {
            let rewind = Rewind { kind: RewindKind::Replay, to: Positions::from([(0, 0), (1, 0)]) };
            redis.begin_rewind(group, &rewind).await?;
            redis.continue_rewind(group).await.map(drop)
        }
        "explain" => redis.explain(group, 0).await.map(drop),
        "heal" => redis.heal(group, 0).await.map(drop),
        "state" => redis.state(&bucket, &keys).await.map(drop),
        "state-keys" => redis.state_keys(&bucket, None).await.map(drop),
        "wait" => redis.wait(group, &[0, 1], Duration::from_millis(20)).await,
        "report" => redis.server_report().await.map(drop),
        other => panic!("no operation is called {other}"),
    }
}

async fn settle(redis: &Redis, leases: &[Lease], verdict: impl Fn(usize) -> Verdict) -> Result<(), Error> {
    let settlement = |(n, lease): (usize, &Lease)| Settlement {
        lease: lease.clone(),
        verdict: verdict(n),
        plugin: Some("0123".into()),
    };
    let settlements: Vec<Settlement> = leases.iter().enumerate().map(settlement).collect();
    let request = SettleRequest { group: &group(), consumer: "c", settlements: &settlements };
    let answers = redis.settle(&request).await?;
    assert_eq!(answers.len(), leases.len(), "an answer an item");
    Ok(())
}
