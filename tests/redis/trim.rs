//! Retention beside others.

use std::time::Duration;

use wasmill::backend::{Backend as _, Held, NewGroup, Start, Trim, Trimmed};
use wasmill::event::{GroupKey, Name};

use crate::kit::{Bench, sequences};

const ALL: Trim = Trim { partition: 0, max_length: Some(0), max_age: None, until: None, force: false };

impl Bench {
    async fn trim(&self, trim: Trim) -> Trimmed {
        self.backend.trim(&self.group.stream, trim).await.unwrap()
    }

    /// Appends and settles so many events. Their ids.
    async fn append_and_settle(&self, count: usize) -> Vec<String> {
        self.append(0, count).await;
        let leased = self.claim("a", count).await.leased;
        self.ack(&leased).await;
        leased.iter().map(|leased| leased.lease.receipt.to_string()).collect()
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn held(removed: u64, group: &str, sequence: u64) -> Trimmed {
    Trimmed { removed, more: false, held: Some(Held { group: name(group), sequence }) }
}

#[tokio::test]
async fn a_group_that_is_none_of_rheos_holds_what_it_needs() {
    let bench = Bench::new(1).await;
    let _: String = bench.raw("XGROUP CREATE rheo:T:s:s:0 plain 0");
    let ids = bench.append_and_settle(6).await;
    assert_eq!(bench.trim(ALL).await, held(0, "plain", 1));
    let _: redis::Value = bench.raw("XREADGROUP GROUP plain c COUNT 4 STREAMS rheo:T:s:s:0 >");
    assert_eq!(bench.trim(ALL).await, held(0, "plain", 1), "it is pending");
    let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 plain {} {} {}", ids[0], ids[1], ids[3]));
    assert_eq!(bench.trim(ALL).await, held(2, "plain", 3));
    let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 plain {}", ids[2]));
    // What it comes to next has no row: what stands behind it is not taken from it all the same.
    let _: i64 = bench.raw(&format!("ZREM rheo:T:z:s:0 {}", ids[4]));
    assert_eq!(bench.trim(ALL).await, held(2, "plain", 6));
    let left: i64 = bench.raw("XLEN rheo:T:s:s:0");
    assert_eq!(left, 2);
    let forced = bench.trim(Trim { until: Some(9), max_length: None, force: true, ..ALL }).await;
    assert_eq!(forced, Trimmed { removed: 1, more: false, held: None });
}

#[tokio::test]
async fn a_group_that_was_made_a_moment_ago_holds() {
    let bench = Bench::new(1).await;
    bench.append_and_settle(4).await;
    let trim = Trim { until: Some(1), max_length: None, ..ALL };
    assert_eq!(bench.trim(trim).await.removed, 1);
    // The names of the groups are known for a while; this one is found in the log itself.
    let _: i64 = bench.raw("HSET rheo:T:gmeta:s:new max_attempts 5");
    let _: String = bench.raw("XGROUP CREATE rheo:T:s:s:0 new 0");
    assert_eq!(bench.trim(ALL).await, held(0, "new", 1));
}

#[tokio::test]
async fn rows_whose_entries_others_trimmed_go_with_what_is_left() {
    let bench = Bench::new(1).await;
    bench.append_and_settle(10).await;
    bench.append(0, 2).await;
    let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 4");
    let _: i64 = bench.raw("ZADD rheo:T:z:s:0 0.5 nonsense");
    assert_eq!(
        bench.trim(Trim { max_length: Some(3), ..ALL }).await,
        Trimmed { removed: 1, more: false, held: None }
    );
    let rows: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:0 0 -1");
    assert_eq!(rows.len(), 3);
    // A bound that nothing exceeds does not keep them either.
    let _: i64 = bench.raw("XTRIM rheo:T:s:s:0 MAXLEN 2");
    let wide = Trim { max_length: Some(100), max_age: Some(Duration::from_secs(3600)), ..ALL };
    assert_eq!(bench.trim(wide).await, Trimmed::default());
    let rows: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:0 0 -1");
    assert_eq!(rows.len(), 2);
    assert_eq!(sequences(&bench.claim("a", 10).await.leased), [11, 12]);
    // Those that a group has not settled stay until it has passed them.
    let _: i64 = bench.raw("DEL rheo:T:s:s:0");
    assert_eq!(bench.trim(ALL).await, held(0, "g", 11));
}

#[tokio::test]
async fn leftover_fences_of_this_partition_go() {
    let bench = Bench::new(2).await;
    let ids = bench.append_and_settle(3).await;
    let fence = |id: &str, partition: u32| {
        let key = format!("HSET rheo:T:fence:s:g:{id} lease_id l partition {partition} expires_at_ms 1");
        let _: i64 = bench.raw(&key);
    };
    fence(&ids[0], 0);
    fence(&ids[1], 1);
    let _: i64 = bench.raw(&format!("HSET rheo:T:fence:s:g:{} expires_at_ms 1", ids[2]));
    assert_eq!(bench.trim(ALL).await.removed, 3);
    let left: Vec<String> = bench.raw("KEYS rheo:T:fence:*");
    assert_eq!(left, [format!("rheo:T:fence:s:g:{}", ids[1])]);
}

#[tokio::test]
async fn a_full_server_is_trimmed() {
    let bench = Bench::new(1).await;
    bench.append_and_settle(5).await;
    bench.append(0, 5).await;
    let _: () = bench.raw("CONFIG SET maxmemory 1");
    assert_eq!(bench.trim(ALL).await, held(5, "g", 6));
    let forced = bench.trim(Trim { force: true, ..ALL }).await;
    assert_eq!(forced, Trimmed { removed: 5, more: false, held: None });
    let _: () = bench.raw("CONFIG SET maxmemory 0");
    let state = bench.backend.group_info(&bench.group).await.unwrap().partitions[0];
    assert_eq!((state.missing, state.lag()), (5, 0));
}

#[tokio::test]
async fn many_groups_and_entries_go_in_bounded_steps() {
    let bench = Bench::new(1).await;
    for n in 0..30 {
        let group = GroupKey::new(bench.group.stream.clone(), name(&format!("h{n}")));
        let new = NewGroup { max_attempts: 5, start: Start::End };
        bench.backend.create_group(&group, new).await.unwrap();
    }
    bench.append(0, 20_000).await;
    let before = bench.server_cpu();
    let (mut removed, mut steps) = (0, 0);
    loop {
        let trimmed = bench.trim(Trim { force: true, ..ALL }).await;
        removed += trimmed.removed;
        steps += 1;
        if !trimmed.more {
            break;
        }
    }
    assert_eq!(removed, 20_000);
    assert!(steps >= 40, "{steps} steps");
    let each = (bench.server_cpu() - before) / steps;
    assert!(each < Duration::from_millis(30), "{each:?} for a step");
    assert_eq!(bench.backend.heal(&bench.group, 0).await.unwrap(), []);
    assert_eq!(bench.lag().await, 0);
}

#[tokio::test]
async fn a_second_entry_with_a_settled_sequence_stays_until_it_is_settled() {
    let bench = Bench::new(1).await;
    bench.append_and_settle(2).await;
    // Another writer's counter was behind: its entry has the sequence of one that is settled.
    let twin = bench.add_entry(0, "*", 2);
    bench.add_row(0, &twin, 2);
    assert_eq!(bench.trim(ALL).await, held(2, "g", 2), "the group has not come to it");
    let leased = bench.claim("a", 10).await.leased;
    assert_eq!(leased.len(), 1);
    assert_eq!(bench.trim(ALL).await, held(0, "g", 2), "it is pending");
    bench.ack(&leased).await;
    assert_eq!(bench.trim(ALL).await, Trimmed { removed: 1, more: false, held: None });
}

#[tokio::test]
async fn a_row_behind_the_group_whose_entry_is_gone_holds_nothing() {
    let bench = Bench::new(1).await;
    bench.append_and_settle(2).await;
    bench.append(0, 1).await;
    let last: Vec<String> = bench.raw("ZRANGE rheo:T:z:s:0 -1 -1");
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {}", last[0]));
    bench.backend.heal(&bench.group, 0).await.unwrap();
    assert_eq!(bench.lag().await, 0);
    let all = Trim { until: Some(3), max_length: None, ..ALL };
    assert_eq!(bench.trim(all).await, Trimmed { removed: 2, more: false, held: None });
    let rows: i64 = bench.raw("ZCARD rheo:T:z:s:0");
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn how_far_a_stream_was_trimmed_says_nothing_of_a_later_one() {
    let bench = Bench::new(1).await;
    bench.append_and_settle(5).await;
    assert_eq!(bench.trim(ALL).await.removed, 5);
    for key in ["meta:s", "seq:s:0", "z:s:0", "s:s:0", "gmeta:s:g", "note:s:g", "done:s:g:0"] {
        let _: i64 = bench.raw(&format!("DEL rheo:T:{key}"));
    }
    bench.backend.create_stream(&bench.group.stream, 1).await.unwrap();
    let new = NewGroup { max_attempts: 5, start: Start::Beginning };
    bench.backend.create_group(&bench.group, new).await.unwrap();
    // An append that is under way: its gap is young, and nothing passes it.
    let sequence = bench.take_sequence(0);
    bench.append_like_rheo(0, "*");
    assert_eq!(bench.backend.heal(&bench.group, 0).await.unwrap(), []);
    assert_eq!(bench.lag().await, 2);
    let id = bench.add_entry(0, "*", sequence);
    bench.add_row(0, &id, sequence);
    assert_eq!(bench.claim("a", 10).await.leased.len(), 2);
}
