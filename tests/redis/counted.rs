//! What an event costs Redis in commands and in calls of scripts. Counted by the server, not timed: a
//! step that comes to ask more is found here on any machine, however busy.

use std::collections::BTreeMap;
use std::time::Duration;

use wasmill::backend::Backend as _;
use wasmill::event::Leased;
use wasmill::outcome::{Cause, Effects, Verdict};

use crate::kit::{Bench, event, retry};

const BATCH: usize = 64;
const BATCHES: usize = 100;

/// The most that an event may take. The figures are the same in every run: a lower one is a reason to lower
/// the bound.
struct Bound {
    commands: f64,
    scripts: f64,
}

/// Measured: 1.125 commands and 0.0156 calls of scripts an event.
const APPEND: Bound = Bound { commands: 1.15, scripts: 0.016 };
/// Claimed and acked in order. Measured: 2.406 and 0.0469.
const CLAIM_ACK: Bound = Bound { commands: 2.45, scripts: 0.048 };
/// Claimed and settled, of a hundred 95 acked, 4 parked and 1 a dead letter. Measured: 2.563 and 0.0469.
const CLAIM_SETTLE: Bound = Bound { commands: 2.6, scripts: 0.048 };

/// The calls of each command since the count was set to zero, those from within scripts too, less those
/// that count.
fn calls(bench: &Bench) -> BTreeMap<String, f64> {
    let info: String = bench.raw("INFO commandstats");
    let line = |line: &str| {
        let (command, facts) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = facts.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
        let ours = !matches!(command, "info" | "config|resetstat" | "config");
        ours.then(|| (command.to_owned(), calls))
    };
    info.lines().filter_map(line).collect()
}

/// Does some work on `BATCHES` batches, and holds what it took against the bound.
async fn counted(what: &str, bench: &Bench, bound: &Bound, work: impl Future<Output = ()>) {
    let _: () = bench.raw("CONFIG RESETSTAT");
    work.await;
    let calls = calls(bench);
    let each = |sum: f64| sum / (BATCH * BATCHES) as f64;
    let scripts = each(calls.iter().filter(|(name, _)| name.starts_with("eval")).map(|(_, n)| n).sum());
    let commands = each(calls.values().sum());
    assert!(commands > 0.0 && scripts > 0.0, "nothing was counted: {calls:?}");
    let within = commands <= bound.commands && scripts <= bound.scripts;
    let found = format!("{what}: {commands:.4} commands and {scripts:.4} calls of scripts an event");
    assert!(within, "{found}, at most {} and {} are allowed; {calls:?}", bound.commands, bound.scripts);
    println!("{found}");
}

async fn append(bench: &Bench) {
    let events: Vec<_> = (0..BATCH).map(|n| event(0, n)).collect();
    for _ in 0..BATCHES {
        bench.backend.append(&bench.group.stream, &events).await.unwrap();
    }
}

async fn consume(bench: &Bench, verdict: impl Fn(&Leased) -> Verdict) {
    for _ in 0..BATCHES {
        let leased = bench.claim("c", BATCH).await.leased;
        assert_eq!(leased.len(), BATCH);
        bench.settle(&leased, &verdict).await.unwrap();
    }
}

#[tokio::test]
async fn commands_and_scripts_an_event() {
    let bench = Bench::new(1).await;
    // What is asked once, of a stream and a group that are new to this process.
    append(&bench).await;
    consume(&bench, |_| Verdict::Ack(Effects::default())).await;

    counted("append", &bench, &APPEND, append(&bench)).await;
    let ack = consume(&bench, |_| Verdict::Ack(Effects::default()));
    counted("claim + ack", &bench, &CLAIM_ACK, ack).await;
    append(&bench).await;
    let settle = consume(&bench, |leased| match leased.lease.sequence % 100 {
        0 => Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None },
        1..=4 => retry(Duration::from_secs(3600)),
        _ => Verdict::Ack(Effects::default()),
    });
    counted("claim + settle", &bench, &CLAIM_SETTLE, settle).await;
}
