//! What became of an attempt, and what is to be written about it.
//!
//! A handler answers with an [`Outcome`], or fails to answer with a [`Fault`]. [`decide`] alone
//! turns either into a [`Verdict`]; a [`Settlement`] is a verdict with the lease that entitles to
//! it. No I/O, no clock, no randomness.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Lease, Name, NewEvent};
use crate::retry::RetryPolicy;
use crate::state::{StateRead, StateWrite};

/// Longest reason that is stored, in characters (Rheo's own limit).
pub const REASON_CHARS_MAX: usize = 1000;

/// What a handler answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; commit what was staged.
    Ack(Effects),
    /// Not now: try again.
    Retry {
        /// Why.
        reason: String,
        /// When to try again; without it the pipeline's backoff decides.
        delay: Option<Duration>,
    },
    /// Never: a dead letter at once.
    Reject {
        /// Why.
        reason: String,
    },
    /// It derived events, though its event came through too many handlers already: it goes in a
    /// circle.
    TooManyHops {
        /// Through how many it came.
        hops: u32,
        /// How many are allowed (`max_hops`).
        hops_max: u32,
    },
}

/// What a handler staged through the host: committed together with the ack, in one atomic step, or
/// not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Events to append, in this order.
    pub appends: Vec<StagedEvent>,
    /// State to write; each key once.
    pub writes: Vec<StateWrite>,
    /// What the call read of the store; each key once. Where one of them has another version by now,
    /// nothing is committed.
    pub reads: Vec<StateRead>,
}

impl Effects {
    /// Whether there is nothing to commit. A call that only read has no effect, whatever it read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.appends.is_empty() && self.writes.is_empty()
    }

    /// What it takes to hand them to a store, in bytes, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let appends = self.appends.iter().map(|staged| staged.event.bytes() + 64);
        let writes = self.writes.iter().map(|w| w.key.len() + w.value.as_ref().map_or(0, Vec::len) + 64);
        let reads = self.reads.iter().map(|read| read.key.len() + 64);
        appends.chain(writes).chain(reads).sum()
    }
}

/// An event that is appended with the ack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedEvent {
    /// The stream, which must exist.
    pub stream: Name,
    /// The event.
    pub event: NewEvent,
}

/// An attempt that ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What kind of end it was.
    pub kind: FaultKind,
    /// What happened, with the tail of the guest's own output where there is one.
    pub message: String,
}

/// The ways in which a guest fails to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The guest trapped: a panic, an abort, an exhausted stack.
    Trap,
    /// The guest did not answer in its time.
    Timeout,
    /// The guest wanted more memory than it may have.
    Memory,
}

impl FaultKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Trap, Self::Timeout, Self::Memory];

    /// The kind's name in logs, summaries and the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        FailureKind::from(self).as_str()
    }
}

/// The kind of a failed attempt, as the store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The handler asked for another attempt.
    Retry,
    /// See [`FaultKind::Trap`].
    Trap,
    /// See [`FaultKind::Timeout`].
    Timeout,
    /// See [`FaultKind::Memory`].
    Memory,
    /// The lease ran out: the consumer died, or was cut off.
    Expired,
}

impl FailureKind {
    /// The kind's name in logs and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Expired => "expired",
        }
    }

    /// The kind that [`FailureKind::as_str`] names so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Retry, Self::Trap, Self::Timeout, Self::Memory, Self::Expired]
            .into_iter()
            .find(|k| k.as_str() == text)
    }
}

impl From<FaultKind> for FailureKind {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Trap => Self::Trap,
            FaultKind::Timeout => Self::Timeout,
            FaultKind::Memory => Self::Memory,
        }
    }
}

/// What happens when an attempt ends without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// It is tried again, as after any failure.
    #[default]
    Retry,
    /// It is a dead letter at once.
    DeadLetter,
    /// It is tried again; and the pipeline pauses once there are too many.
    Pause {
        /// Faults after which it pauses; at least 1.
        after: u32,
        /// The last so many attempts are those among which faults count; at least `after`.
        of: u32,
    },
}

