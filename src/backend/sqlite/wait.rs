//! Waiting until a group may have something to claim.
//!
//! This process's own commits are told by a channel. Another process's commits are noticed by
//! SQLite's `data_version`, asked every [`POLL`] and only while someone waits. Retries fall due by
//! the clock.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Sqlite;
use super::clock::Reading;
use super::lane::Lane;
use super::lookup::standings;
use super::worker::Op;
use crate::backend::Result;
use crate::event::GroupKey;

/// How often another process's commits are looked for.
const POLL: Duration = Duration::from_millis(50);

/// What a look at the group showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// The database's version as this process saw it before it looked.
    version: i64,
    /// When there will be something to claim, as far as is known.
    ready: Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Now,
    InMs(u64),
    Unknown,
}

/// What makes it worth to look again.
enum Woken {
    /// Something happened here: a commit, time that passed.
    Here,
    /// Nothing that is known of: another process may have committed something.
    Poll,
    /// The caller's time is over.
    Over,
}

impl Sqlite {
    /// Returns once there is something to claim, or at `until`.
    pub(super) async fn wait_until(
        &self,
        group: GroupKey,
        partitions: Vec<u32>,
        until: Instant,
    ) -> Result<()> {
        let mut commits = self.commits.subscribe();
        let mut seen: Option<Look> = None;
        let (mut due, mut seen_at) = (None, None);
        loop {
            // Both before the look, so that what happens after it is not missed.
            commits.borrow_and_update();
            let reading = self.time.clock().read();
            // A look from before a clock was moved tells nothing. One that moves by itself has its alarm.
            seen = seen.filter(|_| self.time.clock().passes() || seen_at == Some(reading));
            seen_at = Some(reading);
            let asked = Instant::now();
            let (group, partitions) = (group.clone(), partitions.clone());
            let look = self.reader().call(move |op| look(op, &group, &partitions, seen)).await?;
            // An earlier look that still holds is as old as it is: its time does not start again.
            if seen.is_none_or(|seen| seen.version != look.version) {
                due = match look.ready {
                    Ready::InMs(ms) if self.time.clock().passes() => {
                        asked.checked_add(Duration::from_millis(ms))
                    }
                    Ready::Now | Ready::InMs(_) | Ready::Unknown => None,
                };
            }
            if look.ready == Ready::Now {
                return Ok(());
            }
            match self.sleep(&mut commits, reading, due, until).await {
                Woken::Here => seen = None,
                Woken::Poll => seen = Some(look),
                Woken::Over => return Ok(()),
            }
        }
    }

    async fn sleep(
        &self,
        commits: &mut tokio::sync::watch::Receiver<u64>,
        reading: Reading,
        due: Option<Instant>,
        until: Instant,
    ) -> Woken {
        let poll = Instant::now() + POLL;
        let poll = if self.is_shared() { poll } else { until };
        let alarm = due.unwrap_or(until).min(until).min(poll);
        tokio::select! {
            changed = commits.changed() => {
                // The sender lives in `self`; without it there would be nothing to wait for.
                if changed.is_err() { Woken::Over } else { Woken::Here }
            }
            () = self.time.clock().moved(reading) => Woken::Here,
            () = sleep_until(alarm) => {
                if alarm == until {
                    Woken::Over
                } else if due == Some(alarm) {
                    Woken::Here
                } else {
                    Woken::Poll
                }
            }
        }
    }
}

/// Looks at the group, unless nothing was committed since `seen`.
fn look(op: &mut Op<'_>, group: &GroupKey, partitions: &[u32], seen: Option<Look>) -> Result<Look> {
    let version = op.conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
    if let Some(seen) = seen
        && seen.version == version
    {
        return Ok(seen);
    }
    let group = op.group(group)?;
    let mut ready = Ready::Unknown;
    // Leases that run out, and suspects, are found by those who ask for them from time to time.
    for standing in standings(op, &group, partitions)? {
        let parked_ms = standing.ready_ms.get(Lane::Parked.number() as usize).copied().flatten();
        let in_ms = match parked_ms {
            // A claim has work there, too: it goes on with the rewind.
            _ if standing.rewinding => 0,
            _ if standing.high_watermark > standing.delivered => 0,
            Some(due_ms) => u64::try_from(due_ms.saturating_sub(op.time.now_ms)).unwrap_or(0),
            None => continue,
        };
        ready = match (ready, in_ms) {
            (Ready::Now, _) | (_, 0) => Ready::Now,
            (Ready::InMs(other), ms) => Ready::InMs(other.min(ms)),
            (Ready::Unknown, ms) => Ready::InMs(ms),
        };
    }
    Ok(Look { version, ready })
}
