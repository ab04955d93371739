//! Whether an engine does its work, and if not, what keeps it: in words that hold no secret, since
//! whoever reaches the endpoint may read them. Details are in the log.

use std::time::Duration;

use serde::Serialize;

use super::conditions::{Condition, Conditions, Look, Phase};
use crate::telemetry::short_digest;

/// The answer to "are you ready?".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// All checks passed.
    pub ready: bool,
    /// All checks, those that failed too.
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What: `engine`, `plugins`, `store` or `pipeline`.
    pub check: &'static str,
    /// Which pipeline, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// Whether it passed.
    pub ok: bool,
    /// How it is, in words.
    pub detail: String,
}

impl Conditions {
    /// Looks at everything. Asks nothing of the store: what the pipelines last saw of it counts.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let checks = match self.phase() {
            Phase::LoadingPlugins => vec![failed("plugins", "the plugins are being loaded")],
            Phase::OpeningStore => {
                vec![passed("plugins", "loaded"), failed("store", "it has not answered yet")]
            }
            Phase::Running(stop) => {
                let engine = match stop.is_cancelled() {
                    true => failed("engine", "it stops: running attempts finish, nothing new is taken"),
                    false => passed("engine", "runs"),
                };
                let mut checks = vec![engine, passed("plugins", "loaded"), self.store()];
                checks.extend(self.look().iter().map(|(name, _, look)| pipeline(name, look)));
                checks
            }
        };
        Readiness { ready: checks.iter().all(|check| check.ok), checks }
    }

    fn store(&self) -> Check {
        match self.health.outage() {
            None => passed("store", "answers"),
            Some(outage) => {
                let how = if outage.refuses { "it refuses work" } else { "it does not answer" };
                failed("store", &format!("{how}, for {}", seconds(outage.since.elapsed())))
            }
        }
    }
}

fn pipeline(name: &str, look: &Look) -> Check {
    let held = look.held;
    let (ok, detail) = match (&look.condition, look.stuck) {
        (Condition::Paused(pause), _) => (
            false,
            format!(
                "paused: {} of {} attempts of the plugin `{}` (build {}) ended in a fault",
                pause.faults,
                pause.attempts,
                pause.plugin,
                short_digest(&pause.digest)
            ),
        ),
        (Condition::Stopped, _) => (false, "stopped by itself; the log says why".to_owned()),
        (Condition::Running, Some(quiet)) if held > 0 => {
            (false, format!("stuck: it holds {held} and has settled nothing for {}", seconds(quiet)))
        }
        (Condition::Running, Some(quiet)) => {
            (false, format!("stuck: it has asked the store for nothing for {}", seconds(quiet)))
        }
        (Condition::Running, None) if held > 0 => (true, format!("works: it holds {held}")),
        (Condition::Running, None) => (true, "idle".to_owned()),
    };
    Check { check: "pipeline", pipeline: Some(name.to_owned()), ok, detail }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

fn passed(check: &'static str, detail: &str) -> Check {
    Check { check, pipeline: None, ok: true, detail: detail.to_owned() }
}

fn failed(check: &'static str, detail: &str) -> Check {
    Check { check, pipeline: None, ok: false, detail: detail.to_owned() }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::backend::Error;

    fn failing(conditions: &Conditions) -> Vec<(&'static str, String)> {
        let readiness = conditions.readiness();
        assert_eq!(readiness.ready, readiness.checks.iter().all(|check| check.ok));
        readiness.checks.into_iter().filter(|check| !check.ok).map(|c| (c.check, c.detail)).collect()
    }

    #[test]
    fn an_engine_is_ready_from_its_start_to_its_drain() {
        let conditions = Conditions::default();
        assert_eq!(failing(&conditions), [("plugins", "the plugins are being loaded".to_owned())]);
        conditions.enter(Phase::OpeningStore);
        assert_eq!(failing(&conditions), [("store", "it has not answered yet".to_owned())]);
        let stop = CancellationToken::new();
        conditions.enter(Phase::Running(stop.clone()));
        assert_eq!(failing(&conditions), []);
        stop.cancel();
        assert_eq!(failing(&conditions)[0].0, "engine");
    }

    #[test]
    fn a_store_that_is_away_says_how_and_nothing_of_where() {
        let conditions = Conditions::default();
        conditions.enter(Phase::Running(CancellationToken::new()));
        conditions.health.failed(&Error::Unavailable("redis://:secret@host".to_owned()));
        assert_eq!(failing(&conditions), [("store", "it does not answer, for 0 s".to_owned())]);
        conditions.health.works();
        assert_eq!(failing(&conditions), []);
        conditions.health.failed(&Error::Busy("OOM".to_owned()));
        assert_eq!(failing(&conditions), [("store", "it refuses work, for 0 s".to_owned())]);
    }

    #[test]
    fn only_a_pipeline_that_works_or_is_idle_passes() {
        let look = |condition, held, stuck: Option<u64>| {
            let stuck = stuck.map(Duration::from_secs);
            let check = pipeline("p", &Look { condition, held, stuck });
            (check.ok, check.detail)
        };
        assert_eq!(look(Condition::Running, 0, None), (true, "idle".to_owned()));
        assert_eq!(look(Condition::Running, 3, None), (true, "works: it holds 3".to_owned()));
        assert_eq!(
            look(Condition::Running, 3, Some(61)),
            (false, "stuck: it holds 3 and has settled nothing for 61 s".to_owned())
        );
        assert!(!look(Condition::Running, 0, Some(61)).0);
        assert!(!look(Condition::Stopped, 0, None).0);
    }
}
