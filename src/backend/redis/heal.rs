//! Looks for damage in a group, and mends it: what writers left that died half-way, or that do in
//! several steps what must be one.
//!
//! A script looks at the rows behind the frontier and decides what it can by itself. Gaps in the index
//! come back: whether an entry without a row fills one is seen only in the log, see `gaps`.

use redis::Value;

use super::Redis;
use super::connection::Effect;
use super::gaps::Gap;
use super::groups::code;
use super::reply::{self, array, count, text_or_empty};
use super::scripts::{Code, Script};
use crate::backend::{Repair, RepairKind, Result};
use crate::event::GroupKey;

/// The consumer under whose name entries are put back.
const HEALER: &str = "heal";
/// Keys that a step of the walk over fences visits, as a hint to the server.
const FENCES_STEP: usize = 500;
/// How often a call looks: each time for a bounded part of what there is.
const LOOKS_MAX: usize = 4;

/// What the script found.
pub(super) struct Found {
    /// The server's time.
    pub(super) now_ms: u64,
    /// The sequence up to which the log was trimmed.
    pub(super) trimmed: u64,
    /// The lowest id that the group has not behind it: the first pending one, or where it stands.
    pub(super) lowest: String,
    repairs: Vec<Repair>,
    gaps: Vec<Gap>,
}

impl Redis {
    pub(super) async fn do_heal(&self, group: &GroupKey, partition: u32) -> Result<Vec<Repair>> {
        self.check_partition(&group.stream, partition).await?;
        let mut repairs = Vec::new();
        for _ in 0..LOOKS_MAX {
            let Some(found) = self.look_for_damage(group, partition).await? else {
                if self.restore(group, &[partition]).await? {
                    add(&mut repairs, Repair { kind: RepairKind::Group, sequences: None, count: 1 });
                }
                break;
            };
            let mut mended = found.repairs.clone();
            for gap in &found.gaps {
                mended.extend(self.mend_gap(group, partition, gap, &found).await?);
            }
            // What was mended may have hidden something behind it.
            if mended.is_empty() {
                break;
            }
            mended.into_iter().for_each(|repair| add(&mut repairs, repair));
        }
        // A walk over all keys is for the whole group: one partition's turn does.
        if partition == 0 && group.stream.is_portable() && group.group.is_portable() {
            repairs.extend(self.sweep_fences(group).await?);
        }
        if repairs.iter().any(|repair| repair.kind == RepairKind::Undelivered) {
            self.state_of(group).park(partition, std::time::Duration::ZERO);
        }
        Ok(repairs)
    }

    /// `None` where the store has lost the group.
    async fn look_for_damage(&self, group: &GroupKey, p: u32) -> Result<Option<Found>> {
        let stream = &group.stream;
        let mut call = Script::Heal.call(&[
            self.keys.group(group),
            self.keys.note(group),
            self.keys.entries(stream, p),
            self.keys.index(stream, p),
            self.keys.seq(stream, p),
            self.keys.done(group, p),
            self.keys.due(group, p),
            self.keys.suspects(group, p),
            self.keys.redriven(group, p),
            self.keys.trimmed(stream),
        ]);
        call.arg(group.group.as_str()).arg(p).arg(self.keys.fences(group)).arg(HEALER);
        let answer = self.connection.script(call, Effect::Write).await;
        let mut answer = array(self.blame(answer, || self.typed_keys(group, &[p])).await?)?.into_iter();
        let mut next = || answer.next().unwrap_or(Value::Nil);
        match code(next())? {
            Code::Ok => {}
            Code::Lost => return Ok(None),
            _ => return Err(self.missing(group).await),
        }
        let (now_ms, trimmed, lowest) = (count(next())?, count(next())?, text_or_empty(next())?);
        let (repairs, gaps) = (array(next())?, array(next())?);
        Ok(Some(Found {
            now_ms,
            trimmed,
            lowest,
            repairs: repairs.chunks_exact(4).map(repair).collect::<Result<_>>()?,
            gaps: gaps.chunks_exact(3).map(gap).collect::<Result<_>>()?,
        }))
    }

    /// One step of the walk over a group's fences.
    async fn sweep_fences(&self, group: &GroupKey) -> Result<Option<Repair>> {
        let state = self.state_of(group);
        let mut scan = redis::cmd("SCAN");
        scan.arg(state.fence_cursor()).arg("MATCH").arg(self.keys.fence_pattern(group));
        scan.arg("COUNT").arg(FENCES_STEP);
        let mut answer = array(self.connection.call(&scan, Effect::None).await?)?.into_iter();
        state.set_fence_cursor(text_or_empty(answer.next().unwrap_or(Value::Nil))?);
        let prefix = self.keys.fences(group);
        let mut ids = Vec::new();
        for key in array(answer.next().unwrap_or(Value::Nil))? {
            let key = text_or_empty(key)?;
            // The pattern fits the fences of a group `a:b` of this stream as well: theirs are no ids.
            ids.extend(
                key.strip_prefix(&prefix).filter(|id| reply::parse_id(id).is_some()).map(str::to_owned),
            );
        }
        if ids.is_empty() {
            return Ok(None);
        }
        let partitions = self.partitions_of(&group.stream).await?;
        let mut keys = vec![self.keys.group(group), self.keys.note(group)];
        for p in 0..partitions {
            keys.push(self.keys.entries(&group.stream, p));
            keys.push(self.keys.index(&group.stream, p));
            keys.push(self.keys.done(group, p));
            keys.push(self.keys.due(group, p));
            keys.push(self.keys.suspects(group, p));
            keys.push(self.keys.redriven(group, p));
        }
        let mut call = Script::HealFences.call(&keys);
        call.arg(group.group.as_str()).arg(prefix).arg(ids);
        let removed = count(self.connection.script(call, Effect::Write).await?)?;
        Ok((removed > 0).then_some(Repair { kind: RepairKind::Fence, sequences: None, count: removed }))
    }
}

/// Repairs of one kind are told together.
fn add(repairs: &mut Vec<Repair>, repair: Repair) {
    let Some(known) = repairs.iter_mut().find(|known| known.kind == repair.kind) else {
        return repairs.push(repair);
    };
    known.count += repair.count;
    known.sequences = match (known.sequences, repair.sequences) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (known, new) => known.or(new),
    };
}

fn repair(row: &[Value]) -> Result<Repair> {
    let text = text_or_empty(row[0].clone())?;
    let kind = [RepairKind::Frontier, RepairKind::SettledRow, RepairKind::Undelivered, RepairKind::Missing];
    let kind = kind.into_iter().find(|kind| kind.as_str() == text);
    let kind = kind.ok_or_else(|| reply::unexpected("an unknown repair"))?;
    let number = |at: usize| count(row[at].clone());
    Ok(Repair { kind, sequences: Some((number(1)?, number(2)?)), count: number(3)? })
}

fn gap(row: &[Value]) -> Result<Gap> {
    let behind = text_or_empty(row[2].clone())?;
    Ok(Gap { first: count(row[0].clone())?, last: count(row[1].clone())?, behind: reply::parse_id(&behind) })
}
