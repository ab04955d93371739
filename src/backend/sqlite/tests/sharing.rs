use std::collections::HashSet;
use std::sync::Arc;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_open_one_file_share_the_work_and_settle_each_event_once() {
    const EVENTS: usize = 2000;
    let place = Place::new();
    let stores = [Arc::new(place.open().await), Arc::new(place.open().await)];
    prepare(&stores[0], 2, 5).await;
    let mut working = tokio::task::JoinSet::new();
    for store in &stores {
        let store = store.clone();
        working.spawn(async move {
            for _ in 0..EVENTS / 2 / 50 {
                let mut batch = events(50);
                for (n, event) in batch.iter_mut().enumerate() {
                    event.partition = Some(n as u32 % 2);
                }
                store.append(&key().stream, &batch).await.unwrap();
            }
            HashSet::new()
        });
    }
    for store in stores.iter().chain(&stores) {
        let store = store.clone();
        working.spawn(async move {
            let mut handled = HashSet::new();
            loop {
                let leased = store.claim(&request(&key(), &[0, 1], 16)).await.unwrap().leased;
                for leased in &leased {
                    assert!(handled.insert((leased.event.partition, leased.event.sequence)));
                }
                let settled = settle(&store, &leased, ack()).await;
                assert!(settled.iter().all(|settled| *settled == Settled::Done));
                let info = store.group_info(&key()).await.unwrap();
                if info.partitions.iter().map(|p| p.frontier).sum::<u64>() == EVENTS as u64 {
                    return handled;
                }
                store.wait(&key(), &[0, 1], Duration::from_millis(20)).await.unwrap();
            }
        });
    }
    let handled: Vec<HashSet<_>> = soon(working.join_all()).await;
    assert_eq!(handled.iter().map(HashSet::len).sum::<usize>(), EVENTS);
    assert_eq!(handled.into_iter().flatten().collect::<HashSet<_>>().len(), EVENTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_writes_without_a_pause_does_not_shut_the_other_out() {
    let place = Place::new();
    let busy = Arc::new(place.open().await);
    let other = place.open().await;
    prepare(&busy, 2, 5).await;
    // Many callers, so that the queue of the busy one is never empty.
    let mut working = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let store = busy.clone();
        working.spawn(async move {
            loop {
                store.append(&key().stream, &events(1)).await.unwrap();
            }
        });
    }
    let written = async || busy.stream_info(&key().stream).await.unwrap().partitions[0].high_watermark;
    let writes_beyond = async |count| {
        while written().await <= count {
            tokio::task::yield_now().await;
        }
    };
    soon(writes_beyond(100)).await;
    for sequence in 1..=10 {
        let mut batch = events(1);
        batch[0].partition = Some(1);
        let appended = other.append(&key().stream, &batch).await.unwrap();
        assert_eq!(appended[0].sequence, sequence);
    }
    soon(writes_beyond(written().await)).await;
    working.shutdown().await;
}

#[tokio::test]
async fn a_lock_that_another_process_keeps_makes_writes_busy_and_lets_reads_pass() {
    let place = Place::new();
    let location = Location::File(place.path());
    let clock = Clock::Manual(place.clock.clone());
    let wait = Duration::from_millis(20);
    let store = Sqlite::open_with(location, Mode::Create, Settings::default(), clock, wait).await.unwrap();
    prepare(&store, 1, 5).await;

    let stranger = place.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.append(&key().stream, &events(1)).await.unwrap_err();
    assert!(matches!(error, Error::Busy(_)), "{error:?}");
    assert_eq!(store.group_info(&key()).await.unwrap().partitions[0].high_watermark, 0);
    stranger.execute_batch("COMMIT").unwrap();
    assert_eq!(store.append(&key().stream, &events(1)).await.unwrap()[0].sequence, 1);
}

#[tokio::test]
async fn an_operation_that_fails_undoes_nothing_of_its_neighbours() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    prepare(&store, 2, 5).await;
    let stranger = place.stranger();
    // In partition 1 the second event of each batch collides with one that someone put there.
    let stray =
        "INSERT INTO events (stream_id, partition, sequence, appended_ms, id, timestamp, metadata, payload)
                 VALUES (1, 1, 2, 0, '', '', '{}', '{}')";
    stranger.execute(stray, []).unwrap();
    // What queues up behind a lock is carried out in one transaction.
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut working = tokio::task::JoinSet::new();
    for n in 0..20 {
        let store = store.clone();
        working.spawn(async move {
            let mut batch = events(3);
            batch.iter_mut().for_each(|event| event.partition = Some(n % 2));
            (n, store.append(&key().stream, &batch).await)
        });
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    stranger.execute_batch("COMMIT").unwrap();
    for (n, result) in soon(working.join_all()).await {
        match n % 2 {
            0 => assert_eq!(result.unwrap().len(), 3),
            _ => assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}"),
        }
    }
    let events = store.read(&key().stream, 0, 0, 100).await.unwrap();
    assert_eq!(events.iter().map(|e| e.sequence).collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
    let info = store.stream_info(&key().stream).await.unwrap();
    let length = |n: usize| (info.partitions[n].high_watermark, info.partitions[n].length);
    assert_eq!((length(0), length(1)), ((30, 30), (0, 0)));
}

#[tokio::test]
async fn a_caller_that_gave_up_while_it_was_queued_changes_nothing() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    prepare(&store, 1, 5).await;
    let stranger = place.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let append = |store: Arc<Sqlite>| async move { store.append(&key().stream, &events(1)).await };
    let first = tokio::spawn(append(store.clone()));
    tokio::task::yield_now().await;
    let second = tokio::spawn(append(store.clone()));
    tokio::task::yield_now().await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    stranger.execute_batch("COMMIT").unwrap();
    assert_eq!(soon(first).await.unwrap().unwrap()[0].sequence, 1);
    assert_eq!(store.append(&key().stream, &events(1)).await.unwrap()[0].sequence, 2);
}

#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_is_said_and_not_gone_on_with() {
    fn assert_said<T: std::fmt::Debug>(result: Result<T>) {
        match result {
            Err(Error::Refused(why)) => assert!(why.contains("deleted or replaced"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let place = Place::new();
    let delete = || {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = place.path().into_os_string();
            name.push(suffix);
            std::fs::remove_file(name).unwrap();
        }
    };
    let before = place.open().await;
    prepare(&before, 1, 5).await;
    before.append(&key().stream, &events(1)).await.unwrap();
    delete();
    assert_said(before.append(&key().stream, &events(1)).await);
    assert_said(before.group_info(&key()).await);
    assert_said(soon(before.wait(&key(), &[0], LONG)).await);

    // Another one at its path is a log of its own, which the end of the one before leaves alone.
    let after = place.open().await;
    assert_said(before.append(&key().stream, &events(1)).await);
    assert_eq!(after.streams().await.unwrap(), []);
    prepare(&after, 1, 5).await;
    drop(before);
    after.append(&key().stream, &events(2)).await.unwrap();
    assert_eq!(claim(&after, 5).await.leased.len(), 2);
    drop(after);

    let store = place.open().await;
    let copy = place.directory.path().join("copy.db");
    std::fs::copy(place.path(), &copy).unwrap();
    std::fs::rename(copy, place.path()).unwrap();
    assert_said(store.claim(&request(&key(), &[0], 1)).await);
}
