//! Which dead letters are meant.

use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::backend::{DeadEvent, DeadLetter};
use crate::cli::exit::Exit;
use crate::cli::filter::FieldArgs;
use crate::config;
use crate::outcome::Cause;
use crate::query::Filter;

/// Conditions on dead letters.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct SelectArgs {
    #[command(flatten)]
    fields: FieldArgs,
    /// Only those with this cause
    #[arg(long, value_enum)]
    cause: Option<CauseArg>,
    /// Only those that are dead for longer than this, by this machine's clock
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    older_than: Option<Duration>,
    /// Only those that are dead for no longer than this, by this machine's clock
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    newer_than: Option<Duration>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CauseArg {
    /// The handler rejected it
    Rejected,
    /// Its last attempt failed
    AttemptsExhausted,
    /// What is stored is no event
    Undecodable,
    /// Its body is gone from the log
    Missing,
    /// It went in a circle of pipelines too often
    TooManyHops,
}

/// The conditions, ready to be asked. A row that does not know what is asked for (Rheo keeps no cause)
/// does not meet it.
pub(super) struct Selection {
    filter: Filter,
    cause: Option<Cause>,
    /// Dead before this time.
    before: Option<Timestamp>,
    /// Dead at this time or later.
    since: Option<Timestamp>,
}

impl SelectArgs {
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
            && self.cause.is_none()
            && self.older_than.is_none()
            && self.newer_than.is_none()
    }

    pub(super) fn selection(&self, now: Timestamp) -> Result<Selection, Exit> {
        let ago = |age: Duration| now.checked_sub(age).unwrap_or(Timestamp::MIN);
        Ok(Selection {
            filter: self.fields.filter()?,
            cause: self.cause.map(|cause| match cause {
                CauseArg::Rejected => Cause::Rejected,
                CauseArg::AttemptsExhausted => Cause::AttemptsExhausted,
                CauseArg::Undecodable => Cause::Undecodable,
                CauseArg::Missing => Cause::Missing,
                CauseArg::TooManyHops => Cause::TooManyHops,
            }),
            before: self.older_than.map(ago),
            since: self.newer_than.map(ago),
        })
    }
}

impl Selection {
    pub(super) fn matches(&self, letter: &DeadLetter) -> bool {
        let event = match &letter.event {
            DeadEvent::Event(event) => self.filter.matches(event),
            DeadEvent::Raw(_) => self.filter == Filter::default(),
        };
        event && self.cause.is_none_or(|cause| letter.cause == Some(cause)) && self.in_time(letter)
    }

    fn in_time(&self, letter: &DeadLetter) -> bool {
        if self.before.is_none() && self.since.is_none() {
            return true;
        }
        let at = letter.dead_lettered_at.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
        at.is_some_and(|at| {
            self.before.is_none_or(|before| at < before) && self.since.is_none_or(|since| at >= since)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(cause: Option<Cause>, at: Option<&str>) -> DeadLetter {
        DeadLetter {
            row: "1".to_owned(),
            event: DeadEvent::Raw(vec![("id".to_owned(), "x".to_owned())]),
            reason: "no".to_owned(),
            cause,
            failure: None,
            attempts: None,
            consumer: None,
            plugin: None,
            dead_lettered_at: at.map(str::to_owned),
        }
    }

    #[test]
    fn rows_are_asked_for_cause_age_and_event() {
        let now = "2026-01-31T12:00:00Z".parse().unwrap();
        let hour = Some(Duration::from_secs(3600));
        let matches = |args: SelectArgs, letter| args.selection(now).unwrap().matches(&letter);
        let old = || letter(Some(Cause::Rejected), Some("2026-01-31T10:59:59.999Z"));
        let young = || letter(None, Some("2026-01-31T11:00:00Z"));

        assert!(matches(SelectArgs::default(), old()) && matches(SelectArgs::default(), letter(None, None)));
        let rejected = || SelectArgs { cause: Some(CauseArg::Rejected), ..SelectArgs::default() };
        assert!(matches(rejected(), old()) && !matches(rejected(), young()));
        let older = || SelectArgs { older_than: hour, ..SelectArgs::default() };
        assert!(
            matches(older(), old()) && !matches(older(), young()) && !matches(older(), letter(None, None))
        );
        let newer = || SelectArgs { newer_than: hour, ..SelectArgs::default() };
        assert!(!matches(newer(), old()) && matches(newer(), young()));
    }
}
