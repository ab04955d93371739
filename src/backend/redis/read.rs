//! Reading a partition's events back, page by page.
//!
//! The index tells the sequences, the log has the bodies. Entries of other writers can stand in another
//! order than their sequences, and have no index row for a while, or ever: so a page reads the part of
//! the log that its index rows span, from the row before them on, and puts it in order.

use std::collections::HashMap;

use redis::Value;

use super::connection::Effect;
use super::reply::{self, Answers, Entry, array, number_or_zero, text_or_empty, time_ms};
use super::{Redis, codec, millis, partition_count};
use crate::backend::{Error, Order, Result, ScanPage, ScanRange, Unreadable};
use crate::event::{Event, Name};

/// Index rows of the first part of a page, and of any part.
const ROWS_FIRST: usize = 32;
const ROWS_MAX: usize = 500;
/// Bytes after which a page ends, roughly.
const PAGE_BYTES: usize = 4 << 20;
/// Entries that are read beyond the rows of a part: others' in between.
const SLACK: usize = 64;
/// Parts of the log that are read for one part of the index, should others' entries abound.
const PIECES_MAX: usize = 16;

/// A row of the index.
type Row = (u64, String);

/// What the index says of a part.
struct Part {
    /// In the direction of the scan.
    rows: Vec<Row>,
    /// The row before the first one, and the one behind the last one, in the order of sequences.
    before: Option<Row>,
    behind: Option<Row>,
    /// No row of the range follows.
    end: bool,
    now_ms: i64,
    /// The sequence up to which the log was trimmed.
    trimmed: u64,
}

impl Redis {
    pub(super) async fn do_scan(&self, stream: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
        let limit = range.limit.max(1);
        let (mut page, mut left, mut bytes) = (ScanPage::default(), range, 0_usize);
        loop {
            let wanted = limit - page.events.len();
            let average = bytes / page.events.len().max(1);
            let fits = if page.events.is_empty() { ROWS_FIRST } else { PAGE_BYTES / average.max(1) };
            let rows = wanted.min(fits.clamp(1, ROWS_MAX));
            let mut next = self.part(stream, partition, left, rows).await?;
            bytes += next.events.iter().map(event_bytes).sum::<usize>();
            page.events.append(&mut next.events);
            page.unreadable.append(&mut next.unreadable);
            page.next = next.next;
            let Some(at) = next.next else { break };
            if page.events.len() >= limit || bytes >= PAGE_BYTES {
                break;
            }
            left = left.behind(at);
        }
        // Entries without an index row can come on top of the rows that were asked for.
        if page.events.len() > limit {
            page.events.truncate(limit);
            page.next = page.events.last().map(|event| event.sequence);
        }
        Ok(page)
    }

    /// The events of the next `rows` rows of a range.
    async fn part(&self, stream: &Name, partition: u32, range: ScanRange, rows: usize) -> Result<ScanPage> {
        let part = self.index_part(stream, partition, range, rows).await?;
        let entries = self.log_part(stream, partition, range.order, &part).await?;
        let (low, high) = part.bounds(range);
        let mut found = sorted(stream, partition, entries, &part.rows);
        found.retain(|(sequence, ..)| (low..=high).contains(sequence));
        let mut cut = false;
        if range.order == Order::Ascending {
            let age_ms = i64::try_from(millis(self.append_time_max)).unwrap_or(i64::MAX);
            cut = part.stop_at_gap(low, &mut found, age_ms);
        } else {
            found.reverse();
        }
        let mut page = ScanPage::default();
        for (sequence, receipt, row) in found {
            match row {
                Ok(event) => page.events.push(event),
                Err(detail) => page.unreadable.push(Unreadable { sequence: Some(sequence), receipt, detail }),
            }
        }
        page.next = part.rows.last().map(|(sequence, _)| *sequence).filter(|_| !part.end && !cut);
        Ok(page)
    }

