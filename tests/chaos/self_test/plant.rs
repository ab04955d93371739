//! One violation of each kind, planted into a clean history.

use super::clean::ATTEMPTS_MAX;
use crate::checker::Kind;
use crate::history::{Answer, Fate, History, Record, What};

pub(super) const KINDS: [Kind; 19] = [
    Kind::Lost,
    Kind::StoredTwice,
    Kind::StoredThoughRefused,
    Kind::TornBatch,
    Kind::OutOfOrder,
    Kind::FromNowhere,
    Kind::Unsettled,
    Kind::SettledTwice,
    Kind::WriteLost,
    Kind::EffectTwice,
    Kind::WrongFate,
    Kind::WrongState,
    Kind::AttemptTwice,
    Kind::BeyondCap,
    Kind::WrongAttempt,
    Kind::AfterSettled,
    Kind::FrontierBack,
    Kind::FrontierPastUnsettled,
    Kind::TwoLeases,
];

/// Plants it, at one of the places where that can be; false where there is none.
pub(super) fn plant(history: &mut History, kind: Kind, place: usize) -> bool {
    let records = &mut history.records;
    match kind {
        Kind::Lost => {
            let Some(id) = pick(records, place, |what| match what {
                What::Appended { id, answer: Answer::Stored, .. } => Some(id.clone()),
                _ => None,
            }) else {
                return false;
            };
            records
                .retain(|record| matches!(record.what, What::Appended { .. }) || !is_of(&record.what, &id));
        }
        Kind::StoredTwice => {
            let Some((id, partition)) =
                pick(records, place, stored).map(|(id, partition, _)| (id, partition))
            else {
                return false;
            };
            let sequence = 1 + length(records, partition);
            records.push(late(What::Stored { id, partition, sequence }));
        }
        Kind::StoredThoughRefused => {
            let Some((id, ..)) = pick(records, place, stored) else { return false };
            for record in records {
                if let What::Appended { id: this, answer, .. } = &mut record.what
                    && *this == id
                {
                    *answer = Answer::Refused;
                }
            }
        }
        Kind::TornBatch => {
            let Some((id, ..)) = pick(records, place, |what| shares_its_batch(what, records)) else {
                return false;
            };
            records.retain(|record| !matches!(&record.what, What::Stored { id: this, .. } if *this == id));
        }
        Kind::OutOfOrder => {
            let Some((id, ..)) = pick(records, place, stored) else { return false };
            for record in records {
                if let What::Stored { id: this, sequence, .. } = &mut record.what
                    && *this == id
                {
                    *sequence += 1000;
                }
            }
        }
        Kind::FromNowhere => {
            let Some((id, ..)) = pick(records, place, stored) else { return false };
            records.retain(|record| !matches!(&record.what, What::Appended { id: this, .. } if *this == id));
        }
        _ => return plant_settling(history, kind, place),
    }
    true
}

fn plant_settling(history: &mut History, kind: Kind, place: usize) -> bool {
    let records = &mut history.records;
    match kind {
        Kind::Unsettled => {
            let Some((id, ..)) = pick(records, place, stored) else { return false };
            if place % 2 == 1 {
                records.push(late(What::Unsettled { id }));
                return true;
            }
            records.retain(|record| match &record.what {
                What::Effect { .. } | What::Dead { .. } | What::Written { .. } => !is_of(&record.what, &id),
                _ => true,
            });
        }
        Kind::SettledTwice => {
            let Some((id, ..)) = pick(records, place, effect) else { return false };
            records.push(late(What::Dead { id, attempts: ATTEMPTS_MAX, rejected: false }));
        }
        Kind::WriteLost => {
            let Some(id) = pick(records, place, |what| match what {
                What::Written { id, verdict: crate::history::Written::Acked, .. } => Some(id.clone()),
                _ => None,
            }) else {
                return false;
            };
            records.retain(|record| !matches!(&record.what, What::Effect { id: this, .. } if *this == id));
        }
        Kind::EffectTwice => {
            let Some((id, attempt, account)) = pick(records, place, effect) else { return false };
            records.push(late(What::Effect { id, attempt, account, sum: 1 }));
        }
        Kind::WrongFate => {
            let Some((id, ..)) = pick(records, place, effect) else { return false };
            for record in records {
                if let What::Appended { id: this, plan, .. } = &mut record.what
                    && *this == id
                {
                    plan.fate = Fate::Reject;
                }
            }
        }
        Kind::WrongState => {
            let Some(at) = index(records, place, |what| matches!(what, What::State { .. })) else {
                return false;
            };
            let What::State { sum, .. } = &mut records[at].what else { return false };
            *sum += 1;
        }
        _ => return plant_leasing(history, kind, place),
    }
    true
}

