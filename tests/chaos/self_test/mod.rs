//! Who checks the checker: clean histories pass, and each kind of planted violation is named.

mod clean;
mod plant;

use proptest::prelude::*;

use crate::checker::{Kind, check};
use clean::{Life, batches, history};
use plant::{KINDS, plant};

/// What each planted violation is planted into: every kind of life is in it.
fn rich() -> Vec<clean::Batch> {
    use crate::history::{Answer, Fate};
    use clean::Step::{Crash, CrashAfterWriting, Run};
    let life =
        |failures, fate, steps: &[_]| Life { partition: 0, failures, fate, steps: steps.to_vec(), turn: 0 };
    let lives = vec![
        life(0, Fate::Ack, &[]),
        Life { partition: 1, turn: 9, ..life(0, Fate::Ack, &[Crash, Run]) },
        life(2, Fate::Ack, &[CrashAfterWriting]),
        Life { turn: 5, ..life(1, Fate::Reject, &[]) },
        life(0, Fate::Never, &[Crash, Crash]),
        Life { partition: 1, ..life(0, Fate::Ack, &[CrashAfterWriting]) },
        Life { turn: 3, ..life(0, Fate::Ack, &[Crash, Crash, Crash, Crash, Crash]) },
    ];
    let batch = |answer, stored, lives| clean::Batch { answer, stored, lives };
    vec![
        batch(Answer::Stored, true, lives.clone()),
        batch(Answer::Unknown, true, lives.clone()),
        batch(Answer::Unknown, false, lives[..2].to_vec()),
        batch(Answer::Refused, false, lives[..2].to_vec()),
    ]
}

#[test]
fn each_planted_violation_is_named() {
    let clean = history(&rich());
    assert_eq!(check(&clean), [], "a clean history");
    for kind in KINDS {
        let mut broken = clean.clone();
        assert!(plant(&mut broken, kind, 0), "{kind:?} can be planted");
        let found = check(&broken);
        assert!(found.iter().any(|violation| violation.kind == kind), "{kind:?} is not named: {found:?}");
    }
}

#[test]
fn a_history_that_was_cut_off_is_not_asked_for_what_it_could_not_finish() {
    let mut cut = history(&rich());
    cut.complete = false;
    cut.records.truncate(cut.records.len() / 2);
    assert_eq!(check(&cut), []);
    assert!(plant(&mut cut, Kind::FrontierBack, 0) && plant(&mut cut, Kind::AttemptTwice, 0));
    let kinds: Vec<_> = check(&cut).iter().map(|violation| violation.kind).collect();
    assert_eq!(kinds, [Kind::AttemptTwice, Kind::FrontierBack]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clean_histories_pass_and_one_random_fault_is_named(
        batches in batches(),
        kind in 0..KINDS.len(),
        place in any::<usize>(),
    ) {
        let mut history = history(&batches);
        let found = check(&history);
        prop_assert!(found.is_empty(), "accused wrongly: {found:?}");
        let kind = KINDS[kind];
        if plant(&mut history, kind, place) {
            let found = check(&history);
            prop_assert!(found.iter().any(|v| v.kind == kind), "{kind:?} is not named: {found:?}");
        }
    }
}
