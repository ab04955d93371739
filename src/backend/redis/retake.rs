//! The parts of a claim that take entries over: parked ones whose time has come, those whose lease ran
//! out, and suspects. A script leases and answers ids; the bodies are read afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{Cmd, Value};

use super::claim::{Held, Taking};
use super::codec;
use super::connection::Effect;
use super::groups::code;
use super::reply::{self, array, attempt_number, checked, number_or_zero, text_or_empty};
use super::scripts::{Code, Script};
use super::state::Cursors;
use super::{Redis, millis};
use crate::backend::{Error, Result};
use crate::event::random_id;
use crate::outcome::FailureKind;

/// Partitions that one step of the sweep visits.
const SWEEP_PARTITIONS_MAX: usize = 8;
/// Bodies that are asked for in one go.
const BODIES_MAX: usize = 256;

/// A partition and the id of the lease that this step gives there.
type Place = (u32, Arc<str>);

fn places(partitions: &[u32]) -> Vec<Place> {
    partitions.iter().map(|&p| (p, random_id().into())).collect()
}

impl Redis {
    /// Takes at most `limit` parked entries whose time has come.
    pub(super) async fn take_due(
        &self,
        taking: &mut Taking<'_>,
        partitions: &[u32],
        limit: usize,
    ) -> Result<()> {
        let places = places(partitions);
        let mut call = self.retake_call(Script::Due, taking, partitions);
        call.arg(limit);
        add_places(&mut call, &places);
        let mut answer = array(self.connection.script(call, Effect::None).await?)?.into_iter();
        self.answered(taking, answer.next()).await?;
        let now = number_or_zero(answer.next().unwrap_or(Value::Nil))?;
        let mut held = Vec::new();
        for (place, row) in places.iter().zip(answer) {
            let mut row = array(row)?.into_iter();
            let due = number_or_zero(row.next().unwrap_or(Value::Nil))?;
            taking.state.learn_due(place.0, (due >= 0).then_some(due - now));
            retaken(taking, place, row, &mut held)?;
        }
        self.read_held(taking, held).await
    }

    /// One bounded step of the search for what others lost or let go, for at most `limit` entries.
    /// Returns whether a partition used up its share, and so may have more.
    pub(super) async fn sweep(
        &self,
        taking: &mut Taking<'_>,
        partitions: &[u32],
        limit: usize,
    ) -> Result<bool> {
        let visited = partitions.len().min(SWEEP_PARTITIONS_MAX).min(limit);
        let places = places(&partitions[..visited]);
        let each = (limit / visited.max(1)).max(1);
        let calls = places.iter().map(|place| self.sweep_call(taking, place, each)).collect();
        let answers = self.connection.scripts(calls, Effect::None).await?;
        let (mut held, mut lost, mut more) = (Vec::new(), Vec::new(), false);
        for (place, answer) in places.iter().zip(answers) {
            let mut answer = array(checked(answer)?)?.into_iter();
            let mut next = || answer.next().unwrap_or(Value::Nil);
            match code(next())? {
                Code::Ok => {
                    let (fast, full) = (text_or_empty(next())?, text_or_empty(next())?);
                    let records = text_or_empty(next())?;
                    taking.state.set_cursors(place.0, Cursors { fast, full, records });
                    let before = held.len();
                    retaken(taking, place, answer, &mut held)?;
                    more |= held.len() - before >= each;
                }
                Code::Lost => lost.push(place.0),
                _ => return Err(self.missing(taking.request.group).await),
            }
        }
        self.read_held(taking, held).await?;
        if !lost.is_empty() {
            self.restore(taking.request.group, &lost).await?;
        }
        Ok(more)
    }

    /// Takes one suspect.
    pub(super) async fn take_suspect(&self, taking: &mut Taking<'_>) -> Result<()> {
        let (_, partitions) = taking.state.in_turn(taking.request.partitions);
        let places = places(&partitions);
        let mut call = self.retake_call(Script::Alone, taking, &partitions);
        add_places(&mut call, &places);
        let mut answer = array(self.connection.script(call, Effect::None).await?)?.into_iter();
        self.answered(taking, answer.next()).await?;
        taking.claimed.suspects = number_or_zero(answer.next().unwrap_or(Value::Nil))? == 1;
        let mut held = Vec::new();
        for (place, row) in places.iter().zip(answer) {
            retaken(taking, place, array(row)?.into_iter(), &mut held)?;
        }
        self.read_held(taking, held).await
    }

    async fn answered(&self, taking: &Taking<'_>, answer: Option<Value>) -> Result<()> {
        match code(answer.unwrap_or(Value::Nil))? {
            Code::Ok => Ok(()),
            _ => Err(self.missing(taking.request.group).await),
        }
    }

