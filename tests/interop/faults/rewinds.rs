//! Start positions, replay and reset.

use std::collections::BTreeMap;

use wasmill::backend::{
    Backend as _, NewGroup, Positions, Rewind, RewindKind, Settled, Start, positions_at, rewind,
};
use wasmill::event::{JsonObject, NewEvent};

use super::{bench, drain, peer};
use crate::fixture::group_key;
use crate::kit::{Bench, sequences};
use crate::peer::{self, Append, Next};

async fn replay(bench: &Bench, to: impl Into<Positions>) -> u64 {
    let replay = Rewind { kind: RewindKind::Replay, to: to.into() };
    rewind(&bench.backend, &bench.group, &replay).await.unwrap()
}

/// Turns to another group of the stream, which begins here.
async fn begin(bench: &mut Bench, name: &str, start: Start) {
    bench.group = group_key("s", name);
    bench.backend.create_group(&bench.group, NewGroup { max_attempts: 5, start }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_06_groups_that_begin_in_a_disorder_lose_events() {
    let mut bench = bench(1, 5).await;
    bench.append(0, 3).await;
    // 4 and 5 come into the log behind 6.
    let mut quick = peer(&bench);
    let mut slow = peer(&bench);
    slow.once_in_gap("append", 2, || {
        quick.append("s", "{}", &Append::default()).unwrap();
        Next::GoOn
    });
    slow.append_batch("s", &["{}", "{}"], &Append::default()).unwrap();
    drop(slow);
    bench.append(0, 2).await;
    for after in 0..=8 {
        begin(&mut bench, &format!("after-{after}"), Start::After([(0, after)].into())).await;
        let came = drain(&bench, "ours").await;
        let wanted: BTreeMap<_, _> = (after + 1..=8).map(|sequence| ((0, sequence), 1)).collect();
        assert_eq!(came, wanted, "after {after}");
        assert_eq!(bench.lag().await, 0);
        // And the same by a replay.
        replay(&bench, [(0, after)]).await;
        assert_eq!(drain(&bench, "ours").await, wanted, "replayed from {after}");
        assert_eq!(bench.lag().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_09_a_replay_sees_a_thousand_pending_entries() {
    const PENDING: u64 = 1500;
    let bench = bench(1, 5).await;
    bench.append(0, 1500).await;
    let mut held = bench.claim("ours", 1000).await.leased;
    held.extend(bench.claim("ours", 500).await.leased);
    assert_eq!(replay(&bench, [(0, 0)]).await, PENDING);
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!((info.partitions[0].in_flight, info.partitions[0].frontier), (0, 0));
    assert_eq!(bench.raw::<Vec<String>>("KEYS rheo:T:fence:*").len(), 0, "no fence stays behind");
    for part in held.chunks(250) {
        assert!(bench.ack(part).await.iter().all(|settled| *settled == Settled::Stale));
    }
    let came = drain(&bench, "ours").await;
    assert_eq!((came.len(), came.values().all(|times| *times == 1)), (1500, true));
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_10_a_replay_forward_skips_events() {
    let bench = bench(1, 5).await;
    bench.append(0, 10).await;
    let held = bench.claim("ours", 5).await.leased;
    bench.ack(&held[..2]).await;
    bench.ack(&held[3..4]).await;
    // 3 and 5 are held, 6 to 10 were never delivered.
    replay(&bench, [(0, 8)]).await;
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!(info.partitions[0].frontier, 2);
    assert_eq!(bench.ack(&[held[2].clone(), held[4].clone()]).await, [Settled::Done; 2]);
    let came = drain(&bench, "ours").await;
    assert_eq!(came.into_keys().map(|(_, sequence)| sequence).collect::<Vec<_>>(), [6, 7, 8, 9, 10]);
    assert_eq!(bench.lag().await, 0);
    assert_eq!(bench.raw::<i64>("ZCARD rheo:T:done:s:g:0"), 0, "and no settled row stays below");
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_11_a_position_of_one_partition_is_applied_to_all() {
    let bench = bench(2, 5).await;
    let at = |partition: u32, minute: u32| NewEvent {
        partition: Some(partition),
        timestamp: Some(format!("2026-01-31T12:{minute:02}:00.000Z")),
        ..NewEvent::new(JsonObject::empty())
    };
    // Noon and twenty minutes: behind the fourth event of partition 0, the first of partition 1.
    let events: Vec<_> =
        [0, 5, 10, 15, 20, 25].map(|m| at(0, m)).into_iter().chain([10, 30].map(|m| at(1, m))).collect();
    bench.backend.append(&bench.group.stream, &events).await.unwrap();
    assert_eq!(drain(&bench, "ours").await.len(), 8);
    let time = "2026-01-31T12:20:00Z".parse().unwrap();
    let to = positions_at(&bench.backend, &bench.group.stream, &[0, 1], time).await.unwrap();
    assert_eq!(to, Positions::from([(0, 4), (1, 1)]));
    replay(&bench, to).await;
    let came = drain(&bench, "ours").await;
    assert_eq!(came.into_keys().collect::<Vec<_>>(), [(0, 5), (0, 6), (1, 2)]);
    // A reset of one partition leaves the other where it is.
    let reset = Rewind { kind: RewindKind::Reset, to: Positions::from([(1, 0)]) };
    rewind(&bench.backend, &bench.group, &reset).await.unwrap();
    let came = drain(&bench, "ours").await;
    assert_eq!(came.into_keys().collect::<Vec<_>>(), [(1, 1), (1, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_12_a_start_behind_the_end_is_the_beginning_or_beyond() {
    let mut bench = bench(1, 5).await;
    bench.append(0, 3).await;
    let time = "2100-01-01T00:00:00Z".parse().unwrap();
    let to = positions_at(&bench.backend, &bench.group.stream, &[0], time).await.unwrap();
    for (name, start) in [("late", Start::After(to)), ("beyond", Start::After([(0, 100)].into()))] {
        begin(&mut bench, name, start).await;
        let info = bench.backend.group_info(&bench.group).await.unwrap();
        assert_eq!((info.partitions[0].frontier, info.partitions[0].high_watermark), (3, 3), "{name}");
        assert!(bench.claim("ours", 10).await.leased.is_empty(), "{name}");
    }
    // A group that a peer has put beyond the end is brought back, so that nothing to come is skipped.
    let mut peer = peer(&bench);
    peer.create_group("s", "theirs", 5, peer::Start::After(100)).unwrap();
    bench.group = group_key("s", "theirs");
    let frontier = || bench.raw::<u64>("HGET rheo:T:gmeta:s:theirs frontier_p0");
    assert_eq!(frontier(), 100);
    bench.backend.heal(&bench.group, 0).await.unwrap();
    assert_eq!(frontier(), 3);

    bench.append(0, 1).await;
    for name in ["late", "beyond", "theirs"] {
        bench.group = group_key("s", name);
        let leased = bench.claim("ours", 10).await.leased;
        assert_eq!(sequences(&leased), [4], "{name}");
        assert_eq!(bench.ack(&leased).await, [Settled::Done]);
        assert_eq!(bench.lag().await, 0, "{name}");
    }
}