    async fn index_part(&self, stream: &Name, p: u32, range: ScanRange, rows: usize) -> Result<Part> {
        let index = self.keys.index(stream, p);
        let (above, until) = (format!("({}", range.after), range.until);
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(self.keys.meta(stream)).arg("partition_count");
        pipe.cmd("TIME");
        pipe.cmd("HGET").arg(self.keys.trimmed(stream)).arg(p);
        match range.order {
            Order::Ascending => pipe.cmd("ZRANGEBYSCORE").arg(&index).arg(above).arg(until),
            Order::Descending => pipe.cmd("ZREVRANGEBYSCORE").arg(&index).arg(until).arg(above),
        };
        pipe.arg("WITHSCORES").arg("LIMIT").arg(0).arg(rows);
        pipe.cmd("ZREVRANGEBYSCORE").arg(&index).arg(range.after).arg("-inf");
        pipe.arg("WITHSCORES").arg("LIMIT").arg(0).arg(1);
        pipe.cmd("ZRANGEBYSCORE").arg(&index).arg(format!("({until}")).arg("+inf");
        pipe.arg("WITHSCORES").arg("LIMIT").arg(0).arg(1);
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let keys = || {
            let trimmed = (self.keys.trimmed(stream), "hash");
            vec![(self.keys.meta(stream), "hash"), (self.keys.index(stream, p), "zset"), trimmed]
        };
        let partitions = partition_count(self.blame(answers.next(), keys).await?, stream)?;
        if p >= partitions {
            return Err(Error::PartitionNotFound { stream: stream.clone(), partition: p, partitions });
        }
        let now_ms = time_ms(answers.next()?)?;
        let trimmed = reply::count(self.blame(answers.next(), keys).await?)?;
        let found = index_rows(self.blame(answers.next(), keys).await?)?;
        let before = index_rows(self.blame(answers.next(), keys).await?)?.pop();
        let behind = index_rows(self.blame(answers.next(), keys).await?)?.pop();
        let end = found.len() < rows;
        Ok(Part { rows: found, before, behind, end, now_ms, trimmed })
    }

    /// The entries that a part of the index spans, and what stands between them.
    async fn log_part(&self, stream: &Name, p: u32, order: Order, part: &Part) -> Result<Vec<Entry>> {
        let (from, to) = part.span(order);
        let mut entries: Vec<Entry> = Vec::with_capacity(part.rows.len());
        let mut from = from;
        for _ in 0..PIECES_MAX {
            let mut read = redis::cmd("XRANGE");
            let count = part.rows.len() + SLACK;
            read.arg(self.keys.entries(stream, p)).arg(&from).arg(&to).arg("COUNT").arg(count);
            let piece = self.connection.call(&read, Effect::None).await;
            let piece = self.blame(piece, || vec![(self.keys.entries(stream, p), "stream")]).await?;
            let piece = reply::entries(piece)?;
            let full = piece.len() == count;
            if let Some(last) = piece.last() {
                from = format!("({}", last.id);
            }
            entries.extend(piece);
            if !full {
                return Ok(entries);
            }
        }
        // Far more entries than rows: the rows' own are read one by one.
        self.rows_entries(stream, p, &part.rows).await
    }

    async fn rows_entries(&self, stream: &Name, p: u32, rows: &[Row]) -> Result<Vec<Entry>> {
        let mut pipe = redis::pipe();
        for (_, id) in rows {
            pipe.cmd("XRANGE").arg(self.keys.entries(stream, p)).arg(id).arg(id);
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut entries = Vec::with_capacity(rows.len());
        for answer in self.connection.pipeline(&pipe, Effect::None).await? {
            entries.extend(reply::entries(reply::checked(answer)?)?);
        }
        Ok(entries)
    }
}

impl Part {
    /// The lowest and the highest sequence that belong to this part.
    fn bounds(&self, range: ScanRange) -> (u64, u64) {
        let last = self.rows.last().map(|(sequence, _)| *sequence);
        let (low, high) = (range.after.saturating_add(1), range.until);
        match (range.order, last.filter(|_| !self.end)) {
            (_, None) => (low, high),
            (Order::Ascending, Some(last)) => (low, last),
            (Order::Descending, Some(last)) => (last, high),
        }
    }

