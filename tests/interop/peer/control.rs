//! Replay and reset.

use redis::{Cmd, Value};

use super::{Entry, Outcome, Peer, Refusal, Start, cmd, decode};

impl Peer<'_> {
    /// Delivers again what stands behind this sequence.
    pub(crate) fn replay(&mut self, stream: &str, group: &str, from: u64) -> Outcome<()> {
        self.begin("replay");
        self.group_meta(stream, group)?;
        let partitions = self.partition_count(stream)?;
        for p in 0..partitions {
            self.drop_pending(stream, group, p, Some(from))?;
            self.set_group(stream, group, p, from)?;
            let forget = cmd("ZREMRANGEBYSCORE")
                .arg(self.key("done", &[&stream, &group, &p]))
                .arg(format!("({from}"))
                .arg("+inf")
                .clone();
            let position = self.position(stream, group, p, from);
            self.trip(&[forget, position])?;
        }
        Ok(())
    }

    pub(crate) fn reset_group(
        &mut self,
        stream: &str,
        group: &str,
        start: Start,
        confirm: bool,
    ) -> Outcome<()> {
        self.begin("reset_group");
        if !confirm {
            return Err(Refusal::ConfirmRequired);
        }
        self.group_meta(stream, group)?;
        let partitions = self.partition_count(stream)?;
        for (p, sequence) in self.starts(stream, partitions, start)? {
            self.drop_pending(stream, group, p, None)?;
            self.set_group(stream, group, p, sequence)?;
            let forget = cmd("DEL").arg(self.key("done", &[&stream, &group, &p])).clone();
            let position = self.position(stream, group, p, sequence);
            self.trip(&[forget, position])?;
        }
        let fences = self.scan(&self.key("fence", &[&stream, &group, &"*"]))?;
        if fences.is_empty() {
            return Ok(());
        }
        self.ask(cmd("DEL").arg(fences))
    }

    /// Takes from the pending list what stands above a sequence, or all of it; of the first thousand.
    fn drop_pending(&mut self, stream: &str, group: &str, p: u32, above: Option<u64>) -> Outcome<()> {
        let s = self.key("s", &[&stream, &p]);
        let pending: Vec<(String, Value, Value, Value)> =
            self.ask(cmd("XPENDING").arg(&s).arg(group).arg("-").arg("+").arg(1000))?;
        if pending.is_empty() {
            return Ok(());
        }
        let reads: Vec<_> =
            pending.iter().map(|(id, ..)| cmd("XRANGE").arg(&s).arg(id).arg(id).clone()).collect();
        let bodies = self.trip(&reads)?;
        let mut ack = cmd("XACK");
        ack.arg(&s).arg(group);
        let mut writes: Vec<Cmd> = Vec::new();
        for ((id, ..), body) in pending.iter().zip(bodies) {
            let body: Vec<Entry> = redis::from_redis_value(body).unwrap();
            let sequence = body.first().and_then(|(_, fields)| Some(decode(fields.as_deref()?).sequence));
            if above.zip(sequence).is_none_or(|(above, sequence)| sequence > above) {
                ack.arg(id);
                writes.push(cmd("DEL").arg(self.key("fence", &[&stream, &group, id])).clone());
            }
        }
        if writes.is_empty() {
            return Ok(());
        }
        writes.insert(0, ack);
        self.trip(&writes).map(drop)
    }

    fn set_group(&mut self, stream: &str, group: &str, p: u32, sequence: u64) -> Outcome<()> {
        let at = self.entry_at_or_before(stream, p, sequence)?;
        self.ask(cmd("XGROUP").arg("SETID").arg(self.key("s", &[&stream, &p])).arg(group).arg(at))
    }

    fn position(&self, stream: &str, group: &str, p: u32, sequence: u64) -> Cmd {
        let mut set = cmd("HSET");
        set.arg(self.key("gmeta", &[&stream, &group]));
        set.arg(format!("frontier_p{p}")).arg(sequence).arg(format!("cursor_p{p}")).arg(sequence);
        set
    }
}
