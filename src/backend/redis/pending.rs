//! What is pending, and dead letters, page by page. Nothing here writes.

use std::collections::VecDeque;

use redis::Value;

use super::connection::Effect;
use super::errors::{ServerCode, code_of};
use super::reply::{self, Answers, array, checked, count, number_or_zero, text, text_or_empty, time_ms};
use super::{Redis, codec};
use crate::backend::{DeadLetter, Error, PendingEntry, PendingState, Result};
use crate::event::GroupKey;
use crate::outcome::FailureKind;

/// Rows that are asked for in one go, since each brings a whole event.
const PAGE_MAX: usize = 200;

impl Redis {
    pub(super) async fn list_pending(
        &self,
        group: &GroupKey,
        partition: u32,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<PendingEntry>> {
        let partitions = self.partitions_of(&group.stream).await?;
        if partition >= partitions {
            let stream = group.stream.clone();
            return Err(Error::PartitionNotFound { stream, partition, partitions });
        }
        let mut pending: Vec<PendingEntry> = Vec::new();
        let mut from = exclusive(after)?;
        let mut unlisted = self.unlisted_rows(group, partition, after).await?;
        loop {
            let asked = (limit - pending.len()).min(PAGE_MAX);
            let mut rows = self.pending_rows(group, partition, &from, asked).await?;
            let end = rows.len() < asked && unlisted.len() + rows.len() <= asked;
            merge(&mut rows, &mut unlisted, asked);
            let Some(last) = rows.last() else { return Ok(pending) };
            from = format!("({}", last.id);
            pending.extend(self.fill_in(group, partition, rows).await?);
            if end {
                return Ok(pending);
            }
        }
    }

    /// Redriven events that the pending list does not name, behind a cursor, in the order of their
    /// receipts.
    async fn unlisted_rows(
        &self,
        group: &GroupKey,
        partition: u32,
        after: Option<&str>,
    ) -> Result<VecDeque<PendingRow>> {
        let ids = self.unlisted(group, partition).await?.into_iter().map(|(id, _)| id);
        let after = after.and_then(reply::parse_id);
        let mut rows: Vec<PendingRow> =
            ids.filter(|id| reply::parse_id(id) > after).map(PendingRow::unlisted).collect();
        rows.sort_by_key(|row| reply::parse_id(&row.id));
        Ok(rows.into())
    }

    pub(super) async fn pending_rows(
        &self,
        group: &GroupKey,
        partition: u32,
        from: &str,
        limit: usize,
    ) -> Result<Vec<PendingRow>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HLEN").arg(self.keys.group(group));
        pipe.cmd("XPENDING").arg(self.keys.entries(&group.stream, partition)).arg(group.group.as_str());
        pipe.arg(from).arg("+").arg(limit.max(1));
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let keys = || self.typed_keys(group, &[partition]);
        if count(self.blame(answers.next(), keys).await?)? == 0 {
            return Err(self.missing(group).await);
        }
        match answers.raw() {
            // Lost: then nothing of it is pending.
            Value::ServerError(error) if code_of(&error) == ServerCode::NoGroup => Ok(Vec::new()),
            answer => {
                let rows = array(self.blame(checked(answer), keys).await?)?;
                rows.into_iter().map(PendingRow::parse).collect()
            }
        }
    }

    /// What the fences and the log say of pending entries.
    pub(super) async fn fill_in(
        &self,
        group: &GroupKey,
        partition: u32,
        rows: Vec<PendingRow>,
    ) -> Result<Vec<PendingEntry>> {
        let entries = self.keys.entries(&group.stream, partition);
        let mut pipe = redis::pipe();
        pipe.cmd("TIME");
        for row in &rows {
            pipe.cmd("HMGET").arg(format!("{}{}", self.keys.fences(group), row.id));
            pipe.arg(&["lease_id", "attempt", "expires_at_ms", "partition", "failure", "reason"]);
            pipe.arg("consumer_id");
            pipe.cmd("XRANGE").arg(&entries).arg(&row.id).arg(&row.id);
            pipe.cmd("ZSCORE").arg(self.keys.index(&group.stream, partition)).arg(&row.id);
            pipe.cmd("ZSCORE").arg(self.keys.redriven(group, partition)).arg(&row.id);
        }
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let now = time_ms(answers.next()?)?;
        let mut pending = Vec::with_capacity(rows.len());
        for row in rows {
            let fence = array(answers.next()?)?.into_iter().map(text).collect::<Result<Vec<_>>>()?;
            let body = reply::entries(answers.next()?)?.into_iter().next();
            let mut score = || -> Result<Option<u64>> {
                Ok(reply::number(answers.next()?)?.and_then(|n| u64::try_from(n).ok()))
            };
            let (indexed, recorded) = (score()?, score()?);
            let fields = match body {
                Some(entry) => entry.fields,
                None if recorded.is_some() => {
                    let copies = self.copies(group, vec![(partition, row.id.clone())]).await?;
                    copies.into_iter().next().map(|(_, fields)| fields).unwrap_or_default()
                }
                None => Vec::new(),
            };
            pending.push(PendingEntry {
                sequence: codec::raw_sequence(codec::borrowed(&fields)).or(indexed).or(recorded),
                event_id: codec::raw_id(codec::borrowed(&fields)),
                ..row.with_fence(&fence, partition, now)
            });
        }
        Ok(pending)
    }

