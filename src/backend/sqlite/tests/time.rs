use std::sync::Arc;

use super::*;
use crate::backend::PendingState;
use crate::outcome::FailureKind;

const MINUTE: Duration = Duration::from_secs(60);

fn retry(delay: Duration) -> Verdict {
    Verdict::Retry { delay, reason: "later".to_owned(), failure: FailureKind::Retry }
}

async fn sweep(store: &Sqlite, lease: Duration) -> Claimed {
    let key = key();
    store.claim(&ClaimRequest { lease, sweep: true, ..request(&key, &[0], 10) }).await.unwrap()
}

#[tokio::test]
async fn a_wall_clock_set_back_neither_ends_nor_prolongs_a_lease() {
    let place = Place::new();
    let store = place.open().await;
    prepare(&store, 1, 5).await;
    store.append(&key().stream, &events(1)).await.unwrap();
    assert_eq!(sweep(&store, MINUTE).await.leased.len(), 1);

    // A day back, and a process that starts only then and knows no other time.
    let late = ManualClock::default();
    late.set_wall_ms(late_day_back());
    let other = open(&place.path(), Mode::Create, &Settings::default(), Clock::Manual(late.clone())).await;
    let other = other.unwrap();
    let pending = other.pending(&key(), 0, None, 1).await.unwrap();
    let expires_in_ms = 60_000;
    assert_eq!(pending[0].state, PendingState::Leased { consumer: "c".to_owned(), expires_in_ms });
    late.advance(Duration::from_secs(59));
    assert_eq!(sweep(&other, MINUTE).await.leased.len(), 0);
    late.advance(Duration::from_secs(1));
    let again = sweep(&other, MINUTE).await.leased;
    assert_eq!(again[0].lease.attempt, 2);

    // The first process, whose clock stood still, has learned the time: the new lease holds there.
    assert_eq!(sweep(&store, MINUTE).await.leased.len(), 0);
    place.clock.advance(MINUTE);
    assert_eq!(sweep(&store, MINUTE).await.leased[0].lease.attempt, 3);
}

fn late_day_back() -> i64 {
    1_579_089_600_000 - 24 * 60 * 60 * 1000
}

#[tokio::test]
async fn waiting_ends_when_a_retry_falls_due() {
    let place = Place::new();
    for location in [Location::File(place.path()), Location::Memory] {
        let clock = ManualClock::default();
        let store =
            Sqlite::open(location, Mode::Create, &Settings::default(), Clock::Manual(clock.clone())).await;
        let store = Arc::new(store.unwrap());
        prepare(&store, 1, 5).await;
        store.append(&key().stream, &events(1)).await.unwrap();
        let leased = claim(&store, 1).await.leased;
        settle(&store, &leased, retry(MINUTE)).await;

        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.wait(&key(), &[0], LONG).await }
        });
        clock.advance(Duration::from_secs(59));
        // Not due: a wait of its own ends by its timeout.
        store.wait(&key(), &[0], Duration::from_millis(120)).await.unwrap();
        assert!(!waiting.is_finished());
        clock.advance(Duration::from_secs(1));
        soon(waiting).await.unwrap().unwrap();
        assert_eq!(claim(&store, 1).await.leased[0].lease.attempt, 2);
    }
}

#[tokio::test]
async fn waiting_ends_by_the_systems_clock_too() {
    let store = Sqlite::open(Location::Memory, Mode::Create, &Settings::default(), Clock::System).await;
    let store = store.unwrap();
    prepare(&store, 1, 5).await;
    store.append(&key().stream, &events(1)).await.unwrap();
    let leased = claim(&store, 1).await.leased;
    settle(&store, &leased, retry(Duration::from_millis(30))).await;
    soon(store.wait(&key(), &[0], LONG)).await.unwrap();
    assert_eq!(claim(&store, 1).await.leased.len(), 1);
}

#[tokio::test]
async fn waiting_ends_when_another_process_appends() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let other = place.open().await;
    prepare(&store, 1, 5).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait(&key(), &[0], LONG).await }
    });
    // The waiting one has looked at least once, and found nothing.
    store.wait(&key(), &[0], Duration::from_millis(120)).await.unwrap();
    assert!(!waiting.is_finished());
    other.append(&key().stream, &events(1)).await.unwrap();
    soon(waiting).await.unwrap().unwrap();
    soon(store.wait(&key(), &[0], LONG)).await.unwrap();
}

#[tokio::test]
async fn waiting_for_nothing_that_can_come_is_refused_or_ends() {
    let store = Place::new().open().await;
    assert!(matches!(store.wait(&key(), &[0], LONG).await, Err(Error::StreamNotFound(_))));
    store.create_stream(&key().stream, 1).await.unwrap();
    assert!(matches!(store.wait(&key(), &[0], LONG).await, Err(Error::GroupNotFound(_))));
    let new = NewGroup { max_attempts: 1, start: Start::Beginning };
    store.create_group(&key(), new).await.unwrap();
    assert!(matches!(store.wait(&key(), &[1], LONG).await, Err(Error::PartitionNotFound { .. })));
    soon(store.wait(&key(), &[0], Duration::from_millis(1))).await.unwrap();
}

#[tokio::test]
async fn a_wait_ends_when_a_retry_is_due_although_nothing_is_committed() {
    // The real clock, and a file that it polls for others' commits meanwhile.
    let place = Place::new();
    let store = open(&place.path(), Mode::Create, &Settings::default(), Clock::System).await.unwrap();
    prepare(&store, 1, 5).await;
    store.append(&key().stream, &events(1)).await.unwrap();
    let leased = claim(&store, 1).await.leased;
    let delay = Duration::from_millis(300);
    let reason = "not yet".to_owned();
    settle(&store, &leased, Verdict::Retry { delay, reason, failure: FailureKind::Retry }).await;
    soon(store.wait(&key(), &[0], Duration::from_secs(3600))).await.unwrap();
    soon(async {
        while claim(&store, 1).await.leased.is_empty() {
            store.wait(&key(), &[0], Duration::from_secs(3600)).await.unwrap();
        }
    })
    .await;
}
