//! Histories as they are when all promises hold: events live and die here by hand.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::history::{Answer, Fate, History, Micros, Plan, Record, What, Written};

/// The cap of these histories.
pub(super) const ATTEMPTS_MAX: u32 = 5;

const LEASE: Micros = 1_000_000;
const STEP: Micros = 1_000;

#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) answer: Answer,
    pub(super) stored: bool,
    pub(super) lives: Vec<Life>,
}

/// One event's life.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) partition: u32,
    pub(super) failures: u32,
    pub(super) fate: Fate,
    /// What becomes of its holders, attempt by attempt; those beyond the list do their work.
    pub(super) steps: Vec<Step>,
    /// Events are handled in the order of their turns.
    pub(super) turn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The holder handles the event and writes what comes of it.
    Run,
    /// The holder dies before it writes, and its lease runs out.
    Crash,
    /// It dies after it has written, before it says so.
    CrashAfterWriting,
    /// It drains: the attempt is handed back.
    Drain,
}

pub(super) fn batches() -> impl Strategy<Value = Vec<Batch>> {
    use Step::{Crash, CrashAfterWriting, Drain, Run};
    let step = prop_oneof![3 => Just(Run), 2 => Just(Crash), 1 => Just(CrashAfterWriting), 1 => Just(Drain)];
    let fate = prop_oneof![6 => Just(Fate::Ack), 1 => Just(Fate::Reject), 1 => Just(Fate::Never)];
    let life = (0..2u32, 0..3u32, fate, vec(step, 0..8), 0..100u32)
        .prop_map(|(partition, failures, fate, steps, turn)| Life { partition, failures, fate, steps, turn });
    let answer = prop_oneof![
        4 => Just((Answer::Stored, true)),
        1 => Just((Answer::Unknown, true)),
        1 => Just((Answer::Unknown, false)),
        1 => Just((Answer::Refused, false)),
    ];
    let batch =
        (answer, vec(life, 1..5)).prop_map(|((answer, stored), lives)| Batch { answer, stored, lives });
    vec(batch, 1..6)
}

/// The history of these lives.
pub(super) fn history(batches: &[Batch]) -> History {
    let mut world = World::default();
    let mut queue = Vec::new();
    for (number, batch) in batches.iter().enumerate() {
        for life in &batch.lives {
            let event = world.append(number as u64, batch, life);
            queue.extend(event.map(|event| (life.turn, event, life)));
        }
    }
    queue.sort_by_key(|(turn, _, _)| *turn);
    for (_, event, life) in queue {
        world.live(&event, life);
    }
    world.end()
}

struct Event {
    id: String,
    partition: u32,
    sequence: u64,
}

#[derive(Default)]
struct World {
    now: Micros,
    records: Vec<Record>,
    runs: u32,
    logs: BTreeMap<u32, Vec<bool>>,
    sums: BTreeMap<String, u64>,
}

impl World {
    fn record(&mut self, what: What) {
        self.now += STEP;
        self.records.push(Record { at: self.now, what });
    }

    fn append(&mut self, number: u64, batch: &Batch, life: &Life) -> Option<Event> {
        let id = format!("event-{}", self.records.len());
        let plan = Plan { failures: life.failures, fate: life.fate };
        self.record(What::Appended { batch: number, id: id.clone(), plan, answer: batch.answer });
        if !batch.stored {
            return None;
        }
        let log = self.logs.entry(life.partition).or_default();
        log.push(false);
        let (partition, sequence) = (life.partition, log.len() as u64);
        self.record(What::Stored { id: id.clone(), partition, sequence });
        Some(Event { id, partition, sequence })
    }

    fn live(&mut self, event: &Event, life: &Life) {
        let plan = Plan { failures: life.failures, fate: life.fate };
        let mut steps = life.steps.iter();
        let mut attempt = 1;
        while attempt <= ATTEMPTS_MAX {
            let step = *steps.next().unwrap_or(&Step::Run);
            self.runs += 1;
            let run = format!("run-{}", self.runs);
            let id = || event.id.clone();
            let (asked, until) = (self.now, self.now + STEP + LEASE);
            self.record(What::Leased { run: run.clone(), id: id(), attempt, asked, until });
            self.record(What::Delivered { run: run.clone(), id: id(), attempt });
            match step {
                Step::Drain => {
                    self.record(What::Drained { run });
                    continue;
                }
                Step::Crash => self.now += LEASE,
                Step::Run | Step::CrashAfterWriting => {
                    let (verdict, ends) = self.write(event, plan, attempt);
                    if step == Step::Run {
                        self.record(What::Written { run, id: id(), attempt, verdict });
                    }
                    if ends {
                        return self.settle(event);
                    }
                }
            }
            attempt += 1;
        }
        // The claim after the last attempt buries it.
        self.record(What::Dead { id: event.id.clone(), attempts: ATTEMPTS_MAX, rejected: false });
        self.settle(event);
    }

    /// What the store does with the handler's verdict; whether the event is settled.
    fn write(&mut self, event: &Event, plan: Plan, attempt: u32) -> (Written, bool) {
        let id = event.id.clone();
        if plan.fails_at(attempt) {
            if attempt < ATTEMPTS_MAX {
                return (Written::Retried, false);
            }
            self.record(What::Dead { id, attempts: attempt, rejected: false });
            return (Written::DeadLettered, true);
        }
        if plan.fate == Fate::Reject {
            self.record(What::Dead { id, attempts: attempt, rejected: true });
            return (Written::DeadLettered, true);
        }
        let account = format!("account-{}", event.partition);
        let sum = self.sums.entry(account.clone()).or_default();
        *sum += 1;
        let sum = *sum;
        self.record(What::Effect { id, attempt, account, sum });
        (Written::Acked, true)
    }

    fn settle(&mut self, event: &Event) {
        let log = self.logs.get_mut(&event.partition).unwrap();
        log[usize::try_from(event.sequence).unwrap() - 1] = true;
        let sequence = log.iter().take_while(|settled| **settled).count() as u64;
        self.record(What::Frontier { partition: event.partition, sequence });
    }

    fn end(mut self) -> History {
        for (account, sum) in std::mem::take(&mut self.sums) {
            self.record(What::State { account, sum });
        }
        History { attempts_max: ATTEMPTS_MAX, complete: true, records: self.records }
    }
}
