//! What holds a group's frontier. Nothing here writes.

use redis::Value;

use super::connection::Effect;
use super::errors::{ServerCode, code_of};
use super::pending::PendingRow;
use super::reply::{self, Answers, Entry, array, checked, count, parse_id, text, text_or_empty};
use super::rewind::kind_of;
use super::wait::last_delivered;
use super::{Redis, codec};
use crate::backend::{Explanation, Holder, HolderState, Result};
use crate::event::GroupKey;

/// Looks that are taken, should the frontier move while we look.
const LOOKS_MAX: usize = 3;
/// Entries among which one without an index row is looked for.
const UNINDEXED_MAX: usize = 32;

/// An entry of the log, by its id; its fields, where it is still there.
struct Found {
    id: String,
    body: Option<Entry>,
}

impl Redis {
    pub(super) async fn do_explain(&self, group: &GroupKey, partition: u32) -> Result<Explanation> {
        self.check_partition(&group.stream, partition).await?;
        let mut explanation = self.standing(group, partition).await?;
        for _ in 0..LOOKS_MAX {
            if explanation.frontier >= explanation.high_watermark {
                return Ok(explanation);
            }
            let holder = self.holder(group, partition, explanation.frontier + 1).await?;
            let before = std::mem::replace(&mut explanation, self.standing(group, partition).await?);
            if before.frontier == explanation.frontier {
                return Ok(Explanation { holder: Some(holder), ..explanation });
            }
        }
        // It moves all the time: nothing holds it for long.
        let holder = self.holder(group, partition, explanation.frontier + 1).await?;
        Ok(Explanation { holder: Some(holder), ..explanation })
    }

    /// Where the group stands.
    async fn standing(&self, group: &GroupKey, partition: u32) -> Result<Explanation> {
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("HLEN").arg(self.keys.group(group));
        pipe.cmd("HGET").arg(self.keys.group(group)).arg(format!("frontier_p{partition}"));
        pipe.cmd("GET").arg(self.keys.seq(&group.stream, partition));
        pipe.cmd("ZCARD").arg(self.keys.redriven(group, partition));
        pipe.cmd("HGET").arg(self.keys.note(group)).arg(format!("rewind:{partition}"));
        let mut answers = Answers::new(self.connection.transaction(&pipe, Effect::None).await?);
        let keys = || self.typed_keys(group, &[partition]);
        if count(self.blame(answers.next(), keys).await?)? == 0 {
            return Err(self.missing(group).await);
        }
        Ok(Explanation {
            frontier: count(self.blame(answers.next(), keys).await?)?,
            high_watermark: count(self.blame(answers.next(), keys).await?)?,
            redriven: count(self.blame(answers.next(), keys).await?)?,
            rewind: text(self.blame(answers.next(), keys).await?)?.map(|marker| kind_of(&marker)),
            holder: None,
        })
    }

    /// How the event with this sequence stands.
    async fn holder(&self, group: &GroupKey, partition: u32, sequence: u64) -> Result<Holder> {
        let found = self.find(group, partition, sequence).await?;
        let body = found.as_ref().and_then(|found| found.body.as_ref());
        let field = |name| {
            body.and_then(|entry| codec::raw_field(codec::borrowed(&entry.fields), name)).map(str::to_owned)
        };
        let (event_id, event_type, timestamp) = (field("id"), field("type"), field("timestamp"));
        let mut done = redis::cmd("ZSCORE");
        done.arg(self.keys.done(group, partition)).arg(sequence);
        let done = self.connection.call(&done, Effect::None).await;
        let done = self.blame(done, || self.typed_keys(group, &[partition])).await?;
        let state = match found {
            _ if done != Value::Nil => HolderState::Settled,
            None => self.absent(group, partition, sequence).await?,
            Some(Found { body: None, .. }) => HolderState::Missing,
            Some(Found { id, .. }) => self.delivery(group, partition, id).await?,
        };
        Ok(Holder { sequence, event_id, event_type, timestamp, state })
    }