/// Why an event became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The handler rejected it.
    Rejected,
    /// Its last attempt failed.
    AttemptsExhausted,
    /// What is stored is no event.
    Undecodable,
    /// Its body is gone from the log.
    Missing,
    /// It went in a circle of pipelines too often.
    TooManyHops,
    /// Its attempt ended without an answer, and the pipeline makes a dead letter of that at once.
    Faulted,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 6] = [
        Self::Rejected,
        Self::AttemptsExhausted,
        Self::Undecodable,
        Self::Missing,
        Self::TooManyHops,
        Self::Faulted,
    ];

    /// The cause's name in logs and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::AttemptsExhausted => "attempts-exhausted",
            Self::Undecodable => "undecodable",
            Self::Missing => "missing",
            Self::TooManyHops => "too-many-hops",
            Self::Faulted => "faulted",
        }
    }

    /// The cause that [`Cause::as_str`] names so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.as_str() == text)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An event's fate after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Settled for good; the effects are committed in the same step.
    Ack(Effects),
    /// Parked until `delay` from now, by the store's clock.
    Retry {
        /// How long it is parked.
        delay: Duration,
        /// Why; at most [`REASON_CHARS_MAX`] characters.
        reason: String,
        /// What kind of failure it was.
        failure: FailureKind,
    },
    /// Settled for good as a dead letter.
    DeadLetter {
        /// Why in one word.
        cause: Cause,
        /// Why in the handler's words; at most [`REASON_CHARS_MAX`] characters.
        reason: String,
        /// The last attempt's failure; `None` where the handler rejected.
        failure: Option<FailureKind>,
    },
    /// Handed back untouched, claimable at once: the attempt does not count.
    Release,
}

/// A verdict with the lease that entitles to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The proof that the event is held.
    pub lease: Lease,
    /// What is to be written.
    pub verdict: Verdict,
    /// Digest of the plugin that handled the attempt, where one did.
    pub plugin: Option<Arc<str>>,
}

/// The one place where an event's fate is chosen.
///
/// `attempt` counts from 1, this attempt included; `random` is a draw from 0 to 1 for the jitter.
#[must_use]
pub fn decide(
    result: Result<Outcome, Fault>,
    attempt: u32,
    policy: &RetryPolicy,
    on_fault: OnFault,
    random: f64,
) -> Verdict {
    let (reason, failure, delay) = match result {
        Ok(Outcome::Ack(effects)) => return Verdict::Ack(effects),
        Ok(Outcome::Reject { reason }) => {
            return Verdict::DeadLetter { cause: Cause::Rejected, reason: shorten(reason), failure: None };
        }
        Ok(Outcome::TooManyHops { hops, hops_max }) => {
            let reason = format!(
                "it came through {hops} handlers, and may not lead to further events (`max_hops` is {hops_max})"
            );
            return Verdict::DeadLetter { cause: Cause::TooManyHops, reason, failure: None };
        }
        Ok(Outcome::Retry { reason, delay }) => (reason, FailureKind::Retry, delay),
        Err(fault) if on_fault == OnFault::DeadLetter => {
            let failure = Some(fault.kind.into());
            return Verdict::DeadLetter { cause: Cause::Faulted, reason: shorten(fault.message), failure };
        }
        Err(fault) => (fault.message, fault.kind.into(), None),
    };
    let reason = shorten(reason);
    if attempt >= policy.max_attempts {
        return Verdict::DeadLetter { cause: Cause::AttemptsExhausted, reason, failure: Some(failure) };
    }
    let delay = delay.unwrap_or_else(|| policy.backoff(attempt, random));
    Verdict::Retry { delay, reason, failure }
}

