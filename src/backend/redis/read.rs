//! Reading a partition's events back.

use std::collections::HashMap;

use redis::Value;

use super::connection::Effect;
use super::reply::{self, Answers, Entry, array, text_or_empty};
use super::{Redis, codec, partition_count};
use crate::backend::{Error, Result, ScanPage, ScanRange, Unreadable};
use crate::event::{Event, Name};

/// Index rows that are asked for in one go.
const PAGE_MAX: usize = 500;

impl Redis {
    pub(super) async fn do_scan(&self, stream: &Name, partition: u32, range: ScanRange) -> Result<ScanPage> {
        let mut page = self.page(stream, partition, range.after, range.limit.clamp(1, PAGE_MAX)).await?;
        page.events.retain(|event| event.sequence <= range.until);
        page.next = page.next.filter(|&next| next < range.until);
        Ok(page)
    }

    /// The events whose index rows are the next `rows` behind the sequence `after`.
    ///
    /// The index tells the sequences, the log has the bodies. Other writers' entries can stand in
    /// another order than their sequences, or have no index row: a range of the log is read, and put
    /// in order.
    async fn page(&self, stream: &Name, partition: u32, after: u64, rows: usize) -> Result<ScanPage> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(self.keys.meta(stream)).arg("partition_count");
        pipe.cmd("ZRANGEBYSCORE").arg(self.keys.index(stream, partition)).arg(format!("({after}"));
        pipe.arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(rows);
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let (meta, index) = (answers.next(), answers.next());
        let keys = || vec![(self.keys.meta(stream), "hash"), (self.keys.index(stream, partition), "zset")];
        let partitions = partition_count(self.blame(meta, keys).await?, stream)?;
        if partition >= partitions {
            return Err(Error::PartitionNotFound { stream: stream.clone(), partition, partitions });
        }
        let index = index_rows(self.blame(index, keys).await?)?;
        let Some((first, last)) = ends(&index) else {
            return Ok(ScanPage::default());
        };
        let mut range = redis::cmd("XRANGE");
        range.arg(self.keys.entries(stream, partition)).arg(first).arg(last);
        let entries = self.connection.call(&range, Effect::None).await;
        let keys = || vec![(self.keys.entries(stream, partition), "stream")];
        let entries = reply::entries(self.blame(entries, keys).await?)?;
        let end = index.len() < rows;
        let reached = index.last().map(|(sequence, _)| *sequence);
        let mut page = sort(stream, partition, after, entries, &index);
        page.next = reached.filter(|_| !end);
        Ok(page)
    }
}

/// Sequences and entry ids of index rows.
fn index_rows(answer: Value) -> Result<Vec<(u64, String)>> {
    let mut items = array(answer)?.into_iter();
    let mut rows = Vec::with_capacity(items.len() / 2);
    while let (Some(id), Some(score)) = (items.next(), items.next()) {
        rows.push((reply::count(score)?, text_or_empty(id)?));
    }
    Ok(rows)
}

/// The lowest and the highest entry id of index rows.
fn ends(index: &[(u64, String)]) -> Option<(&str, &str)> {
    let ids = || index.iter().map(|(_, id)| id.as_str()).filter(|id| reply::parse_id(id).is_some());
    let by_id = |id: &&str| reply::parse_id(id);
    Some((ids().min_by_key(by_id)?, ids().max_by_key(by_id)?))
}

/// The events among these entries in the order of their sequences.
fn sort(stream: &Name, partition: u32, after: u64, entries: Vec<Entry>, index: &[(u64, String)]) -> ScanPage {
    let index: HashMap<&str, u64> = index.iter().map(|(sequence, id)| (id.as_str(), *sequence)).collect();
    let mut rows: Vec<(u64, String, Result<Event, String>)> = Vec::with_capacity(entries.len());
    for Entry { id, fields } in entries {
        let own = codec::raw_sequence(&fields);
        let indexed = index.get(id.as_str()).copied();
        // An entry without either cannot be placed; it is no event of this range.
        if let Some(sequence) = own.or(indexed)
            && sequence > after
        {
            rows.push((sequence, id, codec::decode(stream, partition, fields)));
        }
    }
    rows.sort_by_key(|(sequence, ..)| *sequence);
    let mut page = ScanPage::default();
    for (sequence, receipt, row) in rows {
        match row {
            Ok(event) => page.events.push(event),
            Err(detail) => page.unreadable.push(Unreadable { sequence: Some(sequence), receipt, detail }),
        }
    }
    page
}