    /// The entry with this sequence: by the index, or, where a writer left it without a row there, just
    /// behind the entry before it.
    async fn find(&self, group: &GroupKey, partition: u32, sequence: u64) -> Result<Option<Found>> {
        let (index, log) =
            (self.keys.index(&group.stream, partition), self.keys.entries(&group.stream, partition));
        let mut pipe = redis::pipe();
        pipe.cmd("ZRANGEBYSCORE").arg(&index).arg(sequence).arg(sequence).arg("LIMIT").arg(0).arg(1);
        pipe.cmd("ZREVRANGEBYSCORE").arg(&index).arg(format!("({sequence}")).arg("-inf");
        pipe.arg("LIMIT").arg(0).arg(1);
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let keys = || self.typed_keys(group, &[partition]);
        let mut ids = Vec::with_capacity(2);
        for _ in 0..2 {
            let rows = array(self.blame(answers.next(), keys).await?)?;
            ids.push(rows.into_iter().next().map(text_or_empty).transpose()?);
        }
        let (before, row) = (ids.pop().flatten(), ids.pop().flatten());
        let mut range = redis::cmd("XRANGE");
        match &row {
            Some(id) => range.arg(&log).arg(id).arg(id),
            None => {
                range.arg(&log).arg(before.map_or_else(|| "-".to_owned(), |id| format!("({id}"))).arg("+")
            }
        };
        range.arg("COUNT").arg(UNINDEXED_MAX);
        let entries = self.connection.call(&range, Effect::None).await;
        let mut entries = reply::entries(self.blame(entries, keys).await?)?.into_iter();
        if let Some(id) = row {
            return Ok(Some(Found { id, body: entries.next() }));
        }
        let unindexed =
            entries.find(|entry| codec::raw_sequence(codec::borrowed(&entry.fields)) == Some(sequence));
        Ok(unindexed.map(|entry| Found { id: entry.id.clone(), body: Some(entry) }))
    }

    /// Whether a sequence that no entry has was removed, or was never written: what stood in front of
    /// all that is left was removed, if anything was.
    async fn absent(&self, group: &GroupKey, partition: u32, sequence: u64) -> Result<HolderState> {
        let (index, log) =
            (self.keys.index(&group.stream, partition), self.keys.entries(&group.stream, partition));
        let mut pipe = redis::pipe();
        pipe.cmd("ZCOUNT").arg(index).arg("-inf").arg(sequence);
        pipe.cmd("XINFO").arg("STREAM").arg(log);
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let below = count(self.blame(answers.next(), || self.typed_keys(group, &[partition])).await?)?;
        let info = match answers.raw() {
            Value::ServerError(_) => return Ok(HolderState::Missing), // the log itself is gone
            info => array(info)?,
        };
        let number = |name: &str| {
            let at = info
                .iter()
                .position(|field| matches!(field, Value::BulkString(text) if text == name.as_bytes()))?;
            reply::number(info.get(at + 1)?.clone()).ok().flatten()
        };
        // Servers before 7 do not count what was ever added: there a removal is likelier.
        let removed = number("entries-added").is_none_or(|added| Some(added) != number("length"));
        Ok(if below == 0 && removed { HolderState::Missing } else { HolderState::Unwritten })
    }

    /// How an entry that is there stands with the group.
    async fn delivery(&self, group: &GroupKey, partition: u32, id: String) -> Result<HolderState> {
        let rows = self.pending_rows(group, partition, &id, 1).await?;
        let listed = rows.into_iter().find(|row| row.id == id);
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(format!("{}{id}", self.keys.fences(group))).arg("partition");
        pipe.cmd("XINFO").arg("GROUPS").arg(self.keys.entries(&group.stream, partition));
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let owner = text_or_empty(answers.next()?)?;
        let stands = match answers.raw() {
            Value::ServerError(error) if code_of(&error) != ServerCode::WrongType => None,
            answer => last_delivered(checked(answer)?, group)?,
        };
        // A group that the store lost has leases, though nothing of it is pending.
        let held = owner == partition.to_string();
        if let Some(row) = listed.or_else(|| held.then(|| PendingRow::unlisted(id.clone()))) {
            let entry = self.fill_in(group, partition, vec![row]).await?.into_iter().next();
            return Ok(entry.map_or(HolderState::Unclear, HolderState::Pending));
        }
        let delivered = stands.is_some_and(|stands| parse_id(&id) <= parse_id(&stands));
        Ok(if delivered { HolderState::Unclear } else { HolderState::Undelivered })
    }
}
