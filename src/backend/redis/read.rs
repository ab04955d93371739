//! Reading a partition's events back, page by page.
//!
//! The index tells the sequences, the log has the bodies. Entries of other writers can stand in another
//! order than their sequences, and have no index row for a while, or ever: so a page reads the part of
//! the log that its index rows span, from the row before them on, and puts it in order. Where sequences
//! have no row, what may fill them is looked for somewhat farther to both sides.

use redis::Value;

use super::connection::Effect;
use super::read_part::{Part, Placed, Row};
use super::reply::{self, Answers, Entry, array, number_or_zero, text_or_empty, time_ms};
use super::{Redis, millis, partition_count};
use crate::backend::{Error, Order, Result, ScanPage, ScanRange, Unreadable};
use crate::event::{Event, Name};

/// Index rows of the first part of a page, and of any part.
const ROWS_FIRST: usize = 32;
const ROWS_MAX: usize = 500;
/// Index rows that are looked at on either side of a part: so far can concurrent appends of others stand
/// from their place.
pub(super) const AROUND: usize = 64;
/// Bytes after which a page ends, roughly.
const PAGE_BYTES: usize = 4 << 20;
/// Parts after which a page ends, should they hold no events.
const PARTS_MAX: usize = 32;
/// Entries that are read beyond the rows of a part: others' in between.
const SLACK: usize = 64;
/// Pieces in which a part of the log is read, should others' entries abound.
const PIECES_MAX: usize = 64;

impl Redis {
    pub(super) async fn do_scan(&self, stream: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
        let limit = range.limit.max(1);
        let (mut page, mut left, mut bytes) = (ScanPage::default(), range, 0_usize);
        for part in 0..PARTS_MAX {
            let average = bytes / page.events.len().max(1);
            let fits = match (page.events.is_empty(), part) {
                (true, 0) => ROWS_FIRST,
                (true, _) => ROWS_MAX,
                (false, _) => PAGE_BYTES / average.max(1),
            };
            let rows = (limit - page.events.len()).min(fits.clamp(1, ROWS_MAX));
            let (found, next) = self.part(stream, partition, left, rows).await?;
            page.next = next;
            bytes += add(&mut page, found, limit);
            let Some(at) = page.next else { break };
            if page.events.len() >= limit || bytes >= PAGE_BYTES {
                break;
            }
            left = left.behind(at);
        }
        Ok(page)
    }

    /// What the next `rows` rows of a range hold, in order; and the last sequence looked at, where more
    /// may follow.
    async fn part(
        &self,
        stream: &Name,
        partition: u32,
        range: ScanRange,
        rows: usize,
    ) -> Result<(Vec<Placed>, Option<u64>)> {
        let part = self.index_part(stream, partition, range, rows).await?;
        let (mut found, bound) = self.log_part(stream, partition, &part).await?;
        let last = part.rows.last().map(|(sequence, _)| *sequence).filter(|_| !part.end);
        let mut next = match range.order {
            Order::Ascending => last.into_iter().chain(bound).min(),
            Order::Descending => last.into_iter().chain(bound).max(),
        };
        if range.order == Order::Ascending {
            let age_ms = i64::try_from(millis(self.append_time_max)).unwrap_or(i64::MAX);
            if part.stop_at_gap(&mut found, age_ms) {
                next = None;
            }
        }
        Ok((found, next))
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
        pipe.arg("WITHSCORES").arg("LIMIT").arg(0).arg(rows + AROUND);
        pipe.cmd("ZREVRANGEBYSCORE").arg(&index).arg(range.after).arg("-inf");
        pipe.arg("WITHSCORES").arg("LIMIT").arg(0).arg(AROUND);
        pipe.cmd("ZRANGEBYSCORE").arg(&index).arg(format!("({until}")).arg("+inf");
        pipe.arg("WITHSCORES").arg("LIMIT").arg(0).arg(AROUND);
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
        let below = index_rows(self.blame(answers.next(), keys).await?)?;
        let above = index_rows(self.blame(answers.next(), keys).await?)?;
        Ok(Part::new(range, rows, found, (below, above), now_ms, trimmed))
    }

    /// What stands in a part of the log, in order; and the last sequence of it, where there was more than
    /// a part may hold.
    async fn log_part(&self, stream: &Name, p: u32, part: &Part) -> Result<(Vec<Placed>, Option<u64>)> {
        let (mut from, to) = part.span();
        let count = part.rows.len() + SLACK;
        let (mut found, mut bound) = (Vec::with_capacity(count), None);
        let mut unplaced = Vec::new();
        for _ in 0..PIECES_MAX {
            let mut read = redis::cmd("XRANGE");
            read.arg(self.keys.entries(stream, p)).arg(&from).arg(&to).arg("COUNT").arg(count);
            let piece = self.connection.call(&read, Effect::None).await;
            let piece = self.blame(piece, || vec![(self.keys.entries(stream, p), "stream")]).await?;
            let piece = reply::entries(piece)?;
            let end = piece.len() < count;
            if let Some(last) = piece.last() {
                from = format!("({}", last.id);
            }
            part.place(stream, p, piece, &mut unplaced, &mut found);
            part.cut(&mut found, count, &mut bound);
            if end {
                if part.holds_tail(&to) {
                    found.append(&mut unplaced);
                }
                part.sort(&mut found);
                return Ok((found, bound));
            }
        }
        // Far more entries than rows: those that the rows name are read one by one.
        let there: std::collections::HashSet<&str> = found.iter().map(|f| f.receipt.as_str()).collect();
        let ids: Vec<String> =
            part.rows.iter().map(|(_, id)| id).filter(|id| !there.contains(id.as_str())).cloned().collect();
        let entries = self.entries_by_id(stream, p, &ids).await?;
        part.place(stream, p, entries, &mut unplaced, &mut found);
        part.cut(&mut found, count, &mut bound);
        part.sort(&mut found);
        Ok((found, bound))
    }

    async fn entries_by_id(&self, stream: &Name, p: u32, ids: &[String]) -> Result<Vec<Entry>> {
        let mut pipe = redis::pipe();
        let valid = ids.iter().filter(|id| reply::parse_id(id).is_some());
        for id in valid.clone() {
            pipe.cmd("XRANGE").arg(self.keys.entries(stream, p)).arg(id).arg(id);
        }
        if valid.count() == 0 {
            return Ok(Vec::new());
        }
        let mut entries = Vec::with_capacity(ids.len());
        for answer in self.connection.pipeline(&pipe, Effect::None).await? {
            entries.extend(reply::entries(reply::checked(answer)?)?);
        }
        Ok(entries)
    }
}

/// Adds to a page up to so many events, and returns their bytes. Entries that claim one sequence stay
/// together: a page goes on behind a sequence.
fn add(page: &mut ScanPage, found: Vec<Placed>, limit: usize) -> usize {
    let (mut bytes, mut last) = (0, None);
    for Placed { place, sequence, receipt, row } in found {
        if page.events.len() >= limit && last != Some(place) {
            page.next = last;
            break;
        }
        match row {
            Ok(event) => {
                bytes += event_bytes(&event);
                page.events.push(event);
                last = Some(place);
            }
            Err(detail) => page.unreadable.push(Unreadable { sequence, receipt, detail }),
        }
    }
    bytes
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

fn event_bytes(event: &Event) -> usize {
    event.payload.as_str().len()
        + event.metadata.as_str().len()
        + event.key.as_ref().map_or(0, String::len)
        + 128
}
