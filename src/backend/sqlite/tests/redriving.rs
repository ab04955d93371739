use super::*;
use crate::backend::{DeadEvent, Positions, RewindKind, rewind};
use crate::outcome::{Cause, FailureKind};

fn reject() -> Verdict {
    Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".to_owned(), failure: None }
}

/// A store whose group has settled all of some events, and rejected the first of them.
async fn with_a_dead_letter(place: &Place) -> Sqlite {
    let store = place.open().await;
    prepare(&store, 1, 2).await;
    store.append(&key().stream, &events(3)).await.unwrap();
    let leased = claim(&store, 3).await.leased;
    settle(&store, &leased[..1], reject()).await;
    settle(&store, &leased[1..], ack()).await;
    store
}

async fn first_row(store: &Sqlite) -> String {
    store.dead_letters(&key(), None, 1).await.unwrap()[0].row.clone()
}

async fn redrive_first(store: &Sqlite) {
    let row = first_row(store).await;
    assert_eq!(store.redrive(&key(), &[row]).await.unwrap(), [Redriven::Done]);
}

async fn forced_trim(store: &Sqlite, until: u64) -> u64 {
    let trim = Trim { until: Some(until), force: true, ..Trim::default() };
    store.trim(&key().stream, trim).await.unwrap().removed
}

fn records(place: &Place) -> i64 {
    place.stranger().query_row("SELECT count(*) FROM redriven", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_redriven_event_outlives_a_trim_and_a_crash_and_dies_whole() {
    let place = Place::new();
    let store = with_a_dead_letter(&place).await;
    let original = store.read(&key().stream, 0, 0, 1).await.unwrap().remove(0);
    redrive_first(&store).await;
    assert_eq!(forced_trim(&store, 3).await, 3);
    drop(store);

    let store = place.open().await;
    let pending = store.pending(&key(), 0, None, 10).await.unwrap();
    assert_eq!(pending[0].event_id.as_deref(), Some(original.id.as_str()));
    let state = store.group_info(&key()).await.unwrap().partitions[0];
    assert_eq!((state.frontier, state.parked, state.redriven, state.missing), (3, 1, 1, 0));
    for attempt in 1..=2 {
        let leased = claim(&store, 10).await.leased;
        assert_eq!((leased.len(), leased[0].lease.attempt), (1, attempt));
        assert_eq!(leased[0].event, original);
        let delay = Duration::ZERO;
        let retry = Verdict::Retry { delay, reason: "later".to_owned(), failure: FailureKind::Retry };
        settle(&store, &leased, retry).await;
    }
    let claimed = claim(&store, 10).await;
    assert_eq!(claimed.dead_lettered[0].cause, Cause::AttemptsExhausted);
    let letters = store.dead_letters(&key(), None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].event, DeadEvent::Event(Box::new(original.clone())));
    assert_eq!(records(&place), 0);

    // And once more, from the copy of the copy.
    redrive_first(&store).await;
    let leased = claim(&store, 10).await.leased;
    assert_eq!((&leased[0].event, leased[0].lease.attempt), (&original, 1));
    assert_eq!(settle(&store, &leased, ack()).await, [Settled::Done]);
    assert_eq!(records(&place), 0);
    let info = store.group_info(&key()).await.unwrap();
    assert_eq!((info.dead_letters, info.partitions[0].in_flight), (0, 0));
}

#[tokio::test]
async fn a_rewind_drops_no_event_that_only_its_record_holds() {
    for kind in [RewindKind::Replay, RewindKind::Reset] {
        let place = Place::new();
        let store = with_a_dead_letter(&place).await;
        redrive_first(&store).await;
        let held = claim(&store, 1).await.leased;
        assert_eq!(forced_trim(&store, 1).await, 1);
        rewind(&store, &key(), &Rewind { kind, to: Positions::from([(0, 0)]) }).await.unwrap();

        assert_eq!(settle(&store, &held, ack()).await, [Settled::Stale], "{kind}");
        let state = store.group_info(&key()).await.unwrap().partitions[0];
        assert_eq!((state.frontier, state.parked, state.redriven), (1, 1, 1), "{kind}");
        let again = claim(&store, 10).await.leased;
        assert_eq!(again.iter().map(|l| l.event.sequence).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(again.iter().all(|leased| leased.lease.attempt == 1));
        assert_eq!(settle(&store, &again, ack()).await, [Settled::Done; 3]);
        let state = store.group_info(&key()).await.unwrap().partitions[0];
        assert_eq!((state.frontier, state.redriven, state.missing), (3, 0, 0));
    }
}

#[tokio::test]
async fn what_a_replay_delivers_anyway_is_not_redriven_and_what_was_trimmed_is() {
    let place = Place::new();
    let store = with_a_dead_letter(&place).await;
    let replay = Rewind { kind: RewindKind::Replay, to: Positions::from([(0, 0)]) };
    rewind(&store, &key(), &replay).await.unwrap();
    let row = first_row(&store).await;
    assert_eq!(store.redrive(&key(), std::slice::from_ref(&row)).await.unwrap(), [Redriven::Underway]);
    assert_eq!(forced_trim(&store, 1).await, 1);
    assert_eq!(store.redrive(&key(), std::slice::from_ref(&row)).await.unwrap(), [Redriven::Done]);
    assert_eq!(store.redrive(&key(), &[row]).await.unwrap(), [Redriven::Gone]);
    let leased = claim(&store, 10).await.leased;
    assert_eq!(leased.iter().map(|l| l.event.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    settle(&store, &leased, ack()).await;
    let state = store.group_info(&key()).await.unwrap().partitions[0];
    // It was not missed: the group had it from the record.
    assert_eq!((state.frontier, state.missing), (3, 0));
}

#[tokio::test]
async fn waiting_ends_when_another_process_redrives() {
    let place = Place::new();
    let store = Arc::new(with_a_dead_letter(&place).await);
    let other = place.open().await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait(&key(), &[0], LONG).await }
    });
    // The waiting one has looked at least once, and found nothing.
    store.wait(&key(), &[0], Duration::from_millis(120)).await.unwrap();
    assert!(!waiting.is_finished());
    redrive_first(&other).await;
    soon(waiting).await.unwrap().unwrap();
    assert_eq!(claim(&store, 1).await.leased.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_redrive_the_same_rows_offer_each_event_once() {
    let place = Place::new();
    let stores = [place.open().await, place.open().await];
    prepare(&stores[0], 1, 2).await;
    stores[0].append(&key().stream, &events(100)).await.unwrap();
    let leased = claim(&stores[0], 100).await.leased;
    settle(&stores[0], &leased, reject()).await;
    let letters = stores[0].dead_letters(&key(), None, 100).await.unwrap();
    let rows: Vec<String> = letters.into_iter().map(|letter| letter.row).collect();
    let mut redriving = tokio::task::JoinSet::new();
    for store in stores {
        let rows = rows.clone();
        redriving.spawn(async move {
            let mut done = 0;
            for row in rows {
                match store.redrive(&key(), &[row]).await.unwrap()[..] {
                    [Redriven::Done] => done += 1,
                    [Redriven::Gone] => {}
                    ref other => panic!("{other:?}"),
                }
            }
            done
        });
    }
    assert_eq!(soon(redriving.join_all()).await.iter().sum::<u64>(), 100);
    assert_eq!(records(&place), 100);
    assert_eq!(claim(&place.open().await, 200).await.leased.len(), 100);
}
