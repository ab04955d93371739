//! What was seen from outside while engines ran: what appenders were told, what handlers were called
//! with, what engines say that they wrote, and what the store showed meanwhile and at the end.

/// Microseconds since 1970. Stores tell milliseconds, cut: such a time is never too late.
pub(crate) type Micros = u64;

/// Everything about one log, from its first append until it was checked or flushed.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The group's cap.
    pub(crate) attempts_max: u32,
    /// Whether it came to its end: all that was appended had its time, and the store was read. One that
    /// was cut off (the store was flushed) can only be checked for what must never be.
    pub(crate) complete: bool,
    pub(crate) records: Vec<Record>,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at: Micros,
    pub(crate) what: What,
}

/// One start of an engine, by a name that none has twice.
pub(crate) type Run = String;

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// An appender sent an event, in this place of a batch, and was answered.
    Appended { batch: u64, id: String, plan: Plan, answer: Answer },
    /// A handler was called.
    Delivered { run: Run, id: String, attempt: u32 },
    /// An engine says that it wrote this.
    Written { run: Run, id: String, attempt: u32, verdict: Written },
    /// An engine was told to drain: from here on it may hand back what it holds, and say so or not.
    Drained { run: Run },
    /// The store showed a live lease. `at` is after the look, `asked` before it, `until` the end that it
    /// had then.
    Leased { run: Run, id: String, attempt: u32, asked: Micros, until: Micros },
    /// The store showed a frontier. `at` is after the look.
    Frontier { partition: u32, sequence: u64 },
    /// The log holds an event.
    Stored { id: String, partition: u32, sequence: u64 },
    /// The output holds an effect; `at` is its commit by the store's time. `sum` is what its account
    /// came to.
    Effect { id: String, attempt: u32, account: String, sum: u64 },
    /// The state holds this for an account.
    State { account: String, sum: u64 },
    /// The group has a dead letter; `at` is its making by the store's time.
    Dead { id: String, attempts: u32, rejected: bool },
    /// The group still holds an event at the end.
    Unsettled { id: String },
}

/// What an event asks of its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// So many attempts fail first.
    pub(crate) failures: u32,
    /// Then this.
    pub(crate) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Ack,
    Reject,
    /// It fails until its attempts are used up.
    Never,
}

impl Plan {
    /// Whether this attempt's own verdict lets go of the lease without settling the event.
    pub(crate) fn fails_at(self, attempt: u32) -> bool {
        attempt <= self.failures || self.fate == Fate::Never
    }
}

/// What an appender knows of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is stored.
    Stored,
    /// It is not.
    Refused,
    /// No answer came: its whole batch is stored, once, or none of it.
    Unknown,
}

/// What an engine wrote of an attempt, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Acked,
    Retried,
    DeadLettered,
    HandedBack,
}
