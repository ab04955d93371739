//! Taking events: what is pending without a live lease first, then what is new.

use std::collections::HashMap;

use redis::Value;

use super::{Entry, Lease, Outcome, Peer, Refusal, cmd, decode, random_id};

/// How to fetch.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) limit: usize,
    pub(crate) lease_ms: u64,
    pub(crate) consumer: String,
    /// These partitions, instead of all.
    pub(crate) partitions: Option<Vec<u32>>,
}

impl Fetch {
    pub(crate) fn new(consumer: &str, limit: usize) -> Self {
        Self { limit, lease_ms: 30_000, consumer: consumer.to_owned(), partitions: None }
    }

    pub(crate) fn lease_ms(self, lease_ms: u64) -> Self {
        Self { lease_ms, ..self }
    }

    pub(crate) fn partition(self, partition: u32) -> Self {
        Self { partitions: Some(vec![partition]), ..self }
    }
}

/// An entry that is to be leased, with the attempts before.
struct Taken {
    id: String,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    prior: u64,
}

impl Peer<'_> {
    pub(crate) fn fetch(&mut self, stream: &str, group: &str, fetch: &Fetch) -> Outcome<Vec<Lease>> {
        self.begin("fetch");
        let partitions = self.partition_count(stream)?;
        self.group_meta(stream, group)?;
        let now = self.now_ms();
        let all = || (0..partitions).collect();
        let mut leases = Vec::new();
        for p in fetch.partitions.clone().unwrap_or_else(all) {
            let remaining = fetch.limit - leases.len();
            if remaining == 0 {
                break;
            }
            let mut taken = self.reclaim(stream, group, p, fetch, remaining, now)?;
            let room = remaining - taken.len();
            if room > 0 {
                taken.extend(self.read_new(stream, group, p, fetch, room)?);
            }
            leases.extend(self.lease(stream, group, p, fetch, taken, now)?);
        }
        Ok(leases)
    }

    /// Takes over what is pending and under no live lease, as far as the first entries show it.
    fn reclaim(
        &mut self,
        stream: &str,
        group: &str,
        p: u32,
        fetch: &Fetch,
        remaining: usize,
        now: u64,
    ) -> Outcome<Vec<Taken>> {
        let s = self.key("s", &[&stream, &p]);
        let mut ask = cmd("XPENDING");
        ask.arg(&s).arg(group).arg("-").arg("+").arg(remaining.max(100));
        let pending: Vec<(String, Value, Value, u64)> = match self.ask(&ask) {
            Err(Refusal::Failed(words)) if words.contains("NOGROUP") => return Err(Refusal::GroupNotFound),
            pending => pending?,
        };
        if pending.is_empty() {
            return Ok(Vec::new());
        }
        let fence = |id: &String| cmd("HGETALL").arg(self.key("fence", &[&stream, &group, id])).clone();
        let reads: Vec<_> = pending.iter().map(|(id, ..)| fence(id)).collect();
        let fences = self.trip(&reads)?;
        let mut candidates: HashMap<String, u64> = HashMap::new();
        let mut claim = cmd("XCLAIM");
        claim.arg(&s).arg(group).arg(&fetch.consumer).arg(0);
        for ((id, _, _, deliveries), fence) in pending.into_iter().zip(fences) {
            let fence: HashMap<String, String> = redis::from_redis_value(fence).unwrap();
            let number = |field: &str| fence.get(field).and_then(|text| text.parse::<u64>().ok());
            let held = fence.get("lease_id").is_some_and(|lease| !lease.is_empty());
            if candidates.len() < remaining && (!held || number("expires_at_ms").unwrap_or(0) <= now) {
                claim.arg(&id);
                candidates.insert(id, number("attempt").unwrap_or(deliveries));
            }
        }
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let claimed: Vec<Option<Entry>> = self.ask(&claim)?;
        let taken = claimed.into_iter().flatten().filter_map(|(id, fields)| {
            let prior = candidates[&id];
            Some(Taken { id, fields: fields.filter(|fields| !fields.is_empty())?, prior })
        });
        Ok(taken.collect())
    }

    fn read_new(
        &mut self,
        stream: &str,
        group: &str,
        p: u32,
        fetch: &Fetch,
        room: usize,
    ) -> Outcome<Vec<Taken>> {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(group).arg(&fetch.consumer).arg("COUNT").arg(room);
        read.arg("STREAMS").arg(self.key("s", &[&stream, &p])).arg(">");
        let read: Option<Vec<(String, Vec<Entry>)>> = self.ask(&read)?;
        let entries = read.into_iter().flatten().flat_map(|(_, entries)| entries);
        Ok(entries.map(|(id, fields)| Taken { id, fields: fields.unwrap_or_default(), prior: 0 }).collect())
    }

    /// Writes the fences, over whatever stands there.
    fn lease(
        &mut self,
        stream: &str,
        group: &str,
        p: u32,
        fetch: &Fetch,
        taken: Vec<Taken>,
        now: u64,
    ) -> Outcome<Vec<Lease>> {
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let mut leases = Vec::new();
        for Taken { id, fields, prior } in taken {
            let event = decode(&fields);
            leases.push(Lease {
                stream: stream.to_owned(),
                group: group.to_owned(),
                lease_id: random_id(),
                attempt: prior + 1,
                expires_at_ms: now + fetch.lease_ms,
                receipt: Some(id),
                event,
                fields,
            });
        }
        leases.sort_by_key(|lease| lease.event.sequence);
        let mut writes: Vec<_> = leases
            .iter()
            .map(|lease| {
                let fence = self.key("fence", &[&stream, &group, &lease.receipt.as_deref().unwrap()]);
                let mut set = cmd("HSET");
                set.arg(fence).arg("lease_id").arg(&lease.lease_id).arg("attempt").arg(lease.attempt);
                set.arg("expires_at_ms").arg(lease.expires_at_ms).arg("event_id").arg(&lease.event.id);
                set.arg("partition").arg(p).arg("sequence").arg(lease.event.sequence);
                set.arg("consumer_id").arg(&fetch.consumer).clone()
            })
            .collect();
        let highest = leases.iter().map(|lease| lease.event.sequence).max().unwrap_or(0);
        let gmeta = self.key("gmeta", &[&stream, &group]);
        writes.push(cmd("HSET").arg(gmeta).arg(format!("cursor_p{p}")).arg(highest).clone());
        self.trip(&writes)?;
        Ok(leases)
    }
}
