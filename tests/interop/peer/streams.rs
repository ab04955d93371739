//! Streams, groups and appending.

use redis::Value;

use super::hash::phash2;
use super::{BySequence, Entry, Event, Outcome, Peer, Refusal, cmd, decode, iso, random_id};

/// Where a group begins.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    Beginning,
    After(u64),
    /// At the first event of this time, in the order of the log.
    At(u64),
}

/// What a producer says of an event beside its payload. Empty means: not said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Append {
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) partition: Option<u32>,
    pub(crate) timestamp: Option<String>,
    /// The metadata's JSON text.
    pub(crate) metadata: Option<String>,
}

impl Peer<'_> {
    pub(crate) fn create_stream(&mut self, stream: &str, partitions: u32) -> Outcome<()> {
        self.begin("create_stream");
        if partitions == 0 {
            return Err(Refusal::InvalidPartitionCount);
        }
        let meta = self.key("meta", &[&stream]);
        if self.ask::<i64>(cmd("HSETNX").arg(&meta).arg("partition_count").arg(partitions))? == 0 {
            return Err(Refusal::AlreadyExists);
        }
        let now = iso(self.now_ms());
        self.ask(cmd("HSET").arg(meta).arg("created_at").arg(now))
    }

    pub(crate) fn create_group(
        &mut self,
        stream: &str,
        group: &str,
        max_attempts: u32,
        start: Start,
    ) -> Outcome<()> {
        self.begin("create_group");
        let partitions = self.partition_count(stream)?;
        let starts = self.starts(stream, partitions, start)?;
        let gmeta = self.key("gmeta", &[&stream, &group]);
        if self.ask::<i64>(cmd("HSETNX").arg(&gmeta).arg("max_attempts").arg(max_attempts))? == 0 {
            return Err(Refusal::AlreadyExists);
        }
        let mut set = cmd("HSET");
        set.arg(gmeta);
        for (&p, &sequence) in &starts {
            let at = self.entry_at_or_before(stream, p, sequence)?;
            let mut create = cmd("XGROUP");
            create.arg("CREATE").arg(self.key("s", &[&stream, &p])).arg(group).arg(at).arg("MKSTREAM");
            match self.ask::<Value>(&create) {
                Err(Refusal::Failed(words)) if words.contains("BUSYGROUP") => {}
                made => drop(made?),
            }
            set.arg(format!("frontier_p{p}")).arg(sequence).arg(format!("cursor_p{p}")).arg(sequence);
        }
        self.ask(&set)
    }

    /// The sequence behind which each partition is read.
    pub(super) fn starts(&mut self, stream: &str, partitions: u32, start: Start) -> Outcome<BySequence> {
        let mut starts = BySequence::new();
        for p in 0..partitions {
            let sequence = match &start {
                Start::Beginning => 0,
                Start::After(sequence) => *sequence,
                Start::At(ms) => {
                    let events = self.range(stream, p, 1, None)?;
                    let found = events.iter().find(|event| at_or_after(event, *ms));
                    found.map_or(0, |event| event.sequence - 1)
                }
            };
            starts.insert(p, sequence);
        }
        Ok(starts)
    }

    /// The id behind which a group reads on that begins after this sequence.
    pub(super) fn entry_at_or_before(&mut self, stream: &str, p: u32, sequence: u64) -> Outcome<String> {
        if sequence == 0 {
            return Ok("0".to_owned());
        }
        let mut ask = cmd("ZREVRANGEBYSCORE");
        ask.arg(self.key("z", &[&stream, &p])).arg(sequence).arg("-inf").arg("LIMIT").arg(0).arg(1);
        let ids: Vec<String> = self.ask(&ask)?;
        Ok(ids.into_iter().next().unwrap_or_else(|| "0".to_owned()))
    }

    /// All events of a partition from this sequence on, in the order of the log.
    pub(super) fn range(
        &mut self,
        stream: &str,
        p: u32,
        from: u64,
        limit: Option<usize>,
    ) -> Outcome<Vec<Event>> {
        let mut ask = cmd("ZRANGEBYSCORE");
        ask.arg(self.key("z", &[&stream, &p])).arg(from).arg("+inf").arg("LIMIT").arg(0).arg(1);
        let ids: Vec<String> = self.ask(&ask)?;
        let Some(first) = ids.into_iter().next() else { return Ok(Vec::new()) };
        let mut range = cmd("XRANGE");
        range.arg(self.key("s", &[&stream, &p])).arg(first).arg("+");
        if let Some(limit) = limit {
            range.arg("COUNT").arg(limit);
        }
        let entries: Vec<Entry> = self.ask(&range)?;
        Ok(entries.iter().map(|(_, fields)| decode(fields.as_deref().unwrap_or_default())).collect())
    }

    pub(crate) fn append(&mut self, stream: &str, payload: &str, append: &Append) -> Outcome<Event> {
        Ok(self.append_batch(stream, &[payload], append)?.remove(0))
    }

    /// Appends events, all with the same options.
    pub(crate) fn append_batch(
        &mut self,
        stream: &str,
        payloads: &[&str],
        append: &Append,
    ) -> Outcome<Vec<Event>> {
        self.begin("append");
        if payloads.is_empty() {
            return Ok(Vec::new());
        }
        let partitions = self.partition_count(stream)?;
        let timestamp = append.timestamp.clone().unwrap_or_else(|| iso(self.now_ms()));
        let mut counts = BySequence::new();
        let mut events = Vec::new();
        for payload in payloads {
            let value: serde_json::Value = serde_json::from_str(payload).unwrap();
            let key = append.key.clone().or_else(|| text_of(&value["key"]));
            let partition = match (append.partition, &key) {
                (Some(p), _) if p >= partitions => return Err(Refusal::InvalidPartition),
                (Some(p), _) => p,
                (None, Some(key)) => phash2(key, partitions),
                (None, None) => 0,
            };
            *counts.entry(partition).or_default() += 1;
            events.push(Event {
                id: append.id.clone().unwrap_or_else(random_id),
                sequence: *counts.get(&partition).unwrap(),
                partition,
                timestamp: timestamp.clone(),
                key,
                event_type: text_of(&value["type"]),
                metadata: serde_json::from_str(append.metadata.as_deref().unwrap_or("{}")).unwrap(),
                payload: value,
            });
        }
        let takes: Vec<_> = counts
            .iter()
            .map(|(p, count)| cmd("INCRBY").arg(self.key("seq", &[&stream, p])).arg(count).clone())
            .collect();
        let taken = self.trip(&takes)?;
        for ((p, count), last) in counts.iter().zip(taken) {
            let base = redis::from_redis_value::<u64>(last).unwrap() - count;
            events.iter_mut().filter(|event| event.partition == *p).for_each(|event| event.sequence += base);
        }
        let metadata = append.metadata.as_deref().unwrap_or("{}");
        let adds: Vec<_> = events
            .iter()
            .zip(payloads)
            .map(|(event, payload)| {
                let mut add = cmd("XADD");
                add.arg(self.key("s", &[&stream, &event.partition])).arg("*").arg("id").arg(&event.id);
                add.arg("sequence").arg(event.sequence).arg("partition").arg(event.partition);
                add.arg("timestamp").arg(&event.timestamp);
                for (field, value) in [("key", &event.key), ("type", &event.event_type)] {
                    if let Some(value) = value {
                        add.arg(field).arg(value);
                    }
                }
                add.arg("metadata").arg(metadata).arg("payload").arg(payload).clone()
            })
            .collect();
        let ids = self.trip(&adds)?;
        let rows: Vec<_> = events
            .iter()
            .zip(ids)
            .map(|(event, id)| {
                let id: String = redis::from_redis_value(id).unwrap();
                cmd("ZADD")
                    .arg(self.key("z", &[&stream, &event.partition]))
                    .arg(event.sequence)
                    .arg(id)
                    .clone()
            })
            .collect();
        self.trip(&rows)?;
        Ok(events)
    }

    pub(crate) fn read(&mut self, stream: &str, p: u32, after: u64, limit: usize) -> Outcome<Vec<Event>> {
        self.begin("read");
        self.range(stream, p, after + 1, Some(limit))
    }
}

fn text_of(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn at_or_after(event: &Event, ms: u64) -> bool {
    let at: Option<jiff::Timestamp> = event.timestamp.parse().ok();
    at.is_some_and(|at| u64::try_from(at.as_millisecond()).is_ok_and(|at| at >= ms))
}
