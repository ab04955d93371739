//! What `check` wants to know of a server.

use std::collections::HashMap;
use std::time::Duration;

use super::Redis;
use super::connection::Effect;
use super::reply::{Answers, pairs, text_or_empty};
use crate::backend::Result;

/// A server's state as far as it decides whether events are safe there. What the server does not
/// tell (an ACL may forbid it) is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerReport {
    /// The version of Redis that it is, or that it claims to be like.
    pub version: Option<String>,
    /// What happens when memory is full, as in `maxmemory-policy`.
    pub eviction_policy: Option<String>,
    /// What outlives a restart.
    pub persistence: Option<Persistence>,
    /// Whether it only follows another server.
    pub is_replica: Option<bool>,
}

/// What of the data outlives a restart of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    None,
    /// Snapshots: the last minutes can be lost.
    Snapshots,
    /// A log of writes: at most the last second is lost, or nothing, as configured.
    Log,
}

impl ServerReport {
    /// Whether the version is 6.2 or later; `None` where it is unknown.
    #[must_use]
    pub fn is_supported(&self) -> Option<bool> {
        let mut parts = self.version.as_deref()?.split('.').map(|part| part.parse::<u32>().ok());
        Some((parts.next()??, parts.next().flatten().unwrap_or(0)) >= (6, 2))
    }

    /// Whether a full memory makes it delete whole streams without a word; `None` where it is unknown.
    #[must_use]
    pub fn evicts_streams(&self) -> Option<bool> {
        Some(self.eviction_policy.as_deref()?.starts_with("allkeys-"))
    }
}

impl Redis {
    /// Asks the server for what decides whether events are safe with it.
    ///
    /// # Errors
    /// Those of the store; that the server refuses a question is none.
    pub async fn server_report(&self) -> Result<ServerReport> {
        let mut pipe = redis::pipe();
        pipe.cmd("INFO");
        pipe.cmd("CONFIG").arg("GET").arg("save");
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let info = answers.next().ok().map(text_or_empty).transpose()?.unwrap_or_default();
        let config = answers.next().ok().map(pairs).transpose()?.unwrap_or_default();
        let save = config.iter().find(|(name, _)| name == b"save").map(|(_, value)| !value.is_empty());
        Ok(report(&info, save))
    }

    /// The time that the server has spent on the processor since it started: that of the thread which
    /// runs commands, where it says so, else of the whole process. `None` where it does not tell.
    ///
    /// # Errors
    /// Those of the store; that the server refuses the question is none.
    pub async fn processor_time(&self) -> Result<Option<Duration>> {
        let mut pipe = redis::pipe();
        pipe.cmd("INFO").arg("cpu");
        let mut answers = Answers::new(self.connection.pipeline(&pipe, Effect::None).await?);
        let info = answers.next().ok().map(text_or_empty).transpose()?.unwrap_or_default();
        Ok(processor_time(&info))
    }
}

fn processor_time(info: &str) -> Option<Duration> {
    let seconds = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse::<f64>().ok()
    };
    let sum =
        |of: &str| Some(seconds(&format!("used_cpu_sys{of}"))? + seconds(&format!("used_cpu_user{of}"))?);
    Duration::try_from_secs_f64(sum("_main_thread").or_else(|| sum(""))?).ok()
}

/// `saves`: whether snapshots are configured, where it is known.
fn report(info: &str, saves: Option<bool>) -> ServerReport {
    let facts: HashMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let fact = |name: &str| facts.get(name).copied();
    let persistence = match (fact("aof_enabled"), saves) {
        (Some("1"), _) => Some(Persistence::Log),
        (Some(_), Some(true)) => Some(Persistence::Snapshots),
        (Some(_), Some(false)) => Some(Persistence::None),
        _ => None,
    };
    ServerReport {
        version: fact("redis_version").map(str::to_owned),
        eviction_policy: fact("maxmemory_policy").map(str::to_owned),
        persistence,
        is_replica: fact("role").map(|role| role != "master"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_info_says() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\naof_enabled:0\r\n\
                    maxmemory_policy:allkeys-lru\r\n";
        let known = report(info, Some(false));
        assert_eq!(known.persistence, Some(Persistence::None));
        assert_eq!(known.is_replica, Some(false));
        assert_eq!((known.is_supported(), known.evicts_streams()), (Some(true), Some(true)));
        assert_eq!(report(info, None).persistence, None);
        let unknown = report("", None);
        assert_eq!(unknown, ServerReport::default());
        assert_eq!(unknown.is_supported(), None);
    }

    #[test]
    fn the_thread_that_runs_commands_counts_where_it_is_told() {
        let old = "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.0\r\n";
        assert_eq!(processor_time(old), Some(Duration::from_millis(3500)));
        let new = format!("{old}used_cpu_sys_main_thread:0.25\r\nused_cpu_user_main_thread:0.5\r\n");
        assert_eq!(processor_time(&new), Some(Duration::from_millis(750)));
        assert_eq!(processor_time(""), None);
    }

    #[test]
    fn versions() {
        for (version, expected) in [("6.2.0", true), ("6.0.16", false), ("10.1", true), ("5.0.7", false)] {
            let report = ServerReport { version: Some(version.to_owned()), ..ServerReport::default() };
            assert_eq!(report.is_supported(), Some(expected), "{version}");
        }
    }
}
