//! What a test expects of an answer, and where the answer differs.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::trial::Answer;
use crate::plugin::GuestLine;
use crate::state::Bucket;

/// An answer's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Ack,
    Retry,
    Reject,
    Fault,
}

impl Verdict {
    pub(super) const ALL: [Self; 4] = [Self::Ack, Self::Retry, Self::Reject, Self::Fault];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Retry => "retry",
            Self::Reject => "reject",
            Self::Fault => "fault",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is expected; what is not named may be anything, but a fault has to be expected by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Expectation {
    pub(super) verdict: Option<Verdict>,
    /// Text that the reason must contain.
    pub(super) reason: Option<String>,
    pub(super) delay_ms: Option<u64>,
    /// Lines that must be among those logged.
    pub(super) logs: Vec<String>,
    /// All events that it appends, in their order; of each, what is named here must be as it is.
    pub(super) appends: Option<Vec<Value>>,
    /// The same for the state that it writes.
    pub(super) writes: Option<Vec<Value>>,
}

impl Expectation {
    /// Names the buckets of expected writes as the store does, where they are a pipeline's own.
    pub(super) fn of_pipeline(&mut self, pipeline: &str) {
        for write in self.writes.iter_mut().flatten() {
            if let Some(Value::String(bucket)) = write.get_mut("bucket")
                && let Ok(own) = Bucket::own(pipeline, bucket)
            {
                *bucket = own.to_string();
            }
        }
    }

    /// Where an answer is not as expected, one line a difference.
    pub(super) fn differences(&self, answer: &Answer, lines: &[GuestLine]) -> Vec<String> {
        let mut found = Vec::new();
        match self.verdict {
            Some(expected) if expected.as_str() != answer.verdict => {
                found.push(format!("expected {expected}, but the answer is {}", answer.verdict));
            }
            None if answer.verdict == Verdict::Fault.as_str() => {
                found.push("no fault was expected".to_owned())
            }
            _ => {}
        }
        let reason = answer.reason.as_deref().unwrap_or_default();
        if let Some(expected) = self.reason.as_deref().filter(|expected| !reason.contains(expected)) {
            found.push(format!("expected a reason with {expected:?}, but it is {reason:?}"));
        }
        if self.delay_ms.is_some() && self.delay_ms != answer.delay_ms {
            let ms = |delay: Option<u64>| delay.map_or("none".to_owned(), |ms| format!("{ms} ms"));
            found.push(format!(
                "expected a delay of {}, but it is {}",
                ms(self.delay_ms),
                ms(answer.delay_ms)
            ));
        }
        for expected in &self.logs {
            if !lines.iter().any(|line| line.text == *expected) {
                found.push(format!("expected the log line {expected:?}, which is not there"));
            }
        }
        let as_values = |list: serde_json::Result<Value>| match list {
            Ok(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        if let Some(expected) = &self.appends {
            let appends = as_values(serde_json::to_value(&answer.appends));
            found.extend(list_difference("appends", expected, &appends));
        }
        if let Some(expected) = &self.writes {
            let writes = as_values(serde_json::to_value(&answer.writes));
            found.extend(list_difference("writes", expected, &writes));
        }
        found
    }
}

fn list_difference(what: &str, expected: &[Value], found: &[Value]) -> Option<String> {
    let same = expected.len() == found.len() && expected.iter().zip(found).all(|(e, f)| agrees(e, f));
    let text = |list: &[Value]| Value::from(list.to_vec()).to_string();
    (!same).then(|| format!("expected {what} {}, but they are {}", text(expected), text(found)))
}

/// Whether everything that is expected is found so; objects at the top may have more.
fn agrees(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().all(|(key, value)| found.get(key).unwrap_or(&Value::Null) == value)
        }
        _ => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tracing::Level;

    use super::*;

    fn answer(verdict: &'static str, reason: Option<&str>) -> Answer {
        Answer { verdict, reason: reason.map(str::to_owned), ..Answer::ack() }
    }

    #[test]
    fn nothing_expected_is_met_by_anything_but_a_fault() {
        let none = Expectation::default();
        assert_eq!(none.differences(&answer("reject", Some("x")), &[]), [""; 0]);
        assert_eq!(none.differences(&answer("fault", Some("x")), &[]), ["no fault was expected"]);
        let fault = Expectation { verdict: Some(Verdict::Fault), ..Expectation::default() };
        assert_eq!(fault.differences(&answer("fault", Some("x")), &[]), [""; 0]);
    }

    #[test]
    fn each_difference_is_named() {
        let expected = Expectation {
            verdict: Some(Verdict::Retry),
            reason: Some("not now".to_owned()),
            delay_ms: Some(5),
            logs: vec!["hello".to_owned()],
            appends: Some(vec![json!({ "stream": "s" })]),
            writes: Some(vec![]),
        };
        let found = expected.differences(&answer("reject", Some("never")), &[]);
        assert_eq!(
            found,
            [
                "expected retry, but the answer is reject",
                "expected a reason with \"not now\", but it is \"never\"",
                "expected a delay of 5 ms, but it is none",
                "expected the log line \"hello\", which is not there",
                "expected appends [{\"stream\":\"s\"}], but they are []",
            ]
        );
        let mut met = answer("retry", Some("it is not now"));
        met.delay_ms = Some(5);
        let lines = [GuestLine { level: Level::INFO, text: "hello".to_owned() }];
        let expected = Expectation { appends: None, ..expected };
        assert_eq!(expected.differences(&met, &lines), [""; 0]);
    }

    #[test]
    fn what_is_not_named_of_an_effect_may_be_anything() {
        let found = json!({ "stream": "s", "metadata": {}, "payload": { "a": 1, "b": 2 } });
        assert!(agrees(&json!({ "stream": "s" }), &found));
        assert!(agrees(&json!({ "type": null }), &found), "what is absent is null");
        assert!(agrees(&json!({ "payload": { "b": 2, "a": 1 } }), &found));
        assert!(!agrees(&json!({ "payload": { "a": 1 } }), &found));
        assert!(!agrees(&json!({ "key": "k" }), &found));
    }
}
