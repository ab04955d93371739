//! The leases that Rheo left behind: those that stand settle under the ids that Rheo gave, those that
//! ran out or were let go come again, and nothing else does.

use std::collections::BTreeMap;

use serde_json::Value;
use wasmill::backend::redis::Redis;
use wasmill::backend::{Backend as _, ClaimRequest, SettleRequest, Settled};
use wasmill::event::{GroupKey, Lease};
use wasmill::outcome::{Effects, Settlement, Verdict};

use crate::fixture::{connect, expected, group_key, groups, server};
use crate::kit::LONG;

/// All leases that the expectations name, with the group of each.
pub(crate) fn leases() -> Vec<(GroupKey, String, Lease)> {
    let expected = expected();
    let mut leases = Vec::new();
    for named in expected["leases"].as_object().unwrap().values() {
        let list = named.as_array().cloned().unwrap_or_else(|| vec![named.clone()]);
        leases.extend(list.iter().map(lease));
    }
    leases
}

fn lease(value: &Value) -> (GroupKey, String, Lease) {
    let text = |field: &str| value[field].as_str().unwrap();
    let number = |field: &Value| u32::try_from(field.as_u64().unwrap()).unwrap();
    let lease = Lease {
        id: text("lease_id").into(),
        receipt: text("receipt").into(),
        partition: number(&value["event"]["partition"]),
        sequence: value["event"]["sequence"].as_u64().unwrap(),
        attempt: number(&value["attempt"]),
    };
    (group_key(text("stream"), text("group")), text("event_id").to_owned(), lease)
}

/// Leases that were settled before the data was saved, and one whose event was let go.
pub(crate) const OVER: [&str; 3] = ["multi-2", "multi-3", "evt-0009"];

async fn ack(backend: &Redis, group: &GroupKey, lease: Lease) -> Settled {
    let settlements = [Settlement { lease, verdict: Verdict::Ack(Effects::default()), plugin: None }];
    let request = SettleRequest { group, consumer: "c", settlements: &settlements };
    backend.settle(&request).await.unwrap()[0]
}

/// Claims until nothing more comes: sequence and attempt of each event by partition.
async fn claim_all(backend: &Redis, group: &GroupKey) -> BTreeMap<(u32, u64), u32> {
    let info = backend.group_info(group).await.unwrap();
    let partitions: Vec<u32> = info.partitions.iter().map(|p| p.partition).collect();
    let mut claimed = BTreeMap::new();
    let mut empty = 0;
    // Few entries are pending: each sweep sees all of them, whichever partition's turn it is.
    while empty < 5 {
        let request = ClaimRequest {
            group,
            consumer: "w",
            partitions: &partitions,
            limit: 100,
            lease: LONG,
            sweep: true,
            alone: false,
        };
        let answer = backend.claim(&request).await.unwrap();
        assert_eq!((answer.dead_lettered.len(), answer.suspects), (0, false));
        empty = if answer.leased.is_empty() { empty + 1 } else { 0 };
        for leased in answer.leased {
            let (at, attempt) = ((leased.event.partition, leased.event.sequence), leased.lease.attempt);
            assert_eq!(claimed.insert(at, attempt), None, "{at:?} came twice");
        }
    }
    claimed
}

#[tokio::test]
async fn held_leases_settle_under_rheos_ids() {
    let server = server();
    let backend = connect(&server, "Fixture").await;
    let leases = leases();
    assert_eq!(leases.len(), 13);
    for (group, event, lease) in leases {
        let over = OVER.contains(&event.as_str());
        if !over {
            let other = Lease { receipt: "1-1".into(), ..lease.clone() };
            assert_eq!(ack(&backend, &group, other).await, Settled::ReceiptMismatch, "{event}");
            let other = Lease { id: "AAAAAAAAAAAAAAAAAAAAAA".into(), ..lease.clone() };
            assert_eq!(ack(&backend, &group, other).await, Settled::Stale, "{event}");
        }
        // An expired lease that no one took still settles.
        let wanted = if over { Settled::Stale } else { Settled::Done };
        assert_eq!(ack(&backend, &group, lease.clone()).await, wanted, "{event}");
        assert_eq!(ack(&backend, &group, lease).await, Settled::Stale, "{event} a second time");
    }
    let info = backend.group_info(&group_key("orders", "risk")).await.unwrap();
    assert_eq!(info.partitions[0].frontier, 8, "3 to 8 are settled, 9 waits");
    let info = backend.group_info(&group_key("multi", "g")).await.unwrap();
    let frontiers: Vec<_> = info.partitions.iter().map(|p| p.frontier).collect();
    assert_eq!(frontiers, [4, 2, 0, 2]);
    let info = backend.group_info(&group_key("replayed", "g")).await.unwrap();
    assert_eq!(info.partitions[0].frontier, 3);
}

#[tokio::test]
async fn what_rheo_let_go_comes_again_and_nothing_else() {
    let server = server();
    let backend = connect(&server, "Fixture").await;
    let new = |partition: u32, sequences: std::ops::RangeInclusive<u64>| {
        sequences.map(move |sequence| ((partition, sequence), 1)).collect::<Vec<_>>()
    };
    for (stream, group) in groups(&expected()) {
        let wanted: Vec<((u32, u64), u32)> = match (stream.as_str(), group.as_str()) {
            // 8 ran out and 9 was let go; 3 and 10 are held.
            ("orders", "risk") => [vec![((0, 8), 2), ((0, 9), 2)], new(0, 11..=12)].concat(),
            ("orders", "audit") => new(0, 8..=12),
            ("orders", "late") => new(0, 4..=12),
            ("multi", "g") => [new(1, 3..=6), new(3, 3..=4)].concat(),
            ("replayed", "g") => new(0, 4..=5),
            ("wiped", "g") => new(0, 2..=3),
            ("orders", "clean") | ("empty", "g") => Vec::new(),
            other => panic!("{other:?} is not foreseen"),
        };
        let claimed = claim_all(&backend, &group_key(&stream, &group)).await;
        assert_eq!(claimed, wanted.into_iter().collect(), "{stream}/{group}");
    }
}

#[tokio::test]
async fn entries_that_share_an_id_are_told_apart() {
    let server = server();
    let backend = connect(&server, "Collide").await;
    let group = group_key("multi", "g");
    // Partition 0 was stolen from its holder, and is held; partition 1 is settled.
    let info = backend.group_info(&group).await.unwrap();
    assert_eq!(
        info.partitions.iter().map(|p| (p.frontier, p.in_flight)).collect::<Vec<_>>(),
        [(0, 1), (1, 0)]
    );
    assert_eq!(claim_all(&backend, &group).await, BTreeMap::new());
    let lease = |id: &str, partition: u32| Lease {
        id: id.into(),
        receipt: "1796069904514-0".into(),
        partition,
        sequence: 1,
        attempt: 2,
    };
    let held = "FInzK_alPsoXtn5a_5Oc_w";
    assert_eq!(ack(&backend, &group, lease(held, 1)).await, Settled::Stale, "of another partition");
    assert_eq!(ack(&backend, &group, lease("0uLms44bUNq8-jqFcLC-mg", 0)).await, Settled::Stale, "was stolen");
    assert_eq!(ack(&backend, &group, lease(held, 0)).await, Settled::Done);
    assert_eq!(backend.group_info(&group).await.unwrap().lag(|_| true), 0);
    assert_eq!(claim_all(&backend, &group).await, BTreeMap::new());
}
