use super::*;
use crate::backend::Held;

fn up_to(until: u64) -> Trim {
    Trim { until: Some(until), ..Trim::default() }
}

#[tokio::test]
async fn a_trim_goes_on_after_a_crash_and_each_step_is_bounded() {
    const EVENTS: usize = 2 * rewind::STEP_ROWS_MAX + 1;
    let place = Place::new();
    let mut store = place.open().await;
    store.create_stream(&key().stream, 1).await.unwrap();
    for batch in events(EVENTS).chunks(1000) {
        store.append(&key().stream, batch).await.unwrap();
    }
    let mut left = EVENTS as u64;
    loop {
        let step = store.trim(&key().stream, up_to(EVENTS as u64 - 1)).await.unwrap();
        assert!(step.removed > 0 && step.removed <= rewind::STEP_ROWS_MAX as u64);
        left -= step.removed;
        drop(store);
        store = place.open().await;
        let partition = store.stream_info(&key().stream).await.unwrap().partitions[0].clone();
        let rows: i64 =
            place.stranger().query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
        assert_eq!((partition.length, rows as u64), (left, left));
        assert_eq!(partition.first, Some(EVENTS as u64 - left + 1));
        if !step.more {
            break;
        }
    }
    assert_eq!(left, 1);
}

#[tokio::test]
async fn a_step_removes_no_more_bytes_than_a_few_large_events_have() {
    let place = Place::new();
    let store = place.open().await;
    store.create_stream(&key().stream, 1).await.unwrap();
    let large = JsonObject::parse(format!(r#"{{"text":"{}"}}"#, "x".repeat(3 << 20))).unwrap();
    for _ in 0..4 {
        store.append(&key().stream, &[NewEvent::new(large.clone())]).await.unwrap();
    }
    for more in [true, false] {
        let step = store.trim(&key().stream, up_to(4)).await.unwrap();
        assert_eq!((step.removed, step.more), (2, more));
    }
}

#[tokio::test]
async fn age_goes_by_when_it_was_stored_and_not_by_what_the_producer_says() {
    let place = Place::new();
    let store = place.open().await;
    store.create_stream(&key().stream, 1).await.unwrap();
    let mut batch = events(2);
    batch[1].timestamp = Some("1999-01-01T00:00:00Z".to_owned());
    store.append(&key().stream, &batch).await.unwrap();
    place.clock.advance(Duration::from_secs(60));
    // An administrator sets the clock back: what is appended then is no older for that.
    place.clock.set_wall_ms(0);
    store.append(&key().stream, &events(1)).await.unwrap();
    let older_than = |seconds| Trim { max_age: Some(Duration::from_secs(seconds)), ..Trim::default() };
    assert_eq!(store.trim(&key().stream, older_than(60)).await.unwrap(), Trimmed::default());
    let trimmed = store.trim(&key().stream, older_than(59)).await.unwrap();
    assert_eq!(trimmed, Trimmed { removed: 2, more: false, held: None });
    assert_eq!(store.trim(&key().stream, older_than(0)).await.unwrap().removed, 0);
    place.clock.advance(Duration::from_millis(1));
    assert_eq!(store.trim(&key().stream, older_than(0)).await.unwrap().removed, 1);
}

#[tokio::test]
async fn what_two_groups_need_is_held_by_the_one_that_is_further_behind() {
    let place = Place::new();
    let store = place.open().await;
    prepare(&store, 1, 5).await;
    let other = GroupKey::new(key().stream, name("audit"));
    store.append(&key().stream, &events(5)).await.unwrap();
    let new = NewGroup { max_attempts: 5, start: Start::After([(0, 3)].into()) };
    store.create_group(&other, new).await.unwrap();
    let leased = claim(&store, 2).await.leased;
    settle(&store, &leased, ack()).await;
    let trimmed = store.trim(&key().stream, up_to(5)).await.unwrap();
    let held = |group: &GroupKey, sequence| Some(Held { group: group.group.clone(), sequence });
    assert_eq!((trimmed.removed, trimmed.held), (2, held(&key(), 3)));
    let leased = claim(&store, 3).await.leased;
    settle(&store, &leased, ack()).await;
    let trimmed = store.trim(&key().stream, up_to(5)).await.unwrap();
    assert_eq!((trimmed.removed, trimmed.held), (1, held(&other, 4)));
    // What it needs no more does not hold anything, though the log has less than it may keep.
    let trimmed = store.trim(&key().stream, up_to(3)).await.unwrap();
    assert_eq!(trimmed, Trimmed::default());
}
