//! What the engine says of its work: one function a thing that happens, so that wording and fields
//! stand in one place.

use std::sync::Arc;
use std::time::Duration;

use tracing::{Span, debug, error, error_span, info, warn};

use crate::backend::{ClaimDeath, Repair};
use crate::event::{GroupKey, Leased, Name};
use crate::outcome::Verdict;

/// Characters of a digest that are shown.
const DIGEST_CHARS: usize = 12;

/// The part of a digest that is shown.
#[must_use]
pub fn short_digest(digest: &str) -> &str {
    digest.get(..DIGEST_CHARS).unwrap_or(digest)
}

/// The span of one attempt: every line about it carries these fields, the guest's own lines too. Its
/// level is the highest, so that no filter takes the fields from a line that it lets through.
#[must_use]
pub fn attempt_span(pipeline: &str, leased: &Leased, digest: &str) -> Span {
    error_span!(
        "attempt",
        pipeline,
        event = %leased.event.id,
        partition = leased.lease.partition,
        sequence = leased.lease.sequence,
        attempt = leased.lease.attempt,
        plugin = short_digest(digest),
    )
}

/// A verdict was written.
pub fn settled(span: &Span, verdict: &Verdict) {
    let _entered = span.enter();
    match verdict {
        Verdict::Ack(_) => debug!("acked"),
        Verdict::Retry { delay, reason, failure } => {
            let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            info!(failure = failure.as_str(), delay_ms, reason, "will be tried again");
        }
        Verdict::DeadLetter { cause, reason, failure } => {
            warn!(cause = cause.as_str(), failure = failure.map(|f| f.as_str()), reason, "dead-lettered");
        }
        Verdict::Release => debug!("handed back"),
    }
}

/// The handler runs again, since its state had changed under it.
pub fn runs_again(span: &Span, reruns: u32) {
    let _entered = span.enter();
    debug!(reruns, "its state has changed meanwhile; it runs again");
}

/// An attempt's lease was lost before its verdict could be written.
pub fn not_settled(span: &Span, doubtful: bool) {
    let _entered = span.enter();
    if doubtful {
        warn!("no answer tells whether the verdict was written; if it was not, the event comes again");
    } else {
        warn!("the lease was lost, so nothing was written; whoever took the event handles it");
    }
}

/// A claim made a dead letter of an entry.
pub fn dead_lettered_at_claim(pipeline: &str, death: &ClaimDeath) {
    warn!(
        pipeline,
        event = death.event_id,
        partition = death.partition,
        sequence = death.sequence,
        cause = death.cause.as_str(),
        reason = death.reason,
        "dead-lettered"
    );
}

/// Damage of the store was mended.
pub fn repaired(pipeline: &str, partition: u32, repair: &Repair) {
    let (first, last) = repair.sequences.unzip();
    warn!(pipeline, partition, kind = repair.kind.as_str(), first, last, count = repair.count, "repaired");
}

/// A stream's retention removed old events.
pub fn trimmed(stream: &Name, partition: u32, removed: u64) {
    info!(%stream, partition, removed, "old events were removed");
}

/// A group keeps a stream's retention from what it should remove.
pub fn retention_held(group: &GroupKey, partition: u32, sequence: u64) {
    let GroupKey { stream, group } = group;
    warn!(
        %stream, %group, partition, sequence,
        "the retention waits for a group that has not settled old events; where no one uses the group any \
         more, `wasmill group delete {stream} {group}` lets go of them"
    );
}

/// A run that ends when idle waits for what falls due soon.
pub fn waiting_for_pending(pipeline: &str, pending: usize, last: Duration) {
    let until = jiff::Timestamp::now()
        .checked_add(jiff::SignedDuration::try_from(last).unwrap_or_default())
        .map_or_else(|_| "later".to_owned(), |at| format!("{at:.0}"));
    info!(pipeline, pending, %until, "waiting for leases that run out and retries that fall due");
}

/// New attempts of a plugin use another build from now on.
pub fn plugin_reloaded(plugin: &str, before: Option<&str>, after: &str) {
    let (before, after) = (before.map(short_digest), short_digest(after));
    info!(plugin, before, after, "a new build of the plugin is in use");
}

/// Pipelines were stopped and started to carry over a changed file. One that is in both lists was
/// changed.
pub fn pipelines_reloaded(stopped: &[Arc<str>], started: &[Arc<str>]) {
    let only = |these: &[Arc<str>], others: &[Arc<str>]| {
        let names: Vec<&str> =
            these.iter().filter(|name| !others.contains(name)).map(AsRef::as_ref).collect();
        names.join(", ")
    };
    let changed: Vec<&str> =
        started.iter().filter(|name| stopped.contains(name)).map(AsRef::as_ref).collect();
    if !stopped.is_empty() || !started.is_empty() {
        let (added, removed) = (only(started, stopped), only(stopped, started));
        info!(added, removed, changed = changed.join(", "), "the pipeline file was reloaded");
    }
}

/// A pipeline takes no events any more, since its plugin faulted too often.
pub fn paused(pipeline: &str, plugin: &str, digest: &str, (faults, attempts): (usize, usize), fault: &str) {
    error!(
        pipeline,
        plugin,
        build = short_digest(digest),
        faults,
        attempts,
        fault,
        "paused: too many attempts ended in a fault, and no event spends another one; a new build of the plugin, or \
         new settings for it, resume it, and so does SIGHUP"
    );
}

/// A pipeline that paused takes events again.
pub fn resumed(pipeline: &str, why: &str) {
    info!(pipeline, why, "resumed");
}

/// What changed on the disk was not carried over.
pub fn reload_refused(why: &str) {
    warn!(why, "not reloaded; what ran before goes on");
}
