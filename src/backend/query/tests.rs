//! Queries against what a plain list would answer, on the embedded store.

use proptest::prelude::*;

use super::*;
use crate::backend::sqlite::{Clock, Location, Mode, Sqlite};
use crate::backend::{Settings, earliest, places_of, positions_at};
use crate::event::{JsonObject, NewEvent};
use crate::query::Condition;

/// A partition, and whether the event is of the type `a`.
type Written = (u32, bool);

async fn store(partitions: u32) -> (Sqlite, Name) {
    let settings = Settings::default();
    let store = Sqlite::open(Location::Memory, Mode::Create, &settings, Clock::System).await.unwrap();
    let stream = Name::new("s").unwrap();
    store.create_stream(&stream, partitions).await.unwrap();
    (store, stream)
}

async fn append(store: &Sqlite, stream: &Name, partitions: u32, written: &[Written]) {
    let event = |(partition, is_a): &Written| NewEvent {
        partition: Some(partition % partitions),
        event_type: Some(if *is_a { "a" } else { "b" }.to_owned()),
        ..NewEvent::new(JsonObject::empty())
    };
    for batch in written.chunks(100) {
        let events: Vec<_> = batch.iter().map(event).collect();
        store.append(stream, &events).await.unwrap();
    }
}

/// What was written to a stream, as `(sequence, partition)`, in the order of queries.
fn expected(partitions: u32, written: &[Written], of: impl Fn(bool) -> bool) -> Vec<(u64, u32)> {
    let mut last = vec![0; partitions as usize];
    let mut places = Vec::new();
    for (partition, is_a) in written {
        let partition = partition % partitions;
        last[partition as usize] += 1;
        if of(*is_a) {
            places.push((last[partition as usize], partition));
        }
    }
    places.sort_unstable();
    places
}

fn type_a() -> Filter {
    Filter { conditions: vec![Condition::text("type", "a")], ..Filter::default() }
}

fn places(events: &[Event]) -> Vec<(u64, u32)> {
    events.iter().map(|event| (event.sequence, event.partition)).collect()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pages_are_the_whole_answer_cut_in_pieces(
        partitions in 1u32..6,
        written in prop::collection::vec((0u32..6, any::<bool>()), 0..120),
        limit in 1usize..20,
        filtered in any::<bool>(),
        descending in any::<bool>(),
        after in 0u64..8,
        span in 0u64..40,
    ) {
        let (found, all) = block_on(async {
            let (store, stream) = store(partitions).await;
            append(&store, &stream, partitions, &written).await;
            let mut question = Query {
                filter: if filtered { type_a() } else { Filter::default() },
                order: if descending { Order::Descending } else { Order::Ascending },
                after,
                until: after + span,
                limit,
                ..Query::default()
            };
            let mut found = Vec::new();
            loop {
                let page = query(&store, &stream, &question).await.unwrap();
                assert!(page.events.len() <= limit && (page.next.is_some() == (page.events.len() == limit)));
                found.extend(places(&page.events));
                let Some(next) = page.next else { break };
                question.cursor = next.to_string().parse().unwrap();
            }
            (found, expected(partitions, &written, |is_a| is_a || !filtered))
        });
        let mut all: Vec<_> =
            all.into_iter().filter(|(sequence, _)| *sequence > after && *sequence <= after + span).collect();
        if descending {
            all.sort_by_key(|(sequence, partition)| (u64::MAX - sequence, *partition));
        }
        prop_assert_eq!(found, all);
    }

    #[test]
    fn what_is_appended_between_pages_is_found_and_nothing_twice(
        partitions in 1u32..5,
        rounds in prop::collection::vec(prop::collection::vec((0u32..5, any::<bool>()), 0..30), 1..6),
        limit in 1usize..12,
    ) {
        let (found, all) = block_on(async {
            let (store, stream) = store(partitions).await;
            let mut question = Query { filter: type_a(), limit, ..Query::default() };
            let (mut found, mut written, mut rounds) = (Vec::new(), Vec::new(), rounds.into_iter());
            loop {
                let more = rounds.next();
                let last_round = more.is_none();
                let more = more.unwrap_or_default();
                append(&store, &stream, partitions, &more).await;
                written.extend(more);
                let page = query(&store, &stream, &question).await.unwrap();
                found.extend(places(&page.events));
                match page.next {
                    Some(next) => question.cursor = next,
                    None if last_round => break,
                    // At the end for now: as a reader that comes back later with the same cursor.
                    None => {
                        for event in &page.events {
                            question.cursor.0.insert(event.partition, event.sequence);
                        }
                    }
                }
            }
            found.sort_unstable();
            (found, expected(partitions, &written, |is_a| is_a))
        });
        prop_assert_eq!(found, all);
    }
}

