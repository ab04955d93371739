use super::*;

/// Lets the stream's third event be refused by the database itself.
fn refuse_the_third(place: &Place) {
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON events \
                   WHEN new.sequence = 3 AND new.stream_id = (SELECT id FROM streams WHERE name = 'orders') \
                   BEGIN SELECT RAISE(ABORT, 'not this one'); END";
    place.stranger().execute_batch(trigger).unwrap();
}

fn allow_the_third(place: &Place) {
    place.stranger().execute_batch("DROP TRIGGER refuse").unwrap();
}

async fn sequences(store: &Sqlite, stream: &str) -> Vec<u64> {
    let page = store.scan(&name(stream), 0, crate::backend::ScanRange::after(0, 100)).await.unwrap();
    page.events.iter().map(|event| event.sequence).collect()
}

#[tokio::test]
async fn an_operation_that_fails_half_way_leaves_nothing_behind() {
    let place = Place::new();
    let store = place.open().await;
    prepare(&store, 1, 5).await;
    let stream = key().stream;
    store.append(&stream, &events(1)).await.unwrap();
    refuse_the_third(&place);

    // Its second event is the third of the log: the first one was written by then.
    let error = store.append(&stream, &events(2)).await.unwrap_err();
    assert!(error.to_string().contains("not this one"), "{error}");
    assert_eq!(sequences(&store, "orders").await, [1]);
    assert_eq!(store.append(&stream, &events(1)).await.unwrap()[0].sequence, 2);

    allow_the_third(&place);
    assert_eq!(store.append(&stream, &events(1)).await.unwrap()[0].sequence, 3);
    assert_eq!(sequences(&store, "orders").await, [1, 2, 3]);
    assert_eq!(claim(&store, 10).await.leased.len(), 3);
}

#[tokio::test]
async fn an_operation_that_fails_half_way_takes_none_of_its_neighbours_with_it() {
    let place = Place::new();
    let store = place.open().await;
    prepare(&store, 1, 5).await;
    store.create_stream(&name("other"), 1).await.unwrap();
    let stream = key().stream;
    store.append(&stream, &events(1)).await.unwrap();
    refuse_the_third(&place);

    // Many at once, so that some share a transaction, in every order of those that fail and do not.
    let mut others = 0;
    for round in 0..20 {
        let (good, bad) = (name("other"), stream.clone());
        let (one, two) = (events(2), events(2));
        let (first, failed, last) = if round % 2 == 0 {
            tokio::join!(store.append(&good, &one), store.append(&bad, &two), store.append(&good, &one))
        } else {
            let (failed, first, last) =
                tokio::join!(store.append(&bad, &two), store.append(&good, &one), store.append(&good, &one));
            (first, failed, last)
        };
        assert!(failed.unwrap_err().to_string().contains("not this one"));
        let appended: Vec<u64> =
            first.unwrap().iter().chain(&last.unwrap()).map(|appended| appended.sequence).collect();
        assert_eq!(appended, (others + 1..=others + 4).collect::<Vec<_>>());
        others += 4;
        assert_eq!(sequences(&store, "orders").await, [1]);
    }
    let page = store.scan(&name("other"), 0, crate::backend::ScanRange::after(0, 1000)).await.unwrap();
    assert_eq!(page.events.len() as u64, others);
}
