//! Accounts in state, transfers as events, an audit as output; and what must be true at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use wasmill::backend::conformance::Store;
use wasmill::backend::{DeadEvent, NewGroup, Shared, Start};
use wasmill::event::{Event, GroupKey, JsonObject, Name, NewEvent};
use wasmill::outcome::{Cause, Effects, StagedEvent};
use wasmill::state::{Bucket, StateRead, StateWrite};

use crate::consumer::Consumer;
use crate::{ACCOUNTS, Cut, Fate, Order};

/// How long an event is held.
pub(crate) const LEASE: Duration = Duration::from_millis(30);

/// How long the end of a walk may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A key that every transfer writes.
const COUNT: &str = "count";

pub(crate) struct Bank<'a> {
    store: &'a dyn Store,
    backend: Shared,
    pub(crate) group: GroupKey,
    pub(crate) partitions: Vec<u32>,
    audit: Name,
    bucket: Bucket,
    orders: &'a [Order],
}

impl<'a> Bank<'a> {
    pub(crate) async fn open(store: &'a dyn Store, orders: &'a [Order]) -> Result<Self> {
        let backend = store.backend();
        let (stream, audit) = (Name::new("bank")?, Name::new("audit")?);
        backend.create_stream(&stream, 2).await?;
        backend.create_stream(&audit, 2).await?;
        let group = GroupKey::new(stream, Name::new("ledger")?);
        backend.create_group(&group, NewGroup { max_attempts: 10_000, start: Start::Beginning }).await?;
        let event = |n: usize| NewEvent {
            id: Some(format!("order-{n}")),
            partition: Some(u32::from(n % 2 == 1)),
            ..NewEvent::new(JsonObject::empty())
        };
        let events: Vec<_> = (0..orders.len()).map(event).collect();
        backend.append(&group.stream, &events).await?;
        let bucket = Bucket::own("transfers", "accounts")?;
        Ok(Self { store, backend, group, partitions: vec![0, 1], audit, bucket, orders })
    }

    pub(crate) async fn connect(&self) -> Result<Shared> {
        self.store.other().await
    }

    pub(crate) async fn all_leases_end(&self) {
        self.store.pass(LEASE + LEASE / 2).await;
    }

    pub(crate) fn order(&self, event: &Event) -> Result<Order> {
        let number: usize = event.id.strip_prefix("order-").context("an id of ours")?.parse()?;
        self.orders.get(number).copied().with_context(|| format!("no order {number}"))
    }

    /// Reads two balances and the count, and stages what the order does to them.
    pub(crate) async fn effects(&self, backend: &Shared, event: &Event, order: Order) -> Result<Effects> {
        let changes = [(account(order.from), -order.amount), (account(order.to), order.amount)];
        let changes: Vec<_> = changes.into_iter().chain([(COUNT.to_owned(), 1)]).collect();
        let keys: Vec<_> = changes.iter().map(|(key, _)| key.clone()).collect();
        let values = backend.state(&self.bucket, &keys).await?;
        let mut effects = Effects { appends: self.staged(event, order)?, ..Effects::default() };
        for ((key, change), value) in changes.into_iter().zip(values) {
            let version = value.as_ref().map_or(0, |value| value.version);
            let sum = value.map_or(Ok(0), |value| number(&value.bytes))? + change;
            // An account without money is no account: keys come and go.
            let value = (sum != 0).then(|| sum.to_string().into_bytes());
            let bucket = self.bucket.clone();
            effects.reads.push(StateRead { bucket: bucket.clone(), key: key.clone(), version });
            effects.writes.push(StateWrite { bucket, key, value });
        }
        Ok(effects)
    }

