//! Gaps in the index behind a frontier: entries whose row was never written, and sequences that were
//! given out and never used.

use std::collections::HashSet;

use super::Redis;
use super::connection::Effect;
use super::heal::Found;
use super::reply::{self, Answers, Entry, array, count, number_or_zero, text_or_empty};
use super::scripts::Script;
use super::{codec, millis};
use crate::backend::{Repair, RepairKind, Result};
use crate::event::GroupKey;

/// Index rows on either side of a gap between whose entries one without a row is looked for: so far
/// can concurrent appends of others stand from their place.
const ROWS_AROUND: usize = 32;
/// Entries that are read at a time, and in all, for one gap.
const ENTRIES_STEP: usize = 32;
const ENTRIES_MAX: usize = 640;

/// Sequences that have no index row.
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The id of the row behind it.
    pub(super) behind: Option<(u64, u64)>,
}

impl Redis {
    /// Writes the rows of entries that fill a gap; where there are none, passes a gap at the frontier that
    /// is old enough.
    pub(super) async fn mend_gap(
        &self,
        group: &GroupKey,
        partition: u32,
        gap: &Gap,
        found: &Found,
    ) -> Result<Vec<Repair>> {
        let trimmed = gap.last <= found.trimmed;
        let mut rows = Vec::new();
        if !trimmed {
            for (id, sequence) in self.entries_around(group, partition, gap, &found.lowest).await? {
                let mut call = self.gap_call(group, partition);
                call.arg("row").arg(id).arg(sequence);
                // An entry that has a row says one thing of itself, and its row another: it fills no gap.
                if number_or_zero(self.connection.script(call, Effect::Write).await?)? > 0 {
                    let sequences = Some((sequence, sequence));
                    rows.push(Repair { kind: RepairKind::IndexRow, sequences, count: 1 });
                }
            }
        }
        if !rows.is_empty() {
            return Ok(rows);
        }
        let age_ms = millis(self.append_time_max);
        // What is behind the gap was appended when the gap was there already.
        let old = gap.behind.is_some_and(|(ms, _)| ms.saturating_add(age_ms) <= found.now_ms);
        let mut call = self.gap_call(group, partition);
        call.arg("pass").arg(gap.first).arg(gap.last).arg(age_ms).arg(u8::from(old || trimmed));
        let last = count(self.connection.script(call, Effect::Write).await?)?;
        if last == 0 || trimmed {
            return Ok(Vec::new());
        }
        let sequences = Some((gap.first, last));
        Ok(vec![Repair { kind: RepairKind::Hole, sequences, count: (last + 1).saturating_sub(gap.first) }])
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

    /// Entries near a gap that say of themselves that they fill it, with their sequences.
    async fn entries_around(
        &self,
        group: &GroupKey,
        p: u32,
        gap: &Gap,
        lowest: &str,
    ) -> Result<Vec<(String, u64)>> {
        let (index, log) = (self.keys.index(&group.stream, p), self.keys.entries(&group.stream, p));
        let mut pipe = redis::pipe();
        pipe.cmd("ZREVRANGEBYSCORE").arg(&index).arg(format!("({}", gap.first)).arg("-inf");
        pipe.arg("LIMIT").arg(0).arg(ROWS_AROUND);
        pipe.cmd("ZRANGEBYSCORE").arg(&index).arg(format!("({}", gap.last)).arg("+inf");
        pipe.arg("LIMIT").arg(0).arg(ROWS_AROUND);
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let mut side = || -> Result<Vec<String>> {
            let ids = array(answers.next()?)?.into_iter().map(text_or_empty).collect::<Result<Vec<_>>>()?;
            Ok(ids.into_iter().filter(|id| reply::parse_id(id).is_some()).collect())
        };
        let (below, above) = (side()?, side()?);
        let by_id = |id: &&String| reply::parse_id(id);
        let mut from = match below.iter().min_by_key(by_id) {
            Some(id) => id.clone(),
            // Without any row there, what the group has behind it is no matter.
            None if gap.first > 1 && !lowest.is_empty() => lowest.to_owned(),
            None => "-".to_owned(),
        };
        let to = above.iter().max_by_key(by_id).filter(|_| above.len() == ROWS_AROUND);
        let to = to.map_or_else(|| "+".to_owned(), Clone::clone);
        let mut found = Vec::new();
        for _ in 0..ENTRIES_MAX / ENTRIES_STEP {
            let mut range = redis::cmd("XRANGE");
            range.arg(&log).arg(&from).arg(&to).arg("COUNT").arg(ENTRIES_STEP);
            let entries = reply::entries(self.connection.call(&range, Effect::None).await?)?;
            let Some(last) = entries.last().filter(|_| entries.len() == ENTRIES_STEP) else {
                found.extend(fillers(&entries, gap));
                break;
            };
            from = format!("({}", last.id);
            found.extend(fillers(&entries, gap));
        }
        let known: HashSet<&String> = below.iter().chain(&above).collect();
        found.retain(|(id, _)| !known.contains(id));
        Ok(found)
    }
}

fn fillers(entries: &[Entry], gap: &Gap) -> Vec<(String, u64)> {
    let own = |entry: &Entry| Some((entry.id.clone(), codec::raw_sequence(codec::borrowed(&entry.fields))?));
    entries.iter().filter_map(own).filter(|(_, own)| (gap.first..=gap.last).contains(own)).collect()
}
