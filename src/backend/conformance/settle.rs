//! Settling: conditional on the lease, per item (invariant 4).

use std::time::Duration;

use anyhow::Result;

use super::Store;
use super::kit::{
    LONG, MANY, SHORT, Scene, Take, ack, ensure_eq, ensure_none, name, reject, retry, sequences, settlement,
};
use crate::backend::{Error, SETTLE_BATCH_MAX, SettleRequest, Settled};
use crate::event::{GroupKey, Lease};
use crate::outcome::Verdict;

/// A lease settles once.
pub async fn acks_once(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let held = scene.claim("a", 2).await?;
    for leased in &held {
        scene.done(&leased.lease, ack()).await?;
        for verdict in [ack(), retry(Duration::ZERO), reject(), Verdict::Release] {
            let what = format!("{verdict:?} after the ack");
            ensure_eq(&what, scene.verdict(&leased.lease, verdict).await?, Settled::Stale)?;
        }
    }
    ensure_eq("what comes after an ack leaves no dead letter", scene.info().await?.dead_letters, 0)?;
    scene.ensure_drained().await
}

/// Each item of a batch has its own answer, in the order given, and stands alone.
pub async fn answers_each_item_in_order(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 2, MANY, 4).await?;
    let held = scene.claim_all("a", 8).await?;
    let at = |partition: u32, sequence: u64| -> Result<Lease> {
        let found = held.iter().find(|l| (l.event.partition, l.event.sequence) == (partition, sequence));
        Ok(found.ok_or_else(|| anyhow::anyhow!("event {partition}/{sequence} is held"))?.lease.clone())
    };
    scene.done(&at(0, 2)?, ack()).await?;
    let forged = Lease { id: "AAAAAAAAAAAAAAAAAAAAAA".into(), ..at(1, 2)? };
    let batch = [
        settlement(&at(1, 1)?, ack()),
        settlement(&at(0, 2)?, ack()),
        settlement(&at(0, 1)?, retry(LONG)),
        settlement(&forged, reject()),
        settlement(&at(1, 2)?, reject()),
        settlement(&at(0, 3)?, Verdict::Release),
        settlement(&at(1, 3)?, ack()),
    ];
    let settled = scene.settle("a", &batch).await?;
    use Settled::{Done, Stale};
    ensure_eq("one answer an item, in order", settled, vec![Done, Stale, Done, Stale, Done, Done, Done])?;
    let (first, second) = (scene.partition(0).await?, scene.partition(1).await?);
    ensure_eq("the parked event holds its frontier", first.frontier, 0)?;
    ensure_eq("what is settled moves the other", second.frontier, 3)?;
    ensure_eq("what is left is in flight", (first.in_flight, second.in_flight), (1, 1))?;
    let ready = scene.claim("b", 10).await?;
    ensure_eq("the released event is ready", sequences(&ready), vec![3])?;
    let leases = [at(0, 2)?, at(0, 4)?, forged, at(1, 4)?];
    let renewed = scene.backend.renew(&scene.group, &leases, LONG).await?;
    ensure_eq("renewals too have one answer an item", renewed, vec![Stale, Done, Stale, Done])?;
    ensure_none("an empty batch has no answers", &scene.settle("a", &[]).await?)?;
    ensure_none("nor has an empty renewal", &scene.backend.renew(&scene.group, &[], LONG).await?)
}