    pub(super) async fn list_dead_letters(
        &self,
        group: &GroupKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let mut letters: Vec<DeadLetter> = Vec::new();
        let mut from = exclusive(after)?;
        loop {
            let asked = (limit - letters.len()).min(PAGE_MAX);
            let mut pipe = redis::pipe();
            pipe.cmd("HLEN").arg(self.keys.group(group));
            pipe.cmd("XRANGE").arg(self.keys.dead_letters(group)).arg(&from).arg("+");
            pipe.arg("COUNT").arg(asked.max(1));
            let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
            let keys = || vec![(self.keys.group(group), "hash"), (self.keys.dead_letters(group), "stream")];
            if count(self.blame(answers.next(), keys).await?)? == 0 {
                return Err(self.missing(group).await);
            }
            let rows = reply::entries(self.blame(answers.next(), keys).await?)?;
            let Some(last) = rows.last().filter(|_| asked > 0) else { return Ok(letters) };
            from = format!("({}", last.id);
            let end = rows.len() < asked;
            letters.extend(rows.into_iter().map(|row| codec::decode_dead(&group.stream, row)));
            if end {
                return Ok(letters);
            }
        }
    }
}

/// The start of a range behind a cursor.
fn exclusive(after: Option<&str>) -> Result<String> {
    match after {
        None => Ok("-".to_owned()),
        Some(id) if reply::parse_id(id).is_some() => Ok(format!("({id}")),
        Some(id) => Err(Error::CursorNotFound(id.to_owned())),
    }
}

/// Puts those of `more` that belong into a page of at most `asked` rows in their places, and cuts the
/// page to its length.
fn merge(rows: &mut Vec<PendingRow>, more: &mut VecDeque<PendingRow>, asked: usize) {
    let last = rows.last().filter(|_| rows.len() >= asked).and_then(|row| reply::parse_id(&row.id));
    while let Some(row) = more.pop_front_if(|row| last.is_none() || reply::parse_id(&row.id) < last) {
        let at = rows.partition_point(|before| reply::parse_id(&before.id) < reply::parse_id(&row.id));
        rows.insert(at, row);
    }
    while rows.len() > asked {
        let Some(row) = rows.pop() else { return };
        // One that the pending list names comes again with the next page.
        if row.consumer.is_empty() && row.deliveries == 0 {
            more.push_front(row);
        }
    }
}

/// A row of XPENDING.
pub(super) struct PendingRow {
    pub(super) id: String,
    consumer: String,
    deliveries: u32,
}

impl PendingRow {
    /// An entry that the pending list does not name: its fence tells all that is known.
    pub(super) fn unlisted(id: String) -> Self {
        Self { id, consumer: String::new(), deliveries: 0 }
    }

    fn parse(row: Value) -> Result<Self> {
        let mut row = array(row)?.into_iter();
        let mut next = || row.next().unwrap_or(Value::Nil);
        let (id, consumer) = (text_or_empty(next())?, text_or_empty(next())?);
        next();
        let deliveries = u32::try_from(number_or_zero(next())?).unwrap_or(u32::MAX);
        Ok(Self { id, consumer, deliveries })
    }

    /// The entry as its fence tells; `fence`: lease id, attempt, expiry, partition, failure, reason,
    /// consumer.
    fn with_fence(self, fence: &[Option<String>], partition: u32, now_ms: i64) -> PendingEntry {
        let of = |i: usize| fence.get(i).and_then(Option::as_deref);
        let ours = of(3) == Some(partition.to_string().as_str());
        let of = |i: usize| of(i).filter(|_| ours);
        let until_ms = of(2).and_then(|text| text.parse::<i64>().ok()).unwrap_or(now_ms);
        let left_ms = until_ms.saturating_sub(now_ms);
        // The fence's word first: the list was read before it, and may name the holder before this one.
        let consumer = of(6).map_or(self.consumer, str::to_owned);
        let state = match of(0) {
            Some("parked") => PendingState::Parked { due_in_ms: left_ms },
            Some("") => PendingState::Parked { due_in_ms: 0 },
            Some(_) => PendingState::Leased { consumer, expires_in_ms: left_ms },
            None => PendingState::Leased { consumer, expires_in_ms: 0 },
        };
        // Rheo keeps a reason alone; it has one only where a handler asked for another attempt.
        let failure = of(5).map(|reason| {
            let kind = of(4).and_then(FailureKind::parse).unwrap_or(FailureKind::Retry);
            (kind, reason.to_owned())
        });
        PendingEntry {
            partition,
            sequence: None,
            event_id: None,
            receipt: self.id,
            attempt: of(1).and_then(|text| text.parse().ok()).unwrap_or(self.deliveries),
            state,
            failure,
        }
    }
}
