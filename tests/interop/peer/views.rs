//! What is there.

use std::collections::BTreeMap;

use redis::Value;

use super::{Entry, Event, Outcome, Peer, Refusal, cmd, decode};

/// Frontier and high watermark of each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) lag: u64,
    pub(crate) partitions: BTreeMap<u32, (u64, u64)>,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeadRow {
    pub(crate) event: Event,
    pub(crate) reason: String,
    pub(crate) dead_lettered_at: String,
}

impl Peer<'_> {
    pub(crate) fn lag(&mut self, stream: &str, group: &str) -> Outcome<Lag> {
        self.begin("lag");
        self.lag_of(stream, group)
    }

    fn lag_of(&mut self, stream: &str, group: &str) -> Outcome<Lag> {
        let meta = self.group_meta(stream, group)?;
        let count = self.partition_count(stream)?;
        let reads: Vec<_> =
            (0..count).map(|p| cmd("GET").arg(self.key("seq", &[&stream, &p])).clone()).collect();
        let seqs = self.trip(&reads)?;
        let mut partitions = BTreeMap::new();
        for (p, seq) in (0..count).zip(seqs) {
            let high: Option<u64> = redis::from_redis_value(seq).unwrap();
            let frontier = meta.get(&format!("frontier_p{p}")).and_then(|text| text.parse().ok());
            partitions.insert(p, (frontier.unwrap_or(0), high.unwrap_or(0)));
        }
        let lag =
            partitions.values().map(|(frontier, high): &(u64, u64)| high.saturating_sub(*frontier)).sum();
        Ok(Lag { lag, partitions })
    }

    /// Lag, how many are pending, how many dead letters there are.
    pub(crate) fn group_info(&mut self, stream: &str, group: &str) -> Outcome<(Lag, u64, u64)> {
        self.begin("group_info");
        let lag = self.lag_of(stream, group)?;
        let count = self.partition_count(stream)?;
        let mut inflight = 0;
        for p in 0..count {
            let summary: Vec<Value> =
                self.ask(cmd("XPENDING").arg(self.key("s", &[&stream, &p])).arg(group))?;
            inflight += redis::from_redis_value_ref::<u64>(&summary[0]).unwrap();
        }
        let dead = self.ask(cmd("XLEN").arg(self.key("dlq", &[&stream, &group])))?;
        Ok((lag, inflight, dead))
    }

    pub(crate) fn dead_letters(
        &mut self,
        stream: &str,
        group: &str,
        limit: usize,
        after: Option<&str>,
    ) -> Outcome<Vec<DeadRow>> {
        self.begin("dead_letters");
        self.group_meta(stream, group)?;
        let mut range = cmd("XRANGE");
        range
            .arg(self.key("dlq", &[&stream, &group]))
            .arg("-")
            .arg("+")
            .arg("COUNT")
            .arg((4 * limit).max(100));
        let rows: Vec<Entry> = self.ask(&range)?;
        let rows: Vec<DeadRow> =
            rows.iter().map(|(_, fields)| dead_row(fields.as_deref().unwrap_or_default())).collect();
        let from = match after {
            None => 0,
            Some(id) => rows.iter().position(|row| row.event.id == id).ok_or(Refusal::CursorNotFound)? + 1,
        };
        Ok(rows.into_iter().skip(from).take(limit).collect())
    }

    pub(crate) fn list_streams(&mut self) -> Outcome<Vec<String>> {
        self.begin("list_streams");
        let prefix = self.key("meta", &[&""]);
        self.names(&prefix)
    }

    pub(crate) fn list_groups(&mut self, stream: &str) -> Outcome<Vec<String>> {
        self.begin("list_groups");
        self.partition_count(stream)?;
        let prefix = self.key("gmeta", &[&stream, &""]);
        self.names(&prefix)
    }

    fn names(&mut self, prefix: &str) -> Outcome<Vec<String>> {
        let mut names: Vec<String> = self.scan(&format!("{prefix}*"))?;
        names.iter_mut().for_each(|name| name.replace_range(..prefix.len(), ""));
        names.sort();
        Ok(names)
    }

    /// All keys that match.
    pub(super) fn scan(&mut self, pattern: &str) -> Outcome<Vec<String>> {
        let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(500);
            let (next, some): (String, Vec<String>) = self.ask(&scan)?;
            keys.extend(some);
            cursor = next;
            if cursor == "0" {
                return Ok(keys);
            }
        }
    }

    /// Events of all partitions that `wanted` picks, merged by sequence: all is read, and cut then.
    pub(crate) fn query(
        &mut self,
        stream: &str,
        after: u64,
        until: Option<u64>,
        limit: usize,
        wanted: impl Fn(&Event) -> bool,
    ) -> Outcome<Vec<Event>> {
        self.begin("query");
        let mut events = Vec::new();
        for p in 0..self.partition_count(stream)? {
            let z = self.key("z", &[&stream, &p]);
            let mut first = cmd("ZRANGEBYSCORE");
            first.arg(&z).arg(after + 1).arg("+inf").arg("LIMIT").arg(0).arg(1);
            let first: Vec<String> = self.ask(&first)?;
            let Some(first) = first.into_iter().next() else { continue };
            let mut last = Some("+".to_owned());
            if let Some(until) = until {
                let mut ask = cmd("ZREVRANGEBYSCORE");
                ask.arg(&z).arg(until).arg("-inf").arg("LIMIT").arg(0).arg(1);
                last = self.ask::<Vec<String>>(&ask)?.into_iter().next();
            }
            let Some(last) = last else { continue };
            let entries: Vec<Entry> =
                self.ask(cmd("XRANGE").arg(self.key("s", &[&stream, &p])).arg(first).arg(last))?;
            events.extend(entries.iter().map(|(_, fields)| decode(fields.as_deref().unwrap_or_default())));
        }
        events.retain(|event| wanted(event));
        events.sort_by_key(|event| event.sequence);
        events.truncate(limit);
        Ok(events)
    }
}

fn dead_row(fields: &[(Vec<u8>, Vec<u8>)]) -> DeadRow {
    let text = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    };
    DeadRow { event: decode(fields), reason: text("reason"), dead_lettered_at: text("dead_lettered_at") }
}