    /// A call of `due.lua` or `alone.lua`, up to the arguments that both have.
    fn retake_call(&self, script: Script, taking: &Taking<'_>, partitions: &[u32]) -> Cmd {
        let (request, group) = (taking.request, taking.request.group);
        let mut keys = vec![self.keys.group(group), self.keys.note(group)];
        for &p in partitions {
            keys.push(self.keys.entries(&group.stream, p));
            keys.push(self.keys.due(group, p));
            keys.push(self.keys.suspects(group, p));
            if script == Script::Alone {
                keys.push(self.keys.redriven(group, p));
            }
        }
        let mut call = script.call(&keys);
        call.arg(group.group.as_str()).arg(request.consumer).arg(millis(request.lease));
        call.arg(self.keys.fences(group));
        call
    }

    fn sweep_call(&self, taking: &Taking<'_>, place: &Place, room: usize) -> Cmd {
        let (request, group, p) = (taking.request, taking.request.group, place.0);
        let mut call = Script::Sweep.call(&[
            self.keys.group(group),
            self.keys.entries(&group.stream, p),
            self.keys.index(&group.stream, p),
            self.keys.due(group, p),
            self.keys.suspects(group, p),
            self.keys.note(group),
            self.keys.done(group, p),
            self.keys.redriven(group, p),
            self.keys.copies(group, p),
        ]);
        let cursors = taking.state.cursors(p);
        call.arg(group.group.as_str()).arg(request.consumer).arg(millis(request.lease));
        call.arg(self.keys.fences(group)).arg(p).arg(&*place.1).arg(room);
        call.arg(cursors.fast).arg(cursors.full).arg(cursors.records);
        call
    }

    /// Reads the bodies of leased entries and takes them in.
    async fn read_held(&self, taking: &mut Taking<'_>, held: Vec<Held>) -> Result<()> {
        let mut held = held.into_iter().peekable();
        while held.peek().is_some() {
            let some: Vec<Held> = held.by_ref().take(BODIES_MAX).collect();
            let mut bodies = self.bodies(taking, some.iter().map(|held| (held.partition, &*held.id))).await?;
            for held in some {
                let body = bodies.remove(&(held.partition, held.id.to_string())).unwrap_or_default();
                taking.take(held, codec::borrowed(&body));
            }
        }
        Ok(())
    }

    /// Fields of entries by partition and id; those that are gone are left out. Where the log has an
    /// entry no more, a redriven event's copy has its fields.
    async fn bodies(
        &self,
        taking: &Taking<'_>,
        ids: impl Iterator<Item = (u32, &str)> + Send,
    ) -> Result<HashMap<(u32, String), Vec<(Vec<u8>, Vec<u8>)>>> {
        let mut pipe = redis::pipe();
        let mut asked = Vec::new();
        for (p, id) in ids {
            pipe.cmd("XRANGE").arg(self.keys.entries(&taking.request.group.stream, p)).arg(id).arg(id);
            asked.push((p, id.to_owned()));
        }
        let mut bodies = HashMap::with_capacity(asked.len());
        for ((p, _), value) in asked.iter().zip(self.connection.pipeline(&pipe, Effect::None).await?) {
            for entry in reply::entries(checked(value)?)? {
                bodies.insert((*p, entry.id), entry.fields);
            }
        }
        asked.retain(|place| bodies.get(place).is_none_or(Vec::is_empty));
        bodies.extend(self.copies(taking.request.group, asked).await?);
        Ok(bodies)
    }
}

fn add_places(call: &mut Cmd, places: &[Place]) {
    for (p, lease) in places {
        call.arg(*p).arg(&**lease);
    }
}

/// Reads what a script has leased in one partition: id, letter, attempt, former holder, former failure
/// of each entry.
fn retaken(
    taking: &mut Taking<'_>,
    place: &Place,
    mut row: impl Iterator<Item = Value>,
    held: &mut Vec<Held>,
) -> Result<()> {
    while let Some(id) = row.next() {
        let id = text_or_empty(id)?;
        let mut next = || row.next().unwrap_or(Value::Nil);
        let letter = text_or_empty(next())?;
        let attempt = attempt_number(next())?;
        let (holder, failure) = (text_or_empty(next())?, FailureKind::parse(&text_or_empty(next())?));
        let exhausted = match letter.as_str() {
            "L" => None,
            "E" => Some((holder, failure)),
            "S" => {
                taking.claimed.suspects = true;
                continue;
            }
            _ => return Err(Error::Corrupt(format!("a script answered with `{letter}` for an entry"))),
        };
        held.push(Held {
            partition: place.0,
            id: id.into(),
            lease: Arc::clone(&place.1),
            attempt,
            exhausted,
        });
    }
    Ok(())
}
