//! Settling: first it is checked who holds the lease, then it is written.

use std::collections::HashMap;

use super::{Lease, Outcome, Peer, Refusal, cmd, iso};

impl Peer<'_> {
    /// Whether the lease holds, whatever its expiry. Returns the entry and its fence.
    fn authorize(&mut self, lease: &Lease) -> Outcome<(String, HashMap<String, String>)> {
        let (p, sequence) = (lease.event.partition, lease.event.sequence);
        let mut ask = cmd("ZRANGEBYSCORE");
        ask.arg(self.key("z", &[&lease.stream, &p])).arg(sequence).arg(sequence).arg("LIMIT").arg(0).arg(1);
        let ids: Vec<String> = self.ask(&ask)?;
        let Some(id) = ids.into_iter().next() else { return Err(Refusal::StaleLease) };
        let fence = self.key("fence", &[&lease.stream, &lease.group, &id]);
        let fence: HashMap<String, String> = self.ask(cmd("HGETALL").arg(fence))?;
        if fence.get("lease_id") != Some(&lease.lease_id) {
            return Err(Refusal::StaleLease);
        }
        if lease.receipt.as_ref().is_some_and(|receipt| *receipt != id) {
            return Err(Refusal::ReceiptMismatch);
        }
        Ok((id, fence))
    }

    pub(crate) fn ack(&mut self, lease: &Lease) -> Outcome<()> {
        self.begin("ack");
        let (id, _) = self.authorize(lease)?;
        self.settled(lease, &id, None)
    }

    pub(crate) fn reject(&mut self, lease: &Lease, reason: &str) -> Outcome<()> {
        self.begin("reject");
        let (id, _) = self.authorize(lease)?;
        self.settled(lease, &id, Some(reason))
    }

    pub(crate) fn nack(&mut self, lease: &Lease, reason: &str) -> Outcome<()> {
        self.begin("nack");
        let meta = self.group_meta(&lease.stream, &lease.group)?;
        let (id, fence) = self.authorize(lease)?;
        let attempts_max: u64 = meta.get("max_attempts").and_then(|text| text.parse().ok()).unwrap_or(5);
        let attempt: u64 = fence.get("attempt").and_then(|text| text.parse().ok()).unwrap_or(1);
        if attempt >= attempts_max {
            return self.settled(lease, &id, Some(&format!("{{:max_attempts, {reason}}}")));
        }
        let fence = self.key("fence", &[&lease.stream, &lease.group, &id]);
        let mut set = cmd("HSET");
        set.arg(fence).arg("lease_id").arg("").arg("expires_at_ms").arg(0).arg("reason").arg(reason);
        self.ask(&set)
    }

    pub(crate) fn renew(&mut self, lease: &Lease, lease_ms: u64) -> Outcome<()> {
        self.begin("renew");
        let (id, _) = self.authorize(lease)?;
        let fence = self.key("fence", &[&lease.stream, &lease.group, &id]);
        let expires = self.now_ms() + lease_ms;
        self.ask(cmd("HSET").arg(fence).arg("expires_at_ms").arg(expires))
    }

    /// The end of a lease: with a reason, as a dead letter.
    fn settled(&mut self, lease: &Lease, id: &str, reason: Option<&str>) -> Outcome<()> {
        let (stream, group, p) = (&lease.stream, &lease.group, lease.event.partition);
        let sequence = lease.event.sequence;
        let mut writes = vec![
            cmd("XACK").arg(self.key("s", &[stream, &p])).arg(group).arg(id).clone(),
            cmd("DEL").arg(self.key("fence", &[stream, group, &id])).clone(),
            cmd("ZADD").arg(self.key("done", &[stream, group, &p])).arg(sequence).arg(sequence).clone(),
        ];
        if let Some(reason) = reason {
            let mut add = cmd("XADD");
            add.arg(self.key("dlq", &[stream, group])).arg("*");
            for (field, value) in &lease.fields {
                add.arg(field).arg(value);
            }
            add.arg("reason").arg(reason).arg("dead_lettered_at").arg(iso(self.now_ms()));
            writes.push(add);
        }
        self.trip(&writes)?;
        match self.advance(stream, group, p) {
            Err(Refusal::Died) => Err(Refusal::Died),
            // Other errors of this part are passed over.
            _ => Ok(()),
        }
    }

    /// Moves the frontier over what is done: read, then written.
    fn advance(&mut self, stream: &str, group: &str, p: u32) -> Outcome<()> {
        let (gmeta, done) = (self.key("gmeta", &[&stream, &group]), self.key("done", &[&stream, &group, &p]));
        let field = format!("frontier_p{p}");
        let frontier: Option<u64> = self.ask(cmd("HGET").arg(&gmeta).arg(&field))?;
        let frontier = frontier.unwrap_or(0);
        let above: Vec<u64> =
            self.ask(cmd("ZRANGEBYSCORE").arg(&done).arg(format!("({frontier}")).arg("+inf"))?;
        let mut reached = frontier;
        for sequence in above {
            if sequence == reached + 1 {
                reached = sequence;
            }
        }
        if reached > frontier {
            self.trip(&[
                cmd("HSET").arg(gmeta).arg(field).arg(reached).clone(),
                cmd("ZREMRANGEBYSCORE").arg(done).arg("-inf").arg(reached).clone(),
            ])?;
        }
        Ok(())
    }
}
