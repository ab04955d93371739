//! Names, half-made groups, lists of dead letters.

use std::collections::BTreeMap;

use wasmill::backend::{Backend as _, Error, NewGroup, Rewind, RewindKind, Start, rewind};
use wasmill::event::Name;
use wasmill::outcome::{Cause, Verdict};

use super::{bench, drain, peer};
use crate::fixture::{group_key, name};
use crate::peer::{self, Append, Fetch, Next, Refusal};

fn new() -> NewGroup {
    NewGroup { max_attempts: 5, start: Start::Beginning }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_13_names_with_colons_collide() {
    let mut bench = bench(1, 5).await;
    // Ours are never made so.
    for text in ["a:b", "a*", "a[b]", "a b", ""] {
        assert!(Name::new(text).is_err(), "{text}");
    }
    let refused = bench.backend.create_stream(&name("s:x"), 1).await;
    assert!(matches!(refused, Err(Error::InvalidName(_))));
    let refused = bench.backend.create_group(&group_key("s", "g:x"), new()).await;
    assert!(matches!(refused, Err(Error::InvalidName(_))));

    // Those that a peer made are listed where they belong, and consumed.
    let mut peer = peer(&bench);
    for (stream, group) in [("s:x", "c"), ("we*[i]rd?", "g"), ("s", "g:x")] {
        if stream != "s" {
            peer.create_stream(stream, 1).unwrap();
        }
        peer.create_group(stream, group, 5, peer::Start::Beginning).unwrap();
        peer.append(stream, "{}", &Append::default()).unwrap();
    }
    for (stream, groups) in [("s", &["g", "g:x"][..]), ("s:x", &["c"]), ("we*[i]rd?", &["g"])] {
        let listed = bench.backend.groups(&name(stream)).await.unwrap();
        assert_eq!(listed.iter().map(Name::as_str).collect::<Vec<_>>(), groups);
    }
    let own = std::mem::replace(&mut bench.group, group_key("we*[i]rd?", "g"));
    assert_eq!(drain(&bench, "ours").await.len(), 1);
    assert_eq!(bench.lag().await, 0);
    bench.group = own;

    // A reset of one group leaves the leases of the other alone.
    let held = peer.fetch("s", "g:x", &Fetch::new("rheo", 10)).unwrap();
    assert!(!held.is_empty());
    let reset = Rewind { kind: RewindKind::Reset, to: [(0, 0)].into() };
    rewind(&bench.backend, &bench.group, &reset).await.unwrap();
    for lease in &held {
        peer.ack(lease).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_14_a_half_made_group_is_of_no_use() {
    // Only the name is taken; or one partition of two has its group; or all, but no position is known.
    for (half, gap) in [("a", 2), ("b", 3), ("c", 4)] {
        let mut bench = bench(2, 5).await;
        bench.append(0, 3).await;
        bench.append(1, 3).await;
        let mut dying = peer(&bench);
        dying.once_in_gap("create_group", gap, || Next::Die);
        assert_eq!(dying.create_group("s", half, 5, peer::Start::Beginning), Err(Refusal::Died));
        let group = group_key("s", half);
        assert!(matches!(bench.backend.create_group(&group, new()).await, Err(Error::GroupExists(_))));
        let info = bench.backend.group_info(&group).await.unwrap();
        assert_eq!((info.lag(|_| true), info.max_attempts), (6, 5), "{half}");
        bench.group = group;
        let came = drain(&bench, "ours").await;
        assert_eq!((came.len(), came.values().sum::<u32>()), (6, 6), "{half}");
        assert_eq!(bench.lag().await, 0, "{half}");
        // It is a whole group for Rheo, too.
        bench.append(1, 1).await;
        let mut peer = peer(&bench);
        let fetched = peer.fetch("s", half, &Fetch::new("rheo", 10)).unwrap();
        assert_eq!(fetched.len(), 1, "{half}");
        peer.ack(&fetched[0]).unwrap();
        assert_eq!(bench.lag().await, 0, "{half}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_15_dead_letters_end_at_the_first_page() {
    const LETTERS: usize = 600;
    let bench = bench(1, 5).await;
    bench.append(0, LETTERS).await;
    let leased = bench.claim("ours", LETTERS).await.leased;
    let reject = |_: &_| Verdict::DeadLetter { cause: Cause::Rejected, reason: "no".into(), failure: None };
    for part in leased.chunks(200) {
        bench.settle(part, reject).await.unwrap();
    }
    // Rheo's own list knows no cursor beyond its first rows.
    let mut peer = peer(&bench);
    let ids: Vec<_> = leased.iter().map(|leased| leased.event.id.clone()).collect();
    assert_eq!(peer.dead_letters("s", "g", 10, Some(&ids[500])), Err(Refusal::CursorNotFound));
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let page = bench.backend.dead_letters(&bench.group, after.as_deref(), 7).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.row.clone());
        found.extend(page.iter().map(|letter| match &letter.event {
            wasmill::backend::DeadEvent::Event(event) => event.id.clone(),
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(found, ids);
    // On purpose, as in Rheo: a reset keeps them.
    let reset = Rewind { kind: RewindKind::Reset, to: BTreeMap::from([(0, 0)]) };
    rewind(&bench.backend, &bench.group, &reset).await.unwrap();
    let info = bench.backend.group_info(&bench.group).await.unwrap();
    assert_eq!((info.dead_letters, info.lag(|_| true)), (LETTERS as u64, LETTERS as u64));
}
