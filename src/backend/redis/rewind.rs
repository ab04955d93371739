//! Replay, reset and deletion of a group, in bounded steps behind a durable marker.
//!
//! The marker stands in the note, one for each partition touched (`rewind:{p}`). While it stands no
//! script of ours leases anything there, settles anything in range or moves the frontier; whoever
//! claims goes on with it. Other writers do not know of it: what they take meanwhile is dropped by the
//! last step, which moves the group only when nothing in range is pending.

use std::sync::PoisonError;
use std::time::Duration;

use redis::Value;

use super::Redis;
use super::connection::Effect;
use super::groups::code;
use super::reply::{self, Answers, array, checked, count, number_or_zero, text};
use super::scripts::{Code, Script};
use crate::backend::{Error, Result, Rewind, RewindKind, RewindStep};
use crate::event::GroupKey;

/// Partitions in which one call goes a step.
const PARTITIONS_MAX: usize = 16;

/// What a step did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub(super) dropped: u64,
    /// Nothing is left to do.
    pub(super) finished: bool,
    /// The group is gone.
    pub(super) deleted: bool,
}

/// A partition's marker.
struct Marker {
    partition: u32,
    kind: RewindKind,
    /// Nothing is left in this partition: of a deletion only the last step.
    drained: bool,
}

/// The kind of rewind that a marker names. One that we do not understand is taken for the least.
pub(super) fn kind_of(marker: &str) -> RewindKind {
    let word = marker.split_whitespace().next().unwrap_or_default();
    RewindKind::parse(word).unwrap_or(RewindKind::Replay)
}

impl Redis {
    pub(super) async fn do_begin_rewind(&self, group: &GroupKey, rewind: &Rewind) -> Result<()> {
        let stream = &group.stream;
        // Once more where the stream has changed under us.
        for _ in 0..2 {
            self.check_positions(stream, &rewind.to).await?;
            let partitions = self.partitions_of(stream).await?;
            let targets: Vec<(u32, u64)> = match rewind.kind {
                RewindKind::Delete => (0..partitions).map(|p| (p, 0)).collect(),
                _ => rewind.to.iter().map(|(&p, &sequence)| (p, sequence)).collect(),
            };
            let mut keys = vec![self.keys.meta(stream), self.keys.group(group), self.keys.note(group)];
            for &(p, _) in &targets {
                keys.push(self.keys.seq(stream, p));
            }
            let mut call = Script::RewindBegin.call(&keys);
            call.arg(partitions).arg(rewind.kind.as_str()).arg(&targets);
            let answer = self.connection.script(call, Effect::Write).await;
            let touched: Vec<u32> = targets.iter().map(|&(p, _)| p).collect();
            match code(self.blame(answer, || self.typed_keys(group, &touched)).await?)? {
                Code::Ok => return Ok(()),
                Code::Changed => self.forget(stream),
                Code::Rewinding => return Err(Error::RewindUnderWay(group.clone())),
                _ => return Err(self.missing(group).await),
            }
        }
        Err(Error::Busy(format!("the stream `{stream}` keeps changing")))
    }

    pub(super) async fn do_continue_rewind(&self, group: &GroupKey) -> Result<RewindStep> {
        let Step { dropped, finished, .. } = self.rewind_step(group).await?;
        Ok(RewindStep { dropped, finished })
    }

    /// One step of the rewind that is under way, if one is.
    pub(super) async fn rewind_step(&self, group: &GroupKey) -> Result<Step> {
        let partitions = self.partitions_of(&group.stream).await?;
        let Some(markers) = self.markers(group, partitions).await? else {
            return Ok(Step { finished: true, deleted: true, dropped: 0 });
        };
        let open: Vec<u32> = markers.iter().filter(|m| !m.drained).map(|m| m.partition).collect();
        let some = &open[..open.len().min(PARTITIONS_MAX)];
        let mut step = Step { finished: some.len() == open.len(), ..Step::default() };
        self.go_on(group, some, &mut step).await?;
        if step.finished && markers.iter().any(|m| m.kind == RewindKind::Delete) {
            step.finished = self.delete(group, partitions).await?;
            step.deleted = step.finished;
        }
        if step.finished && !markers.is_empty() {
            let state = self.state_of(group);
            if step.deleted {
                self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(group);
            }
            // Who waits looks where the group stands now.
            markers.iter().for_each(|marker| state.park(marker.partition, Duration::ZERO));
        }
        Ok(step)
    }

