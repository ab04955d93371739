//! Proves over a history that the promises held, or names each violation.
//!
//! It knows nothing of how an engine or a store works, only what they promise. Where an observation
//! has several innocent explanations it is silent: it never accuses wrongly, and what it accuses of is
//! to be taken seriously.

mod appends;
mod attempts;
mod frontier;
mod leases;
mod settling;
mod view;

use crate::history::History;
use view::View;

/// A broken promise, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Stored, as its appender was told, and not in the log.
    Lost,
    /// In the log twice, though sent once.
    StoredTwice,
    /// In the log, though its appender was told that it is not.
    StoredThoughRefused,
    /// A part of a batch is in the log.
    TornBatch,
    /// Sequences of a partition are not contiguous, or not in the order given.
    OutOfOrder,
    /// Something was seen of an event that no one appended.
    FromNowhere,
    /// Neither acked nor a dead letter at the end.
    Unsettled,
    /// Settled more than once, or in two ways.
    SettledTwice,
    /// An engine wrote it, and the store does not have it.
    WriteLost,
    /// An effect more than once.
    EffectTwice,
    /// Another end than the handler's answer leads to.
    WrongFate,
    /// State that is not the sum of the effects.
    WrongState,
    /// One attempt was delivered to two.
    AttemptTwice,
    /// More attempts than the cap allows.
    BeyondCap,
    /// An attempt number that no delivery had, or a dead letter of too few.
    WrongAttempt,
    /// A new lease after the event was settled.
    AfterSettled,
    /// The frontier moved backward.
    FrontierBack,
    /// The frontier passed an event that was not settled yet.
    FrontierPastUnsettled,
    /// A lease was given while another one lived.
    TwoLeases,
}

/// All violations, in no particular order.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let view = View::of(history);
    let mut found = Vec::new();
    appends::check(&view, &mut found);
    settling::check(&view, &mut found);
    attempts::check(&view, &mut found);
    frontier::check(&view, &mut found);
    leases::check(&view, &mut found);
    found
}

fn accuse(found: &mut Vec<Violation>, kind: Kind, detail: String) {
    found.push(Violation { kind, detail });
}
