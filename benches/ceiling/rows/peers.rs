//! A backlog of no-op work, drained end to end: against BullMQ and apalis-redis, each with the settings that
//! are best for it. `peers-settings` tries settings once each, to choose by.

use crate::line::{self, Budget};
use crate::peers::{Round, Side};
use crate::rig::Rig;
use crate::sides::{compare, median};

const ROUNDS: usize = 7;
const EVENTS: usize = 38_400;
const BYTES: usize = 200;

/// The locks of apalis-redis search the whole backlog for each task.
const EVENTS_LOCKED: usize = 6_400;

/// What a pipeline of handlers that do nothing is best run with on two cores.
const CONCURRENCY: usize = 8;
const IN_FLIGHT_MAX: usize = 256;

pub(crate) fn run() {
    let rig = Rig::start();
    let own = Side::own(CONCURRENCY, IN_FLIGHT_MAX);
    let bullmq = Side::bullmq(50, 1, 1, false);
    let apalis = Side::apalis(100, 2, (0, false), false);
    let locked = Side::apalis(100, 2, (0, false), true);
    let rounds = rounds(&rig, &[&own, &bullmq, &apalis], EVENTS);
    say("Wasmill", &rounds, 0);
    say("BullMQ", &rounds, 1);
    say("apalis-redis", &rounds, 2);
    ratio("drain, against BullMQ", &rounds, 1, Budget::AtLeast(8.0));
    ratio("drain, against apalis-redis", &rounds, 2, Budget::AtLeast(4.0));
    let rounds = self::rounds(&rig, &[&own, &locked], EVENTS_LOCKED);
    say("Wasmill, short backlog", &rounds, 0);
    say("apalis-redis with leases, short backlog", &rounds, 1);
    ratio("drain, against apalis-redis with leases", &rounds, 1, Budget::None);
}

/// Every side once a round, and first one round that does not count. Who comes first changes.
fn rounds(rig: &Rig, sides: &[&Side], events: usize) -> Vec<Vec<Round>> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        let mut figures: Vec<(usize, Round)> = Vec::with_capacity(sides.len());
        for turn in 0..sides.len() {
            let side = (turn + round) % sides.len();
            figures.push((side, sides[side].round(rig, events, BYTES)));
        }
        figures.sort_by_key(|(side, _)| *side);
        if round > 0 {
            rounds.push(figures.into_iter().map(|(_, figures)| figures).collect());
        }
    }
    rounds
}

/// What one side did for itself.
fn say(name: &str, rounds: &[Vec<Round>], side: usize) {
    let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(|round| figure(&round[side])));
    line::figure(&format!("{name}: enqueue"), "events/s", of(|r| r.enqueued_per_second), Budget::None);
    line::figure(&format!("{name}: drain"), "events/s", of(|r| r.drained_per_second), Budget::None);
    line::figure(&format!("{name}: drain, Redis CPU an event"), "µs", of(|r| r.redis_us), Budget::None);
}

/// The first side against another one.
fn ratio(what: &str, rounds: &[Vec<Round>], side: usize, budget: Budget) {
    let pair = |round: &Vec<Round>| (round[0].drained_per_second, round[side].drained_per_second);
    let pairs: Vec<(f64, f64)> = rounds.iter().map(pair).collect();
    line::ratio(what, "events/s", &compare(&pairs), budget);
}

pub(crate) fn settings() {
    let rig = Rig::start();
    let tried = |name: String, side: Side| {
        let Round { drained_per_second, redis_us, .. } = side.round(&rig, EVENTS, BYTES);
        println!("{name:<72} {drained_per_second:>9.0} events/s, {redis_us:>6.2} µs of Redis an event");
    };
    for (concurrency, workers, processes, keep) in [
        (1, 1, 1, false),
        (10, 1, 1, false),
        (50, 1, 1, false),
        (100, 1, 1, false),
        (300, 1, 1, false),
        (300, 1, 1, true),
        (100, 2, 1, false),
        (100, 1, 2, false),
        (300, 1, 2, false),
    ] {
        let what = format!(
            "BullMQ: concurrency {concurrency}, workers {workers}, processes {processes}, completed jobs {}",
            if keep { "kept" } else { "removed" }
        );
        tried(what, Side::bullmq(concurrency, workers, processes, keep));
    }
    for (batch, workers, concurrency, parallel) in [
        (10, 1, 0, false),
        (50, 1, 0, false),
        (100, 1, 0, false),
        (200, 1, 0, false),
        (500, 1, 0, false),
        (2000, 1, 0, false),
        (100, 1, 0, true),
        (100, 1, 100, false),
        (100, 1, 100, true),
        (100, 2, 0, false),
        (100, 4, 0, false),
    ] {
        let what = format!(
            "apalis-redis: batch_size {batch}, workers {workers}, concurrency {concurrency}{}",
            if parallel { ", parallelize" } else { "" }
        );
        tried(what, Side::apalis(batch, workers, (concurrency, parallel), false));
    }
    for (concurrency, in_flight_max) in [
        (1, 256),
        (2, 256),
        (4, 256),
        (8, 256),
        (16, 256),
        (64, 256),
        (4, 512),
        (8, 512),
        (8, 1024),
        (64, 1024),
        (256, 2048),
    ] {
        let what = format!("Wasmill: concurrency {concurrency}, max_in_flight {in_flight_max}");
        tried(what, Side::own(concurrency, in_flight_max));
    }
}