    /// The first and the last entry id of the part of the log to read, for XRANGE.
    fn span(&self, order: Order) -> (String, String) {
        let ids = |row: &Option<Row>| row.as_ref().map(|(_, id)| id.clone());
        let by_id = |id: &&String| reply::parse_id(id);
        let all = || self.rows.iter().map(|(_, id)| id).filter(|id| reply::parse_id(id).is_some());
        let (lowest, highest) = (all().min_by_key(by_id).cloned(), all().max_by_key(by_id).cloned());
        // What stands between this part and the row beside it belongs to it, at the side from which
        // the scan comes; at the end of the rows also at the other side.
        let open_low = order == Order::Ascending || self.end;
        let open_high = order == Order::Descending || self.end;
        let from = match (open_low, ids(&self.before), lowest.clone()) {
            (false, _, Some(lowest)) => lowest,
            (_, Some(before), Some(lowest)) if reply::parse_id(&before) >= reply::parse_id(&lowest) => lowest,
            (_, Some(before), _) => format!("({before}"),
            (_, None, _) => "-".to_owned(),
        };
        let to = match (open_high, ids(&self.behind), highest) {
            (false, _, Some(highest)) => highest,
            (_, Some(behind), Some(highest)) if reply::parse_id(&behind) <= reply::parse_id(&highest) => {
                highest
            }
            (_, Some(behind), _) => format!("({behind}"),
            (_, None, _) => "+".to_owned(),
        };
        (from, to)
    }

    /// Cuts what stands behind a gap in which an append may still be under way: what fills it would
    /// be passed over. Whether anything was cut.
    fn stop_at_gap(
        &self,
        low: u64,
        found: &mut Vec<(u64, String, Result<Event, String>)>,
        age_ms: i64,
    ) -> bool {
        // A sequence with an index row was written, even if its entry is gone by now.
        let indexed: std::collections::HashSet<u64> =
            self.rows.iter().map(|(sequence, _)| *sequence).collect();
        let mut expected = low.max(self.trimmed.saturating_add(1));
        for at in 0..found.len() {
            let (sequence, id) = (found[at].0, &found[at].1);
            let gap = (expected..sequence).take(ROWS_MAX).any(|missing| !indexed.contains(&missing));
            let ms = reply::parse_id(id).and_then(|(ms, _)| i64::try_from(ms).ok()).unwrap_or(0);
            if gap && ms.saturating_add(age_ms) > self.now_ms {
                found.truncate(at);
                return true;
            }
            expected = expected.max(sequence.saturating_add(1));
        }
        false
    }
}

/// Sequences and entry ids of index rows.
fn index_rows(answer: Value) -> Result<Vec<Row>> {
    let mut items = array(answer)?.into_iter();
    let mut rows = Vec::with_capacity(items.len() / 2);
    while let (Some(id), Some(score)) = (items.next(), items.next()) {
        rows.push((u64::try_from(number_or_zero(score)?).unwrap_or(0), text_or_empty(id)?));
    }
    Ok(rows)
}

/// The entries in the order of their sequences. What the index says of an entry counts, else what it
/// says itself; one without either cannot be placed.
fn sorted(
    stream: &Name,
    partition: u32,
    entries: Vec<Entry>,
    rows: &[Row],
) -> Vec<(u64, String, Result<Event, String>)> {
    let rows: HashMap<&str, u64> = rows.iter().map(|(sequence, id)| (id.as_str(), *sequence)).collect();
    let mut found = Vec::with_capacity(entries.len());
    for Entry { id, fields } in entries {
        let (own, indexed) = (codec::raw_sequence(&fields), rows.get(id.as_str()).copied());
        let Some(sequence) = indexed.or(own) else { continue };
        let mut event = codec::decode(stream, partition, fields);
        if let Ok(event) = &mut event {
            event.sequence = sequence;
        }
        found.push((sequence, id, event));
    }
    found.sort_by_key(|(sequence, ..)| *sequence);
    found
}

fn event_bytes(event: &Event) -> usize {
    event.payload.as_str().len()
        + event.metadata.as_str().len()
        + event.key.as_ref().map_or(0, String::len)
        + 128
}
