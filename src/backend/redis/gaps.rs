//! Gaps in the index behind a frontier: entries whose row was never written, and sequences that were
//! given out and never used.

use super::Redis;
use super::connection::Effect;
use super::reply::{self, Answers, Entry, array, number_or_zero, text_or_empty};
use super::scripts::Script;
use super::{codec, millis};
use crate::backend::{Repair, RepairKind, Result};
use crate::event::GroupKey;

/// Index rows on either side of a gap between whose entries one without a row is looked for: so far
/// can concurrent appends of others stand from their place.
const ROWS_AROUND: usize = 32;
/// Entries that are looked at for a gap.
const ENTRIES_MAX: usize = 200;

/// Sequences that have no index row.
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The id of the row behind it.
    pub(super) behind: Option<(u64, u64)>,
}

impl Redis {
    /// Writes the rows of entries that fill a gap; without any, passes a gap at the frontier that is
    /// old enough.
    pub(super) async fn mend_gap(
        &self,
        group: &GroupKey,
        partition: u32,
        gap: &Gap,
        now_ms: u64,
        trimmed: u64,
    ) -> Result<Vec<Repair>> {
        let mut repairs = Vec::new();
        let mut fillable = false;
        if gap.last > trimmed {
            for Entry { id, fields } in self.entries_around(group, partition, gap).await? {
                let Some(sequence) = codec::raw_sequence(&fields) else { continue };
                if !(gap.first..=gap.last).contains(&sequence) {
                    continue;
                }
                let mut call = self.gap_call(group, partition);
                call.arg("row").arg(id).arg(sequence);
                fillable = true;
                if number_or_zero(self.connection.script(call, Effect::Write).await?)? == 1 {
                    let sequences = Some((sequence, sequence));
                    repairs.push(Repair { kind: RepairKind::IndexRow, sequences, count: 1 });
                }
            }
        }
        if fillable {
            return Ok(repairs);
        }
        let age_ms = millis(self.append_time_max);
        // An append behind it that is so old was made when this one had long been given up.
        let old =
            gap.behind.is_some_and(|(ms, _)| ms.saturating_add(age_ms) <= now_ms) || gap.last <= trimmed;
        let mut call = self.gap_call(group, partition);
        call.arg("pass").arg(gap.first).arg(gap.last).arg(age_ms).arg(u8::from(old));
        if number_or_zero(self.connection.script(call, Effect::Write).await?)? == 1 && gap.last > trimmed {
            let sequences = Some((gap.first, gap.last));
            repairs.push(Repair { kind: RepairKind::Hole, sequences, count: gap.last - gap.first + 1 });
        }
        Ok(repairs)
    }

    fn gap_call(&self, group: &GroupKey, p: u32) -> redis::Cmd {
        let mut call = Script::HealGap.call(&[
            self.keys.group(group),
            self.keys.note(group),
            self.keys.entries(&group.stream, p),
            self.keys.index(&group.stream, p),
            self.keys.done(group, p),
        ]);
        call.arg(p);
        call
    }

    /// Entries near a gap that have no index row.
    async fn entries_around(&self, group: &GroupKey, p: u32, gap: &Gap) -> Result<Vec<Entry>> {
        let (index, log) = (self.keys.index(&group.stream, p), self.keys.entries(&group.stream, p));
        let mut pipe = redis::pipe();
        pipe.cmd("ZREVRANGEBYSCORE").arg(&index).arg(format!("({}", gap.first)).arg("-inf");
        pipe.arg("LIMIT").arg(0).arg(ROWS_AROUND);
        pipe.cmd("ZRANGEBYSCORE").arg(&index).arg(format!("({}", gap.last)).arg("+inf");
        pipe.arg("LIMIT").arg(0).arg(ROWS_AROUND);
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let mut known = Vec::new();
        let mut sides = Vec::with_capacity(2);
        for _ in 0..2 {
            let ids = array(answers.next()?)?.into_iter().map(text_or_empty).collect::<Result<Vec<_>>>()?;
            sides.push(ids.len());
            known.extend(ids);
        }
        let by_id = |id: &&String| reply::parse_id(id);
        let lowest = known.iter().min_by_key(by_id).filter(|_| sides[0] == ROWS_AROUND);
        let highest = known.iter().max_by_key(by_id).filter(|_| sides[1] == ROWS_AROUND);
        let (mut from, to) = (
            lowest.map_or_else(|| "-".to_owned(), Clone::clone),
            highest.map_or_else(|| "+".to_owned(), Clone::clone),
        );
        // With few rows the range may be long: the entries right behind the row before are likeliest.
        if lowest.is_none()
            && let Some(before) = known.first().filter(|_| sides[0] > 0)
        {
            from.clone_from(before);
        }
        let mut range = redis::cmd("XRANGE");
        range.arg(&log).arg(from).arg(to).arg("COUNT").arg(ENTRIES_MAX);
        let mut entries = reply::entries(self.connection.call(&range, Effect::None).await?)?;
        entries.retain(|entry| !known.contains(&entry.id));
        Ok(entries)
    }
}
