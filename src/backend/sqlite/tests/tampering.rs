use super::*;
use crate::backend::{DeadEvent, ScanRange};
use crate::outcome::Cause;

async fn with_events(place: &Place, count: usize) -> Sqlite {
    let store = place.open().await;
    prepare(&store, 1, 5).await;
    store.append(&key().stream, &events(count)).await.unwrap();
    store
}

#[tokio::test]
async fn rows_that_are_no_events_are_buried_and_pass() {
    for (set, detail) in [
        ("payload = '{\"n\":'", "`payload`: not valid JSON"),
        ("payload = '[1]'", "`payload`: must be a JSON object"),
        ("metadata = 'x'", "`metadata`: not valid JSON"),
        ("key = CAST(x'ff00' AS TEXT)", "`key` is not valid UTF-8"),
    ] {
        let place = Place::new();
        let store = with_events(&place, 3).await;
        place.stranger().execute(&format!("UPDATE events SET {set} WHERE sequence = 1"), []).unwrap();

        let page = store.scan(&key().stream, 0, ScanRange::after(0, 10)).await.unwrap();
        assert_eq!((page.events.len(), page.unreadable.len()), (2, 1));
        assert_eq!((page.unreadable[0].receipt.as_str(), page.unreadable[0].sequence), ("0-1", Some(1)));

        let claimed = claim(&store, 10).await;
        assert_eq!(claimed.leased.iter().map(|l| l.event.sequence).collect::<Vec<_>>(), [2, 3]);
        let [death] = claimed.dead_lettered.as_slice() else { panic!("{claimed:?}") };
        assert_eq!((death.cause, death.sequence), (Cause::Undecodable, Some(1)));
        assert!(death.reason.starts_with(detail), "{}", death.reason);

        let letters = store.dead_letters(&key(), None, 10).await.unwrap();
        let [letter] = letters.as_slice() else { panic!("{letters:?}") };
        assert_eq!(letter.cause, Some(Cause::Undecodable));
        let DeadEvent::Raw(fields) = &letter.event else { panic!("{letter:?}") };
        assert!(fields.iter().any(|(name, value)| name == "sequence" && value == "1"), "{fields:?}");
        assert!(fields.iter().any(|(name, _)| name == "payload"), "{fields:?}");
        let state = store.group_info(&key()).await.unwrap().partitions[0];
        assert_eq!((state.frontier, state.in_flight), (1, 2));
    }
}

#[tokio::test]
async fn events_that_someone_removed_are_passed() {
    let place = Place::new();
    let store = with_events(&place, 6).await;
    let leased = claim(&store, 1).await.leased;
    assert_eq!(settle(&store, &leased, Verdict::Release).await, [Settled::Done]);
    place.stranger().execute("DELETE FROM events WHERE sequence IN (1, 3, 6)", []).unwrap();

    let claimed = claim(&store, 10).await;
    assert_eq!(claimed.leased.iter().map(|l| l.event.sequence).collect::<Vec<_>>(), [2, 4, 5]);
    assert_eq!(claimed.dead_lettered.iter().map(|d| d.cause).collect::<Vec<_>>(), [Cause::Missing]);
    assert_eq!(settle(&store, &claimed.leased, ack()).await, [Settled::Done; 3]);
    let info = store.group_info(&key()).await.unwrap();
    assert_eq!((info.partitions[0].frontier, info.dead_letters), (6, 1));
    let letters = store.dead_letters(&key(), None, 10).await.unwrap();
    assert!(matches!(&letters[0].event, DeadEvent::Raw(fields) if fields[1].1 == "1"), "{letters:?}");
}

#[tokio::test]
async fn numbers_that_cannot_be_are_an_error_and_not_a_panic() {
    let place = Place::new();
    let store = with_events(&place, 1).await;
    let set = |high_watermark: i64| {
        place.stranger().execute("UPDATE partitions SET high_watermark = ?1", [high_watermark]).unwrap();
    };
    set(-1);
    assert!(matches!(store.append(&key().stream, &events(1)).await, Err(Error::Corrupt(_))));
    set(i64::MAX);
    assert!(matches!(store.append(&key().stream, &events(1)).await, Err(Error::Corrupt(_))));
    set(1);
    assert_eq!(store.append(&key().stream, &events(1)).await.unwrap()[0].sequence, 2);
}
