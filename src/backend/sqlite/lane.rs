//! The four queues in which a pending entry can stand.
//!
//! Which one follows from what is known when the row is written, so that no one has to move rows
//! when time passes, and each kind of ready entry is found by one step into an index.

use crate::outcome::FailureKind;

/// Where a pending entry stands. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(super) enum Lane {
    /// Under lease; once that ran out, a sweep takes it.
    Leased = 0,
    /// Waiting for its time, then for any claim.
    Parked = 1,
    /// Under lease for the last but one time; running out makes it a suspect.
    LeasedBeforeSuspect = 2,
    /// Waiting, as a suspect: for a claim that takes it alone.
    ParkedSuspect = 3,
}

impl Lane {
    /// The lane of an entry that is leased for its attempt `attempt`.
    pub(super) fn leased(attempt: u32, attempts_max: u32) -> Self {
        if attempt.saturating_add(1) == attempts_max { Self::LeasedBeforeSuspect } else { Self::Leased }
    }

    /// The lane of an entry that waits after `attempt` attempts, the last of which ended by
    /// `failure`.
    pub(super) fn parked(attempt: u32, attempts_max: u32, failure: Option<FailureKind>) -> Self {
        let last_chance = attempt > 0 && attempt.saturating_add(1) == attempts_max;
        if last_chance && failure == Some(FailureKind::Expired) { Self::ParkedSuspect } else { Self::Parked }
    }

    /// The number that is stored.
    pub(super) fn number(self) -> i64 {
        self as i64
    }

    /// Whether the stored number is that of an entry under lease.
    pub(super) fn is_leased(number: i64) -> bool {
        number == Self::Leased.number() || number == Self::LeasedBeforeSuspect.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_expiry_before_the_last_attempt_makes_a_suspect() {
        let expired = Some(FailureKind::Expired);
        assert_eq!(Lane::leased(3, 5), Lane::Leased);
        assert_eq!(Lane::leased(4, 5), Lane::LeasedBeforeSuspect);
        assert_eq!(Lane::leased(5, 5), Lane::Leased);
        assert_eq!(Lane::leased(1, 1), Lane::Leased);
        assert_eq!(Lane::parked(4, 5, expired), Lane::ParkedSuspect);
        assert_eq!(Lane::parked(3, 5, expired), Lane::Parked);
        assert_eq!(Lane::parked(4, 5, Some(FailureKind::Trap)), Lane::Parked);
        assert_eq!(Lane::parked(0, 1, expired), Lane::Parked);
    }
}