#[test]
fn another_order_finds_the_first_of_all() {
    block_on(async {
        let (store, stream) = store(2).await;
        let written: Vec<Written> = (0..2000).map(|n| (n % 2, n % 500 == 0)).collect();
        append(&store, &stream, 2, &written).await;
        let sort = vec!["type".parse().unwrap(), "sequence:desc".parse().unwrap()];
        let question = Query { sort: sort.clone(), limit: 5, ..Query::default() };
        let page = query(&store, &stream, &question).await.unwrap();
        assert_eq!(places(&page.events), [(751, 0), (501, 0), (251, 0), (1, 0), (1000, 0)]);
        assert_eq!(page.next, None);
        let question = Query { sort, limit: SORTED_LIMIT_MAX + 1, ..Query::default() };
        assert!(matches!(query(&store, &stream, &question).await, Err(Error::BatchTooLarge { .. })));
    });
}

#[test]
fn what_is_not_there_is_refused() {
    block_on(async {
        let (store, stream) = store(2).await;
        let question = Query { partition: Some(2), ..Query::default() };
        let answer = query(&store, &stream, &question).await;
        assert!(matches!(answer, Err(Error::PartitionNotFound { partition: 2, partitions: 2, .. })));
        let question = Query { cursor: "2:1".parse().unwrap(), ..Query::default() };
        assert!(matches!(query(&store, &stream, &question).await, Err(Error::CursorNotFound(_))));
        let other = Name::new("other").unwrap();
        assert!(matches!(query(&store, &other, &Query::default()).await, Err(Error::StreamNotFound(_))));
    });
}

#[test]
fn times_ids_and_matches_become_positions() {
    block_on(async {
        let (store, stream) = store(3).await;
        // Times need not ascend: the order of the log counts.
        let event = |id: &str, partition, timestamp: &str| NewEvent {
            id: Some(id.to_owned()),
            partition: Some(partition),
            timestamp: Some(timestamp.to_owned()),
            ..NewEvent::new(JsonObject::empty())
        };
        let events = [
            event("a", 0, "2026-01-01T00:00:00Z"),
            event("b", 0, "2026-01-03T00:00:00Z"),
            event("c", 0, "2026-01-02T00:00:00Z"),
            event("d", 0, "2026-01-03T00:00:00Z"),
            event("a", 1, "2026-01-01T00:00:00Z"),
            event("e", 1, "2026-01-01T00:00:00Z"),
        ];
        store.append(&stream, &events).await.unwrap();
        let all = [0, 1, 2];
        let at = |day: &str| format!("2026-01-{day}T00:00:00Z").parse().unwrap();
        let positions = positions_at(&store, &stream, &all, at("02")).await.unwrap();
        assert_eq!(positions, [(0, 1), (1, 2), (2, 0)].into());
        let positions = positions_at(&store, &stream, &all, at("01")).await.unwrap();
        assert_eq!(positions, [(0, 0), (1, 0), (2, 0)].into());
        let positions = positions_at(&store, &stream, &all, at("04")).await.unwrap();
        assert_eq!(positions, [(0, 4), (1, 2), (2, 0)].into(), "none is not the whole history");

        let filter = Filter { from: Some(at("02")), to: Some(at("02")), ..Filter::default() };
        assert_eq!(earliest(&store, &stream, &all, &filter).await.unwrap(), [(0, 3)].into());

        let ids = ["a", "e", "x"].map(str::to_owned).into();
        let places = places_of(&store, &stream, &all, &ids).await.unwrap();
        assert_eq!(places.found, [(0, 1), (1, 1), (1, 2)]);
        assert_eq!(places.missing, ["x".to_owned()].into());
    });
}