    /// One event for each side.
    fn staged(&self, event: &Event, order: Order) -> Result<Vec<StagedEvent>> {
        let staged = |side: &str, at: u8| -> Result<StagedEvent> {
            let payload = JsonObject::parse(format!("{{\"account\":{at}}}"))?;
            let id = Some(format!("{}-{side}", event.id));
            let event = NewEvent { id, key: Some(account(at)), ..NewEvent::new(payload) };
            Ok(StagedEvent { stream: self.audit.clone(), event })
        };
        Ok(vec![staged("debit", order.from)?, staged("credit", order.to)?])
    }

    /// Lets one consumer do all that is left, undisturbed.
    pub(crate) async fn work_off(&self, consumer: &mut Consumer) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            consumer.step(self, Cut::None).await?;
            if !consumer.is_idle() {
                continue;
            }
            let info = self.backend.group_info(&self.group).await?;
            if info.partitions.iter().all(|p| p.lag() == 0 && p.in_flight == 0 && p.parked == 0) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "not settled within {PATIENCE:?}: {info:?}");
            self.all_leases_end().await;
        }
    }

    /// Each event is settled once, and had its effects once or not at all.
    pub(crate) async fn check(&self) -> Result<()> {
        self.check_state().await?;
        self.check_audit().await?;
        self.check_dead_letters().await
    }

    fn carried_out(&self) -> impl Iterator<Item = (usize, Order)> {
        self.orders.iter().copied().enumerate().filter(|(_, order)| order.fate != Fate::Reject)
    }

    async fn check_state(&self) -> Result<()> {
        let mut expected = BTreeMap::new();
        for (_, order) in self.carried_out() {
            *expected.entry(account(order.from)).or_insert(0) -= order.amount;
            *expected.entry(account(order.to)).or_insert(0) += order.amount;
            *expected.entry(COUNT.to_owned()).or_insert(0) += 1;
        }
        expected.retain(|_, sum| *sum != 0);
        let keys: Vec<_> = (0..ACCOUNTS).map(account).chain([COUNT.to_owned()]).collect();
        let mut found = BTreeMap::new();
        for (key, value) in keys.iter().zip(self.backend.state(&self.bucket, &keys).await?) {
            if let Some(value) = value {
                found.insert(key.clone(), number(&value.bytes)?);
            }
        }
        ensure!(found == expected, "the balances are {found:?}, not {expected:?}");
        Ok(())
    }

    async fn check_audit(&self) -> Result<()> {
        let mut expected: Vec<_> = self
            .carried_out()
            .flat_map(|(n, _)| ["credit", "debit"].map(|side| format!("order-{n}-{side}")))
            .collect();
        expected.sort();
        let mut found = Vec::new();
        for partition in self.backend.stream_info(&self.audit).await?.partitions {
            let events = self.backend.read(&self.audit, partition.partition, 0, 1000).await?;
            let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
            let contiguous: Vec<_> = (1..=partition.high_watermark).collect();
            ensure!(sequences == contiguous, "the audit has the sequences {sequences:?}, not {contiguous:?}");
            found.extend(events.into_iter().map(|event| event.id));
        }
        found.sort();
        ensure!(found == expected, "the audit holds {found:?}, not {expected:?}");
        Ok(())
    }

    async fn check_dead_letters(&self) -> Result<()> {
        let mut found = Vec::new();
        for letter in self.backend.dead_letters(&self.group, None, 1000).await? {
            ensure!(letter.cause == Some(Cause::Rejected), "a dead letter for another cause: {letter:?}");
            let DeadEvent::Event(event) = letter.event else { anyhow::bail!("{:?}", letter.event) };
            found.push(event.id);
        }
        let rejected = self.orders.iter().enumerate().filter(|(_, order)| order.fate == Fate::Reject);
        let mut expected: Vec<_> = rejected.map(|(n, _)| format!("order-{n}")).collect();
        found.sort();
        expected.sort();
        ensure!(found == expected, "the dead letters are {found:?}, not {expected:?}");
        Ok(())
    }
}

fn account(number: u8) -> String {
    format!("account-{number}")
}

fn number(bytes: &[u8]) -> Result<i64> {
    Ok(std::str::from_utf8(bytes)?.parse()?)
}
