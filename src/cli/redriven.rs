//! What became of events that were to be delivered again, counted.

use serde::Serialize;

use super::output;
use crate::backend::Redriven;

/// Answers of [`crate::backend::Backend::redrive`] and its kin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tally {
    /// Will be delivered again.
    redriven: u64,
    /// Were not there any more.
    gone: u64,
    /// Hold no event that could be delivered.
    no_event: u64,
    /// Are not settled anyway.
    underway: u64,
}

impl Tally {
    pub(super) fn add(&mut self, answers: &[Redriven]) {
        for answer in answers {
            *match answer {
                Redriven::Done => &mut self.redriven,
                Redriven::Gone => &mut self.gone,
                Redriven::NoEvent => &mut self.no_event,
                Redriven::Underway => &mut self.underway,
            } += 1;
        }
    }

    /// In words: what was done, and what was left as it was and why.
    pub(super) fn said(&self) -> String {
        let mut text = format!("{} will be delivered again", output::count(self.redriven, "event"));
        let left = [
            (self.gone, "gone meanwhile"),
            (self.no_event, "no event that could be delivered"),
            (self.underway, "not settled anyway"),
        ];
        for (number, why) in left.into_iter().filter(|(number, _)| *number > 0) {
            text.push_str(&format!(", {number} left as it was ({why})"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_counted() {
        let mut tally = Tally::default();
        tally.add(&[Redriven::Done, Redriven::Gone, Redriven::Done, Redriven::NoEvent, Redriven::Underway]);
        assert_eq!(tally, Tally { redriven: 2, gone: 1, no_event: 1, underway: 1 });
        assert_eq!(
            tally.said(),
            "2 events will be delivered again, 1 left as it was (gone meanwhile), 1 left as it was (no event \
             that could be delivered), 1 left as it was (not settled anyway)"
        );
    }
}
