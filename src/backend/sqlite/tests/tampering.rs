use super::*;
use crate::backend::{DeadEvent, HolderState, RepairKind, ScanRange};
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
    let state = info.partitions[0];
    // The one that had been delivered is a dead letter, the others are counted.
    assert_eq!((state.frontier, state.missing, info.dead_letters), (6, 2, 1));
    let letters = store.dead_letters(&key(), None, 10).await.unwrap();
    assert!(matches!(&letters[0].event, DeadEvent::Raw(fields) if fields[1].1 == "1"), "{letters:?}");
}

#[tokio::test]
async fn a_repair_passes_what_was_removed_before_it_was_delivered() {
    let place = Place::new();
    let store = with_events(&place, 9).await;
    let leased = claim(&store, 2).await.leased;
    settle(&store, &leased[1..], ack()).await;
    assert_eq!(store.heal(&key(), 0).await.unwrap(), []);
    place.stranger().execute("DELETE FROM events WHERE sequence IN (3, 4, 8, 9)", []).unwrap();

    let missing =
        |first, last, count| Repair { kind: RepairKind::Missing, sequences: Some((first, last)), count };
    assert_eq!(store.heal(&key(), 0).await.unwrap(), [missing(3, 4, 2)]);
    assert_eq!(store.heal(&key(), 0).await.unwrap(), []);
    settle(&store, &leased[..1], ack()).await;
    let state = store.group_info(&key()).await.unwrap().partitions[0];
    assert_eq!((state.frontier, state.missing), (4, 2));

    let leased = claim(&store, 3).await.leased;
    assert_eq!(leased.iter().map(|l| l.event.sequence).collect::<Vec<_>>(), [5, 6, 7]);
    settle(&store, &leased, ack()).await;
    let holder = store.explain(&key(), 0).await.unwrap().holder.unwrap();
    assert_eq!((holder.sequence, holder.state), (8, HolderState::Missing));
    assert_eq!(store.heal(&key(), 0).await.unwrap(), [missing(8, 9, 2)]);
    let state = store.group_info(&key()).await.unwrap().partitions[0];
    assert_eq!((state.frontier, state.missing), (9, 4));
    assert_eq!(store.explain(&key(), 0).await.unwrap().holder, None);
}

#[tokio::test]
async fn a_repair_moves_a_frontier_that_was_set_back() {
    let place = Place::new();
    let store = with_events(&place, 5).await;
    let leased = claim(&store, 4).await.leased;
    settle(&store, &leased[..3], ack()).await;
    place.stranger().execute("UPDATE group_partitions SET frontier = 1", []).unwrap();
    let holder = store.explain(&key(), 0).await.unwrap().holder.unwrap();
    assert_eq!((holder.sequence, holder.state), (2, HolderState::Settled));
    let repairs = store.heal(&key(), 0).await.unwrap();
    assert_eq!(repairs, [Repair { kind: RepairKind::Frontier, sequences: Some((2, 3)), count: 1 }]);
    assert_eq!(store.heal(&key(), 0).await.unwrap(), []);
    assert_eq!(store.group_info(&key()).await.unwrap().partitions[0].frontier, 3);
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
