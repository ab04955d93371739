//! Where groups begin and come to stand, in logs that others wrote: never behind an event that they
//! are to get, and nothing twice.

use wasmill::backend::{Backend as _, Error, NewGroup, Rewind, RewindKind, Start, rewind};
use wasmill::event::{GroupKey, Name};

use crate::kit::{Bench, LONG, sequences};

/// Puts an event at a place in partition 0's log, as a writer does that appends beside others.
fn put(bench: &Bench, sequence: u64, ms: u64, indexed: bool) {
    let id: String = bench.raw(&format!(
        "XADD rheo:T:s:s:0 {ms}-0 id e{sequence} sequence {sequence} partition 0 \
         timestamp 2020-01-15T12:00:00.000Z metadata {{}} payload {{}}"
    ));
    if indexed {
        let _: i64 = bench.raw(&format!("ZADD rheo:T:z:s:0 {sequence} {id}"));
    }
    let high: u64 = bench.raw::<Option<u64>>("GET rheo:T:seq:s:0").unwrap_or(0);
    let _: () = bench.raw(&format!("SET rheo:T:seq:s:0 {}", high.max(sequence)));
}

fn group(bench: &Bench, name: &str) -> GroupKey {
    GroupKey::new(bench.group.stream.clone(), Name::new(name).unwrap())
}

async fn create(bench: &Bench, group: &GroupKey, start: Start) {
    bench.backend.create_group(group, NewGroup { max_attempts: 5, start }).await.unwrap();
}

/// What the bench's group gets and acks, and that nothing is left then.
async fn drain(bench: &Bench) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let leased = bench.try_claim("c", 100, LONG, true).await.unwrap().leased;
        if leased.is_empty() {
            break;
        }
        assert!(leased.iter().all(|leased| leased.lease.attempt == 1));
        bench.ack(&leased).await;
        all.extend(sequences(&leased));
    }
    all.sort_unstable();
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!((info.lag(|_| true), info.partitions[0].in_flight), (0, 0));
    all
}

/// Sequences in the order of their entries: some overtook others.
const INVERTED: [u64; 12] = [2, 1, 5, 3, 4, 6, 9, 7, 12, 8, 11, 10];

#[tokio::test]
async fn fault_6_a_start_among_inverted_entries_gets_each_event_above_it_and_no_other() {
    let mut bench = Bench::new(1).await;
    for (place, sequence) in INVERTED.into_iter().enumerate() {
        put(&bench, sequence, 1000 + place as u64, true);
    }
    for position in 0..=12 {
        bench.group = group(&bench, &format!("after-{position}"));
        create(&bench, &bench.group, Start::After([(0, position)].into())).await;
        assert_eq!(drain(&bench).await, (position + 1..=12).collect::<Vec<_>>(), "after {position}");
    }
}

#[tokio::test]
async fn fault_6_a_replay_and_a_reset_among_inverted_entries_get_each_event_above_and_no_other() {
    let bench = Bench::new(1).await;
    for (place, sequence) in INVERTED.into_iter().enumerate() {
        put(&bench, sequence, 1000 + place as u64, true);
    }
    drain(&bench).await;
    for kind in [RewindKind::Replay, RewindKind::Reset] {
        for position in 0..=12 {
            rewind(&bench.backend, &bench.group, &Rewind { kind, to: [(0, position)].into() }).await.unwrap();
            let expected: Vec<u64> = (position + 1..=12).collect();
            assert_eq!(drain(&bench).await, expected, "{kind} to {position}");
        }
    }
}

#[tokio::test]
async fn fault_5_an_entry_without_index_row_is_not_skipped_by_a_start() {
    let mut bench = Bench::new(1).await;
    let log = [(1, true), (2, true), (4, false), (3, true), (5, true), (6, false)];
    for (place, (sequence, indexed)) in log.into_iter().enumerate() {
        put(&bench, sequence, 1000 + place as u64, indexed);
    }
    for position in 0..=5 {
        bench.group = group(&bench, &format!("after-{position}"));
        create(&bench, &bench.group, Start::After([(0, position)].into())).await;
        assert_eq!(drain(&bench).await, (position + 1..=6).collect::<Vec<_>>(), "after {position}");
    }
}

