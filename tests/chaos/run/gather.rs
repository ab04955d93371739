//! Reads what the store holds at the end.

use serde::Deserialize;
use wasmill::backend::{DeadEvent, Result, Shared};
use wasmill::event::{Event, Name};
use wasmill::outcome::Cause;
use wasmill::state::Bucket;

use super::clock;
use super::ground::{effects, group};
use crate::history::{Record, What};

const PAGE: usize = 1000;

/// An effect's payload.
#[derive(Deserialize)]
struct Effect {
    id: String,
    attempt: u32,
    account: String,
    sum: u64,
}

/// Adds what the log, the effects, the state and the dead letters are.
pub(super) async fn gather(store: &Shared, records: &mut Vec<Record>) -> Result<()> {
    let mut add = |at, what| records.push(Record { at, what });
    let now = clock::now();
    for event in events(store, &group().stream).await? {
        let Event { id, partition, sequence, .. } = event;
        add(now, What::Stored { id, partition, sequence });
    }
    let mut accounts = std::collections::BTreeSet::new();
    for event in events(store, &effects()).await? {
        let effect: Effect = serde_json::from_str(event.payload.as_str()).unwrap();
        let Effect { id, attempt, account, sum } = effect;
        accounts.insert(account.clone());
        add(clock::parse(&event.timestamp), What::Effect { id, attempt, account, sum });
    }
    let bucket = Bucket::own("p", "sums").unwrap();
    let accounts: Vec<_> = accounts.into_iter().collect();
    for (account, value) in accounts.iter().zip(store.state(&bucket, &accounts).await?) {
        let sum = value.map_or(0, |value| String::from_utf8(value.bytes).unwrap().parse().unwrap());
        add(now, What::State { account: account.clone(), sum });
    }
    let mut after: Option<String> = None;
    loop {
        let page = store.dead_letters(&group(), after.as_deref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.row.clone());
        for letter in page {
            let DeadEvent::Event(event) = letter.event else { panic!("no event: {:?}", letter.event) };
            let (attempts, rejected) = (letter.attempts.unwrap(), letter.cause == Some(Cause::Rejected));
            let at = clock::parse(&letter.dead_lettered_at.unwrap());
            add(at, What::Dead { id: event.id, attempts, rejected });
        }
    }
    for partition in store.group_info(&group()).await?.partitions {
        for entry in store.pending(&group(), partition.partition, None, PAGE).await? {
            add(now, What::Unsettled { id: entry.event_id.unwrap_or_default() });
        }
    }
    Ok(())
}

async fn events(store: &Shared, stream: &Name) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for partition in store.stream_info(stream).await?.partitions {
        let mut after = 0;
        loop {
            let page = store.read(stream, partition.partition, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.sequence;
            events.extend(page);
        }
    }
    Ok(events)
}