/// A receipt that names another entry than the sequence settles neither.
pub async fn refuses_the_receipt_of_another_entry(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 2).await?;
    let held = scene.claim("a", 2).await?;
    let [first, second] = &held[..] else { anyhow::bail!("two events are held: found {held:?}") };
    let crossed = Lease { receipt: second.lease.receipt.clone(), ..first.lease.clone() };
    if first.lease.id == second.lease.id {
        let settled = scene.verdict(&crossed, ack()).await?;
        ensure_eq("a crossed receipt", settled, Settled::ReceiptMismatch)?;
        let renewed = scene.renew(&crossed, LONG).await?;
        ensure_eq("its renewal", renewed, Settled::ReceiptMismatch)?;
    }
    for receipt in [second.lease.receipt.as_ref(), "0-1", "9-9", "none", ""] {
        for lease in [&first.lease, &second.lease] {
            if lease.receipt.as_ref() == receipt {
                continue;
            }
            let wrong = Lease { receipt: receipt.into(), ..lease.clone() };
            let settled = scene.verdict(&wrong, reject()).await?;
            anyhow::ensure!(settled != Settled::Done, "the receipt {receipt:?} settles nothing");
        }
    }
    let state = scene.partition(0).await?;
    ensure_eq("nothing was settled", (state.frontier, state.in_flight), (0, 2))?;
    scene.ack_all(&held).await?;
    scene.ensure_drained().await
}

/// A batch of the largest size is taken whole, a larger one refused whole.
pub async fn takes_a_batch_up_to_its_bound(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, SETTLE_BATCH_MAX + 1).await?;
    let held = scene.claim_all("a", SETTLE_BATCH_MAX + 1).await?;
    let batch: Vec<_> = held.iter().map(|l| settlement(&l.lease, ack())).collect();
    let request = SettleRequest { group: &scene.group, consumer: "a", settlements: &batch };
    let refused = scene.backend.settle(&request).await;
    ensure_err!(
        "one settlement too many",
        refused,
        Error::BatchTooLarge { items, max: SETTLE_BATCH_MAX } if items == SETTLE_BATCH_MAX + 1
    );
    let leases: Vec<_> = held.iter().map(|l| l.lease.clone()).collect();
    let refused = scene.backend.renew(&scene.group, &leases, LONG).await;
    ensure_err!("one renewal too many", refused, Error::BatchTooLarge { .. });
    ensure_eq("a refused batch settles nothing", scene.partition(0).await?.frontier, 0)?;
    let renewed = scene.backend.renew(&scene.group, &leases[1..], LONG).await?;
    ensure_eq("the largest renewal", renewed, vec![Settled::Done; SETTLE_BATCH_MAX])?;
    let settled = scene.settle("a", &batch[1..]).await?;
    ensure_eq("the largest batch", settled, vec![Settled::Done; SETTLE_BATCH_MAX])?;
    scene.done(&held[0].lease, ack()).await?;
    scene.ensure_drained().await
}

/// A missing stream or group is an error.
pub async fn names_what_is_missing(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 1).await?;
    let lease = scene.claim_one("a", LONG).await?.lease;
    let batch = [settlement(&lease, ack())];
    let nowhere = GroupKey::new(name("nowhere")?, name("workers")?);
    let nobody = GroupKey::new(scene.group.stream.clone(), name("nobody")?);
    let settle = async |group| {
        let request = SettleRequest { group, consumer: "a", settlements: &batch };
        scene.backend.settle(&request).await
    };
    let renew = async |group| scene.backend.renew(group, std::slice::from_ref(&lease), SHORT).await;
    ensure_err!("settle on a missing stream", settle(&nowhere).await, Error::StreamNotFound(_));
    ensure_err!("renew on a missing stream", renew(&nowhere).await, Error::StreamNotFound(_));
    ensure_err!("settle in a missing group", settle(&nobody).await, Error::GroupNotFound(_));
    ensure_err!("renew in a missing group", renew(&nobody).await, Error::GroupNotFound(_));
    Ok(())
}

/// Any handle settles what another one claimed: the lease is the proof, not the connection.
pub async fn leaves_the_rest_to_other_consumers(store: &dyn Store) -> Result<()> {
    let scene = Scene::with_events(store, 1, MANY, 3).await?;
    let other = scene.through(store.other().await?);
    let held = scene.take(Take::by("a").limit(2)).await?.leased;
    other.ack_all(&held).await?;
    let rest = other.claim("b", 10).await?;
    ensure_eq("the other handle gets what is left", sequences(&rest), vec![3])?;
    ensure_eq("and its renewals count", scene.renew(&rest[0].lease, LONG).await?, Settled::Done)?;
    scene.ack_all(&rest).await?;
    other.ensure_drained().await
}