    /// The markers that stand; `None` where there is no such group (any more).
    async fn markers(&self, group: &GroupKey, partitions: u32) -> Result<Option<Vec<Marker>>> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGET").arg(self.keys.meta(&group.stream)).arg("partition_count");
        pipe.cmd("HLEN").arg(self.keys.group(group));
        pipe.cmd("HMGET").arg(self.keys.note(group));
        for p in 0..partitions {
            pipe.arg(format!("rewind:{p}")).arg(format!("rewound:{p}"));
        }
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let keys = || self.typed_keys(group, &[]);
        if text(self.blame(answers.next(), keys).await?)?.is_none() {
            self.forget(&group.stream);
            return Err(Error::StreamNotFound(group.stream.clone()));
        }
        if count(self.blame(answers.next(), keys).await?)? == 0 {
            return Ok(None);
        }
        let mut fields = array(self.blame(answers.next(), keys).await?)?.into_iter();
        let mut markers = Vec::new();
        for partition in 0..partitions {
            let mut next = || text(fields.next().unwrap_or(Value::Nil));
            let (marker, walks) = (next()?, next()?);
            if let Some(marker) = marker {
                let drained = walks.is_some_and(|walks| walks.ends_with(" end"));
                markers.push(Marker { partition, kind: kind_of(&marker), drained });
            }
        }
        Ok(Some(markers))
    }

    /// Goes a step in each of these partitions.
    async fn go_on(&self, group: &GroupKey, partitions: &[u32], step: &mut Step) -> Result<()> {
        if partitions.is_empty() {
            return Ok(());
        }
        let stream = &group.stream;
        let calls = partitions.iter().map(|&p| {
            let mut call = Script::Rewind.call(&[
                self.keys.group(group),
                self.keys.note(group),
                self.keys.entries(stream, p),
                self.keys.index(stream, p),
                self.keys.seq(stream, p),
                self.keys.done(group, p),
                self.keys.due(group, p),
                self.keys.suspects(group, p),
                self.keys.redriven(group, p),
                self.keys.copies(group, p),
            ]);
            call.arg(group.group.as_str()).arg(p).arg(self.keys.fences(group));
            call
        });
        let answers = self.connection.scripts(calls.collect(), Effect::Write).await?;
        for (&p, answer) in partitions.iter().zip(answers) {
            let answer = self.blame(checked(answer), || self.typed_keys(group, &[p])).await?;
            let mut answer = array(answer)?.into_iter();
            let mut next = || answer.next().unwrap_or(Value::Nil);
            // Deleted by someone else in the meantime.
            if code(next())? == Code::Ok {
                step.finished &= number_or_zero(next())? == 1;
                step.dropped += reply::count(next())?;
            }
        }
        Ok(())
    }

    /// The last step of a deletion. Returns whether the group is gone.
    async fn delete(&self, group: &GroupKey, partitions: u32) -> Result<bool> {
        let mut keys = vec![self.keys.group(group), self.keys.note(group), self.keys.dead_letters(group)];
        for p in 0..partitions {
            keys.push(self.keys.entries(&group.stream, p));
            keys.push(self.keys.done(group, p));
            keys.push(self.keys.due(group, p));
            keys.push(self.keys.suspects(group, p));
            keys.push(self.keys.redriven(group, p));
            keys.push(self.keys.copies(group, p));
        }
        let mut call = Script::DeleteGroup.call(&keys);
        call.arg(group.group.as_str());
        Ok(number_or_zero(self.connection.script(call, Effect::Write).await?)? == 1)
    }
}