/// Cuts a reason to what is stored.
#[must_use]
pub fn shorten(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(REASON_CHARS_MAX) {
        reason.truncate(end);
    }
    reason
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn results() -> impl Strategy<Value = Result<Outcome, Fault>> {
        let reason = "\\PC{0,1200}";
        let delay = proptest::option::of((0u64..1_000_000).prop_map(Duration::from_millis));
        let kind = proptest::sample::select(FaultKind::ALL.to_vec());
        prop_oneof![
            Just(Ok(Outcome::Ack(Effects::default()))),
            (reason, delay).prop_map(|(reason, delay)| Ok(Outcome::Retry { reason, delay })),
            reason.prop_map(|reason| Ok(Outcome::Reject { reason })),
            (0u32..100, 0u32..100).prop_map(|(hops, hops_max)| Ok(Outcome::TooManyHops { hops, hops_max })),
            (kind, reason).prop_map(|(kind, message)| Err(Fault { kind, message })),
        ]
    }

    fn policies() -> impl Strategy<Value = OnFault> {
        let pause = (1u32..5, 5u32..9).prop_map(|(after, of)| OnFault::Pause { after, of });
        prop_oneof![Just(OnFault::Retry), Just(OnFault::DeadLetter), pause]
    }

    proptest! {
        #[test]
        fn every_result_has_its_fate(result in results(), attempt in 1u32..8, max_attempts in 1u32..8, on_fault in policies(), random in 0.0f64..1.0) {
            let policy = RetryPolicy { max_attempts, ..RetryPolicy::default() };
            let verdict = decide(result.clone(), attempt, &policy, on_fault, random);
            match (&result, &verdict) {
                (Err(fault), Verdict::DeadLetter { cause: Cause::Faulted, failure, .. }) => {
                    prop_assert_eq!(on_fault, OnFault::DeadLetter);
                    prop_assert_eq!(*failure, Some(fault.kind.into()));
                }
                (Err(_), _) if on_fault == OnFault::DeadLetter => prop_assert!(false, "{:?}", verdict),
                (Ok(Outcome::Ack(_)), Verdict::Ack(_)) => {}
                (Ok(Outcome::Reject { .. }), Verdict::DeadLetter { cause: Cause::Rejected, failure: None, .. }) => {}
                (Ok(Outcome::TooManyHops { .. }), Verdict::DeadLetter { cause: Cause::TooManyHops, failure: None, .. }) => {}
                (Ok(Outcome::Retry { .. }) | Err(_), Verdict::Retry { delay, failure, .. }) => {
                    prop_assert!(attempt < max_attempts);
                    match &result {
                        Ok(Outcome::Retry { delay: asked, .. }) => {
                            prop_assert_eq!(*failure, FailureKind::Retry);
                            prop_assert_eq!(*delay, asked.unwrap_or_else(|| policy.backoff(attempt, random)));
                        }
                        Err(fault) => {
                            prop_assert_eq!(*failure, FailureKind::from(fault.kind));
                            prop_assert_eq!(*delay, policy.backoff(attempt, random));
                        }
                        Ok(_) => unreachable!(),
                    }
                }
                (Ok(Outcome::Retry { .. }) | Err(_), Verdict::DeadLetter { cause: Cause::AttemptsExhausted, failure: Some(_), .. }) => {
                    prop_assert!(attempt >= max_attempts);
                }
                other => prop_assert!(false, "{:?}", other),
            }
            if let Verdict::Retry { reason, .. } | Verdict::DeadLetter { reason, .. } = &verdict {
                prop_assert!(reason.chars().count() <= REASON_CHARS_MAX);
            }
        }
    }

    #[test]
    fn names_read_back() {
        for kind in [
            FailureKind::Retry,
            FailureKind::Trap,
            FailureKind::Timeout,
            FailureKind::Memory,
            FailureKind::Expired,
        ] {
            assert_eq!(FailureKind::parse(kind.as_str()), Some(kind));
        }
        for cause in Cause::ALL {
            assert_eq!(Cause::parse(cause.as_str()), Some(cause));
        }
        assert_eq!(FailureKind::parse("other"), None);
    }
}
