//! What holds a frontier, where others have damaged the state.

use wasmill::backend::{Backend as _, Holder, HolderState, PendingState};

use crate::kit::Bench;

async fn holder(bench: &Bench) -> Holder {
    bench.backend.explain(&bench.group, 0).await.unwrap().holder.expect("something holds the frontier")
}

#[tokio::test]
async fn fault_4_a_hole_is_unwritten() {
    let bench = Bench::new(1).await;
    bench.append(0, 1).await;
    let _: i64 = bench.raw("INCRBY rheo:T:seq:s:0 1");
    bench.append(0, 1).await;
    let held = bench.claim("a", 2).await.leased;
    bench.ack(&held).await;
    let found = holder(&bench).await;
    assert_eq!((found.sequence, found.state), (2, HolderState::Unwritten));
}

#[tokio::test]
async fn fault_5_an_entry_without_index_row_is_found() {
    let bench = Bench::new(1).await;
    bench.append(0, 1).await;
    let id = bench.append_like_rheo(0, "*");
    let _: i64 = bench.raw(&format!("ZREM rheo:T:z:s:0 {id}"));
    let held = bench.claim("a", 1).await.leased;
    bench.ack(&held).await;
    let found = holder(&bench).await;
    assert_eq!((found.sequence, found.event_id.as_deref()), (2, Some("rheo-0-2")));
    assert_eq!(found.state, HolderState::Undelivered);
    bench.claim("a", 1).await;
    assert!(matches!(holder(&bench).await.state, HolderState::Pending(entry) if entry.receipt == id));
}

#[tokio::test]
async fn fault_19_a_settlement_that_left_no_trace_is_unclear() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    let held = bench.claim("a", 2).await.leased;
    let receipt = &held[0].lease.receipt;
    let _: i64 = bench.raw(&format!("XACK rheo:T:s:s:0 g {receipt}"));
    let _: i64 = bench.raw(&format!("DEL rheo:T:fence:s:g:{receipt}"));
    let found = holder(&bench).await;
    assert_eq!((found.sequence, found.state), (1, HolderState::Unclear));
    let _: i64 = bench.raw("ZADD rheo:T:done:s:g:0 1 1");
    assert_eq!(holder(&bench).await.state, HolderState::Settled);
}

#[tokio::test]
async fn a_body_that_is_gone_is_missing() {
    let bench = Bench::new(1).await;
    bench.append(0, 3).await;
    let held = bench.claim("a", 3).await.leased;
    let _: i64 = bench.raw(&format!("XDEL rheo:T:s:s:0 {}", held[0].lease.receipt));
    let found = holder(&bench).await;
    assert_eq!((found.sequence, found.state), (1, HolderState::Missing));
    let _: i64 = bench.raw(&format!("ZREM rheo:T:z:s:0 {}", held[0].lease.receipt));
    assert_eq!(holder(&bench).await.state, HolderState::Missing);
    let _: i64 = bench.raw("DEL rheo:T:s:s:0 rheo:T:z:s:0");
    assert_eq!(holder(&bench).await.state, HolderState::Missing);
}

#[tokio::test]
async fn a_lease_of_a_lost_group_is_shown() {
    let bench = Bench::new(1).await;
    bench.append(0, 2).await;
    bench.claim("me", 1).await;
    let _: i64 = bench.raw("XGROUP DESTROY rheo:T:s:s:0 g");
    let HolderState::Pending(entry) = holder(&bench).await.state else { panic!("it is held") };
    assert!(matches!(&entry.state, PendingState::Leased { consumer, .. } if consumer == "me"), "{entry:?}");
}
