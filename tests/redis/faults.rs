//! What servers do to their clients.

use std::time::{Duration, Instant};

use wasmill::backend::redis::Persistence;
use wasmill::backend::{Backend as _, Error, Settled};
use wasmill::outcome::{Cause, Verdict};

use crate::kit::{Bench, LONG, connect, event, retry, sequences, until_back};
use crate::server::RedisServer;

#[tokio::test]
async fn a_server_that_forgot_the_scripts_gets_them_again() {
    let bench = Bench::new(2).await;
    let _: () = bench.raw("SCRIPT FLUSH");
    bench.append(0, 2).await;
    bench.append(1, 2).await;
    let _: () = bench.raw("SCRIPT FLUSH");
    // Inside the claim's transaction: the entries are read, but not leased by the script.
    let leased = bench.claim("a", 10).await.leased;
    assert_eq!(leased.len(), 4);
    assert!(leased.iter().all(|leased| leased.lease.attempt == 1));
    let _: () = bench.raw("SCRIPT FLUSH");
    let leases: Vec<_> = leased.iter().map(|leased| leased.lease.clone()).collect();
    assert_eq!(bench.backend.renew(&bench.group, &leases, LONG).await.unwrap(), [Settled::Done; 4]);
    let _: () = bench.raw("SCRIPT FLUSH");
    assert_eq!(bench.ack(&leased).await, [Settled::Done; 4]);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_full_server_still_drains() {
    let bench = Bench::new(1).await;
    bench.append(0, 20).await;
    let leased = bench.claim("a", 4).await.leased;
    let _: () = bench.raw("CONFIG SET maxmemory 1");
    let full = bench.backend.append(&bench.group.stream, &[event(0, 0)]).await.unwrap_err();
    assert!(matches!(full, Error::Busy(_)), "{full}");
    let full = bench.try_claim("a", 4, LONG, false).await.unwrap_err();
    assert!(matches!(full, Error::Busy(_)), "{full}");
    let leases = [leased[0].lease.clone()];
    assert_eq!(bench.backend.renew(&bench.group, &leases, LONG).await.unwrap(), [Settled::Done]);
    assert_eq!(bench.ack(&leased[..1]).await, [Settled::Done]);
    let parked = bench.settle(&leased[1..2], |_| retry(Duration::ZERO)).await.unwrap();
    assert_eq!(parked, [Settled::Done]);
    let reject = |_: &_| Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".into(), failure: None };
    assert_eq!(bench.settle(&leased[2..3], reject).await.unwrap(), [Settled::Done]);
    let _: () = bench.raw("CONFIG SET maxmemory 0");

    // Nothing of what was refused has left a trace: no sequence is missing, all come.
    bench.append(0, 1).await;
    let mut rest = bench.claim("a", 100).await.leased;
    rest.extend(bench.sweep_until("a", 18 - rest.len()).await);
    bench.ack(&rest).await;
    bench.ack(&leased[3..]).await;
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_key_of_another_type_is_named() {
    let bench = Bench::new(2).await;
    bench.append(0, 2).await;
    let leased = bench.claim("a", 1).await.leased;
    let key_of = |error: Error| match error {
        Error::WrongType { key, .. } => key,
        other => panic!("{other}"),
    };
    let _: () = bench.raw("SET rheo:T:done:s:g:0 x");
    let error = bench.settle(&leased, |_| Verdict::Ack(Default::default())).await.unwrap_err();
    assert_eq!(key_of(error), "rheo:T:done:s:g:0");
    let _: i64 = bench.raw("DEL rheo:T:done:s:g:0");
    assert_eq!(bench.ack(&leased).await, [Settled::Done], "nothing was written before");

    let _: () = bench.raw("RENAME rheo:T:z:s:0 kept");
    let _: () = bench.raw("SET rheo:T:z:s:0 x");
    let error = bench.backend.append(&bench.group.stream, &[event(0, 0)]).await.unwrap_err();
    assert_eq!(key_of(error), "rheo:T:z:s:0");
    let _: () = bench.raw("RENAME kept rheo:T:z:s:0");
    // The last two are numbers, but the server adds nothing to the one, and the other makes entry ids
    // that no double holds.
    for text in ["many", "007", "9007199254730000"] {
        let _: () = bench.raw(&format!("SET rheo:T:seq:s:0 {text}"));
        let error = bench.backend.append(&bench.group.stream, &[event(0, 0)]).await.unwrap_err();
        assert_eq!(key_of(error), "rheo:T:seq:s:0");
        assert_eq!(bench.raw::<u64>("XLEN rheo:T:s:s:0"), 2, "something was written");
    }
    let _: () = bench.raw("SET rheo:T:s:s:0 x");
    assert_eq!(key_of(bench.try_claim("a", 1, LONG, false).await.unwrap_err()), "rheo:T:s:s:0");
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let mut bench = Bench::on(RedisServer::durable(), 1, 5).await;
    bench.append(0, 10).await;
    let leased = bench.claim("a", 5).await.leased;
    bench.ack(&leased[..2]).await;
    bench.server.kill9();
    let error = bench.settle(&leased[2..3], |_| retry(LONG)).await.unwrap_err();
    assert!(matches!(error, Error::Ambiguous(_) | Error::Unavailable(_)), "{error}");
    // From now on calls fail at once, without a word on the way.
    let started = Instant::now();
    let error = bench.try_claim("a", 1, LONG, false).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(2));
    bench.server.start_again();
    until_back(async || bench.backend.ping().await).await;
    assert_eq!(bench.ack(&leased[2..]).await, [Settled::Done; 3]);
    let rest = bench.claim("a", 10).await.leased;
    assert_eq!(sequences(&rest), [6, 7, 8, 9, 10]);
    bench.ack(&rest).await;
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn an_overdue_answer_leaves_a_write_unknown() {
    let bench = Bench::new(1).await;
    bench.server.freeze();
    let error = bench.backend.append(&bench.group.stream, &[event(0, 0)]).await.unwrap_err();
    bench.server.thaw();
    assert!(matches!(error, Error::Ambiguous(_)), "{error}");
    until_back(async || bench.backend.ping().await).await;
}

#[tokio::test]
async fn a_wait_survives_the_loss_of_its_connection() {
    let bench = Bench::new(1).await;
    let wait = |time| bench.backend.wait(&bench.group, &[0], time);
    wait(Duration::from_millis(20)).await.unwrap();
    // A wait given up half-way leaves no answer behind that another would take for its own.
    for _ in 0..10 {
        let _ = tokio::time::timeout(Duration::from_millis(5), wait(LONG)).await;
    }
    let _: i64 = bench.raw("CLIENT KILL TYPE normal SKIPME yes");
    until_back(async || wait(Duration::from_millis(20)).await).await;
    bench.append(0, 1).await;
    let started = Instant::now();
    wait(LONG).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn credentials_databases_and_sockets() {
    let server = RedisServer::start_with(&[
        "--requirepass",
        "hunter2",
        "--user",
        "ann",
        "on",
        ">s3cret",
        "~*",
        "&*",
        "+@all",
    ]);
    let port = server.port();
    for text in [
        format!("redis://:hunter2@127.0.0.1:{port}"),
        format!("redis://ann:s3cret@127.0.0.1:{port}/3"),
        format!("{}?user=ann&pass=s3cret&db=3", server.socket_url()),
    ] {
        connect(&text).await.unwrap().ping().await.unwrap();
    }
    for text in [
        server.url(),
        format!("redis://:wr0ng@127.0.0.1:{port}"),
        format!("redis://:hunter2@127.0.0.1:{port}/9999"),
        "redis://:wr0ng@127.0.0.1:1".to_owned(),
        // TLS to a port that speaks none.
        format!("rediss://:wr0ng@127.0.0.1:{port}"),
    ] {
        let error = connect(&text).await.err().unwrap();
        assert!(matches!(error, Error::Refused(_) | Error::Unavailable(_)), "{error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("wr0ng"), "{shown}");
    }
    // Two databases share nothing.
    let three = connect(&format!("redis://ann:s3cret@127.0.0.1:{port}/3")).await.unwrap();
    three.create_stream(&wasmill::event::Name::new("s").unwrap(), 1).await.unwrap();
    let zero = connect(&format!("redis://:hunter2@127.0.0.1:{port}")).await.unwrap();
    assert_eq!(zero.streams().await.unwrap(), []);
    assert_eq!(three.streams().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_user_may_be_kept_from_what_only_check_asks() {
    let server = RedisServer::start_with(&[
        "--user", "ann", "on", ">s3cret", "~rheo:*", "&*", "+@all", "-config", "-info",
    ]);
    let backend = connect(&format!("redis://ann:s3cret@127.0.0.1:{}", server.port())).await.unwrap();
    assert_eq!(backend.server_report().await.unwrap(), Default::default());
    backend.create_stream(&wasmill::event::Name::new("s").unwrap(), 1).await.unwrap();

    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"]);
    let report = connect(&server.url()).await.unwrap().server_report().await.unwrap();
    assert_eq!(report.persistence, Some(Persistence::Log));
    assert_eq!((report.evicts_streams(), report.is_supported()), (Some(true), Some(true)));
    assert_eq!(report.is_replica, Some(false));
}

#[tokio::test]
async fn a_replica_takes_no_writes() {
    let bench = Bench::new(1).await;
    bench.append(0, 1).await;
    let _: () = bench.raw("REPLICAOF 127.0.0.1 1");
    let error = bench.backend.append(&bench.group.stream, &[event(0, 0)]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    let _: () = bench.raw("REPLICAOF NO ONE");
    until_back(async || bench.backend.append(&bench.group.stream, &[event(0, 0)]).await).await;
    assert_eq!(bench.claim("a", 10).await.leased.len(), 2);
}

#[tokio::test]
async fn a_few_expired_leases_are_found_behind_very_many_live_ones() {
    let bench = Bench::new(1).await;
    bench.append(0, 30_000).await;
    let mut live = 0;
    while live < 29_990 {
        live += bench.claim("alive", (29_990 - live).min(1000)).await.leased.len();
    }
    let lost = bench.claim("dead", 10).await.leased;
    assert_eq!(lost.len(), 10);
    // As if their holder had gone ten minutes ago.
    for leased in &lost {
        let id = &leased.lease.receipt;
        let _: Vec<String> = bench.raw(&format!("XCLAIM rheo:T:s:s:0 g dead 0 {id} IDLE 600000 JUSTID"));
        let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{id} expires_at_ms 1"));
    }
    let mut found = Vec::new();
    for _ in 0..3 {
        let lease = Duration::from_secs(300);
        found.extend(bench.try_claim("next", 20, lease, true).await.unwrap().leased);
    }
    assert_eq!(sequences(&found), sequences(&lost));
}