fn plant_leasing(history: &mut History, kind: Kind, place: usize) -> bool {
    let records = &mut history.records;
    let other = || "another".to_owned();
    match kind {
        Kind::AttemptTwice => {
            let Some((id, attempt)) = pick(records, place, |what| match what {
                What::Delivered { run, id, attempt } if !drained(records, run) => {
                    Some((id.clone(), *attempt))
                }
                _ => None,
            }) else {
                return false;
            };
            records.push(late(What::Delivered { run: other(), id, attempt }));
        }
        Kind::BeyondCap => {
            let Some((id, ..)) = pick(records, place, stored) else { return false };
            records.push(late(What::Delivered { run: other(), id, attempt: ATTEMPTS_MAX + 1 }));
        }
        Kind::WrongAttempt => {
            let Some((id, settled, _)) = pick(records, place, effect) else { return false };
            records.retain(|record| match &record.what {
                What::Delivered { id: this, attempt, .. } => *this != id || *attempt != settled,
                _ => true,
            });
        }
        Kind::AfterSettled => {
            let Some((id, attempt, _)) = pick(records, place, effect) else { return false };
            records.push(late(What::Delivered { run: other(), id, attempt: attempt + 1 }));
        }
        Kind::FrontierBack => {
            let Some((partition, sequence)) = pick(records, place, |what| match what {
                What::Frontier { partition, sequence } if *sequence > 0 => Some((*partition, *sequence)),
                _ => None,
            }) else {
                return false;
            };
            records.push(late(What::Frontier { partition, sequence: sequence - 1 }));
        }
        Kind::FrontierPastUnsettled => {
            let Some((_, partition, sequence)) = pick(records, place, stored) else { return false };
            // Before anything was settled.
            records.push(Record { at: 1, what: What::Frontier { partition, sequence } });
        }
        Kind::TwoLeases => {
            let Some((id, attempt, until)) = pick(records, place, |what| match what {
                What::Leased { id, attempt, until, run, .. }
                    if !fails(records, id, *attempt) && !drained(records, run) =>
                {
                    Some((id.clone(), *attempt, *until))
                }
                _ => None,
            }) else {
                return false;
            };
            let what = What::Delivered { run: other(), id, attempt: attempt + 1 };
            records.push(Record { at: until - 1, what });
        }
        _ => unreachable!("{kind:?} is planted elsewhere"),
    }
    true
}

fn late(what: What) -> Record {
    Record { at: u64::MAX, what }
}

/// One of those that `choose` takes.
fn pick<T>(records: &[Record], place: usize, choose: impl Fn(&What) -> Option<T>) -> Option<T> {
    let count = records.iter().filter(|record| choose(&record.what).is_some()).count();
    records.iter().filter_map(|record| choose(&record.what)).nth(place.checked_rem(count)?)
}

fn index(records: &[Record], place: usize, choose: impl Fn(&What) -> bool) -> Option<usize> {
    let places: Vec<_> = (0..records.len()).filter(|&at| choose(&records[at].what)).collect();
    Some(places[place.checked_rem(places.len())?])
}

/// The last sequence of a partition.
fn length(records: &[Record], partition: u32) -> u64 {
    let stored = records.iter().filter_map(|record| stored(&record.what));
    stored.filter(|(_, this, _)| *this == partition).count() as u64
}

fn drained(records: &[Record], run: &str) -> bool {
    records.iter().any(|record| matches!(&record.what, What::Drained { run: this } if this == run))
}

/// Whether this attempt of an event is planned to fail.
fn fails(records: &[Record], event: &str, attempt: u32) -> bool {
    let plan_of = |record: &Record| match &record.what {
        What::Appended { id, plan, .. } if id == event => Some(*plan),
        _ => None,
    };
    records.iter().find_map(plan_of).is_some_and(|plan| plan.fails_at(attempt))
}

fn stored(what: &What) -> Option<(String, u32, u64)> {
    match what {
        What::Stored { id, partition, sequence } => Some((id.clone(), *partition, *sequence)),
        _ => None,
    }
}

fn effect(what: &What) -> Option<(String, u32, String)> {
    match what {
        What::Effect { id, attempt, account, .. } => Some((id.clone(), *attempt, account.clone())),
        _ => None,
    }
}

/// An event that is stored, and not the only one of its batch.
fn shares_its_batch(what: &What, records: &[Record]) -> Option<(String, u32, u64)> {
    let (id, partition, sequence) = stored(what)?;
    let batch_of = |record: &Record| match &record.what {
        What::Appended { batch, id, .. } => Some((*batch, id.clone())),
        _ => None,
    };
    let (batch, _) = records.iter().filter_map(batch_of).find(|(_, this)| *this == id)?;
    let size = records.iter().filter_map(batch_of).filter(|(this, _)| *this == batch).count();
    (size > 1).then_some((id, partition, sequence))
}

fn is_of(what: &What, event: &str) -> bool {
    match what {
        What::Appended { id, .. }
        | What::Delivered { id, .. }
        | What::Written { id, .. }
        | What::Leased { id, .. }
        | What::Stored { id, .. }
        | What::Effect { id, .. }
        | What::Dead { id, .. }
        | What::Unsettled { id } => id == event,
        What::Drained { .. } | What::Frontier { .. } | What::State { .. } => false,
    }
}
