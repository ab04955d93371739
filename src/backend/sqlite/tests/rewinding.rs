use super::*;
use crate::backend::{Positions, RewindKind};

/// More than a few steps deal with.
const MANY: usize = 3 * rewind::STEP_ROWS_MAX + 7;

/// A store in which so many events are under lease, and a first one is settled.
async fn with_many_pending(place: &Place) -> (Sqlite, Vec<Leased>) {
    let store = place.open().await;
    prepare(&store, 1, 5).await;
    for batch in events(MANY).chunks(1000) {
        store.append(&key().stream, batch).await.unwrap();
    }
    let mut leased = Vec::new();
    while leased.len() < MANY {
        leased.extend(claim(&store, MANY).await.leased);
    }
    settle(&store, &leased[..1], ack()).await;
    (store, leased)
}

fn to(kind: RewindKind, target: u64) -> Rewind {
    Rewind { kind, to: Positions::from([(0, target)]) }
}

/// How many rows there are in a table.
fn count(place: &Place, table: &str) -> i64 {
    place.stranger().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_rewind_that_was_left_half_done_goes_on_after_a_crash() {
    for (kind, target, dropped) in [
        (RewindKind::Replay, 2, MANY - 2),
        (RewindKind::Reset, 2, MANY - 1),
        (RewindKind::Delete, 0, MANY - 1),
    ] {
        let place = Place::new();
        let (mut store, leased) = with_many_pending(&place).await;
        store.begin_rewind(&key(), &to(kind, target)).await.unwrap();
        let (mut steps, mut total) = (0, 0);
        loop {
            // As after a crash: nothing is known but what is in the file.
            drop(store);
            store = place.open().await;
            if steps < 3 {
                assert_eq!(store.group_info(&key()).await.unwrap().rewind, Some(kind));
                let lease = &leased[2..3];
                assert_eq!(settle(&store, lease, ack()).await, [Settled::Stale]);
                assert_eq!(
                    store.renew(&key(), &[lease[0].lease.clone()], LONG).await.unwrap(),
                    [Settled::Stale]
                );
                assert!(matches!(store.redeliver(&key(), &[(0, 1)]).await, Err(Error::RewindUnderWay(_))));
            }
            let step = store.continue_rewind(&key()).await.unwrap();
            assert!(step.dropped <= rewind::STEP_ROWS_MAX as u64);
            steps += 1;
            total += step.dropped;
            if step.finished {
                break;
            }
        }
        assert_eq!((steps, total), (4, dropped as u64), "{kind}");
        assert_eq!(count(&place, "rewinds"), 0);
        match kind {
            RewindKind::Delete => {
                assert!(matches!(store.group_info(&key()).await, Err(Error::GroupNotFound(_))));
                for table in ["pending", "consumer_groups", "group_partitions"] {
                    assert_eq!(count(&place, table), 0, "{table}");
                }
            }
            _ => {
                // Of a replay the second event is at the position, and still leased.
                let kept = i64::from(kind == RewindKind::Replay);
                assert_eq!(count(&place, "pending"), kept);
                let state = store.group_info(&key()).await.unwrap().partitions[0];
                assert_eq!((state.frontier, state.in_flight), (2 - kept as u64, kept as u64));
                assert_eq!(claim(&store, 1).await.leased[0].event.sequence, 3);
                assert_eq!(settle(&store, &leased[1..3], ack()).await[1], Settled::Stale);
            }
        }
    }
}

#[tokio::test]
async fn claims_carry_out_what_another_began_and_do_not_wait_for_it() {
    let place = Place::new();
    let (store, _) = with_many_pending(&place).await;
    // The one that begins it is gone.
    let other = place.open().await;
    other.begin_rewind(&key(), &to(RewindKind::Reset, 0)).await.unwrap();
    drop(other);
    for left in [2 * rewind::STEP_ROWS_MAX + 6, rewind::STEP_ROWS_MAX + 6, 6] {
        soon(store.wait(&key(), &[0], LONG)).await.unwrap();
        assert_eq!(claim(&store, 10).await.leased.len(), 0);
        assert_eq!(count(&place, "pending"), left as i64);
    }
    soon(store.wait(&key(), &[0], LONG)).await.unwrap();
    let leased = claim(&store, 10).await.leased;
    assert_eq!(leased.iter().map(|l| l.event.sequence).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    assert!(leased.iter().all(|leased| leased.lease.attempt == 1));
}

#[tokio::test]
async fn a_claim_that_finishes_a_deletion_gives_nothing_and_the_next_says_that_the_group_is_gone() {
    let place = Place::new();
    let store = place.open().await;
    prepare(&store, 2, 5).await;
    store.append(&key().stream, &events(3)).await.unwrap();
    let leased = claim(&store, 1).await.leased;
    let reject = Verdict::DeadLetter {
        cause: crate::outcome::Cause::Rejected,
        reason: "no".to_owned(),
        failure: None,
    };
    settle(&store, &leased, reject).await;
    store.begin_rewind(&key(), &Rewind { kind: RewindKind::Delete, to: Positions::new() }).await.unwrap();
    assert_eq!(claim(&store, 10).await.leased.len(), 0);
    let again = store.claim(&request(&key(), &[0], 10)).await;
    assert!(matches!(again, Err(Error::GroupNotFound(_))), "{again:?}");
    for table in ["dead_letters", "rewinds", "pending"] {
        assert_eq!(count(&place, table), 0, "{table}");
    }
    assert_eq!(store.continue_rewind(&key()).await.unwrap(), RewindStep { dropped: 0, finished: true });
    // Nothing of it comes back with a new group of its name.
    let new = NewGroup { max_attempts: 5, start: Start::Beginning };
    store.create_group(&key(), new).await.unwrap();
    assert_eq!(claim(&store, 10).await.leased.len(), 3);
}

#[tokio::test]
async fn a_marker_of_an_unknown_kind_is_an_error_and_not_a_panic() {
    let place = Place::new();
    let store = place.open().await;
    prepare(&store, 1, 5).await;
    place.stranger().execute("INSERT INTO rewinds VALUES (1, 0, 'twist', 0, 0)", []).unwrap();
    assert!(matches!(store.group_info(&key()).await, Err(Error::Corrupt(_))));
    assert!(matches!(store.claim(&request(&key(), &[0], 1)).await, Err(Error::Corrupt(_))));
}