#[tokio::test]
async fn fault_12_a_start_past_the_end_is_the_end() {
    let mut bench = Bench::new(1).await;
    bench.append(0, 3).await;
    bench.group = group(&bench, "late");
    create(&bench, &bench.group, Start::After([(0, 99)].into())).await;
    assert_eq!(bench.raw::<String>("HGET rheo:T:gmeta:s:late frontier_p0"), "3");
    bench.append(0, 1).await;
    assert_eq!(drain(&bench).await, [4]);
}

#[tokio::test]
async fn fault_14_a_half_created_group_exists_and_can_be_moved_and_deleted() {
    let mut bench = Bench::new(2).await;
    bench.append(0, 2).await;
    bench.append(1, 2).await;
    let _: i64 = bench.raw("HSET rheo:T:gmeta:s:half max_attempts 3");
    bench.group = group(&bench, "half");
    let created = bench.backend.create_group(&bench.group, NewGroup { max_attempts: 3, start: Start::End });
    assert!(matches!(created.await, Err(Error::GroupExists(_))));
    let reset = Rewind { kind: RewindKind::Reset, to: [(0, 1), (1, 0)].into() };
    rewind(&bench.backend, &bench.group, &reset).await.unwrap();
    assert_eq!(drain(&bench).await, [1, 2, 2]);
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:1 half");
    let delete = Rewind { kind: RewindKind::Delete, to: [].into() };
    rewind(&bench.backend, &bench.group, &delete).await.unwrap();
    assert_eq!(bench.raw::<Vec<String>>("KEYS rheo:T:*:half*"), [] as [&str; 0]);
}

#[tokio::test]
async fn a_name_begins_with_nothing_of_a_group_that_is_gone_without_a_word() {
    let bench = Bench::new(1).await;
    bench.append(0, 4).await;
    let held = bench.claim("a", 4).await.leased;
    bench.ack(&held[2..3]).await;
    // Someone removed the metadata by hand.
    let _: i64 = bench.raw("DEL rheo:T:gmeta:s:g");
    let _: i64 = bench.raw(&format!("DEL rheo:T:fence:s:g:{}", held[0].lease.receipt));
    for held in &held {
        let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 g {}", held.lease.receipt));
        let _: i64 = bench.raw(&format!("DEL rheo:T:fence:s:g:{}", held.lease.receipt));
    }
    create(&bench, &bench.group, Start::Beginning).await;
    assert_eq!(drain(&bench).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_log_without_its_beginning_has_no_lag_there() {
    let mut bench = Bench::new(1).await;
    bench.append(0, 5).await;
    let ids: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:0 0 2");
    for id in &ids {
        let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {id}"));
    }
    // Without their rows nothing says how many are missing.
    bench.group = group(&bench, "rows-left");
    create(&bench, &bench.group, Start::Beginning).await;
    assert_eq!(bench.raw::<u64>("HGET rheo:T:gmeta:s:rows-left frontier_p0"), 0);
    let _: i64 = bench.raw_with("ZREM rheo:T:z:s:0", &ids);
    for (name, start) in
        [("first", Start::Beginning), ("second", Start::After([(0, 2)].into())), ("third", Start::End)]
    {
        let end = matches!(start, Start::End);
        bench.group = group(&bench, name);
        create(&bench, &bench.group, start).await;
        assert_eq!(drain(&bench).await, if end { vec![] } else { vec![4, 5] }, "{name}");
    }
}

#[tokio::test]
async fn what_was_under_way_when_the_group_began_is_delivered() {
    let mut bench = Bench::new(1).await;
    // Others have taken sequences and not written them yet: of an empty log, and behind its end.
    let _: () = bench.raw("SET rheo:T:seq:s:0 2");
    bench.group = group(&bench, "early");
    create(&bench, &bench.group, Start::Beginning).await;
    put(&bench, 2, 1000, true);
    put(&bench, 1, 1001, true);
    let claimed = bench.claim("c", 10).await.leased;
    assert_eq!(sequences(&claimed), [1, 2]);
    bench.ack(&claimed).await;
    assert_eq!(bench.lag().await, 0);
}
