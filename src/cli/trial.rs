//! Runs events through a build without consequences: what it would commit is shown and dropped, and
//! nothing is settled. Shared by `plugin test` and `dead-letter try`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::context::{Context, plugin_host};
use super::exit::Exit;
use super::output;
use crate::backend::Shared;
use crate::config::{self, Config};
use crate::engine::{self, StoreState};
use crate::event::{Event, GroupKey, JsonObject, Name};
use crate::outcome::{Effects, Fault, Outcome};
use crate::plugin::{CallReport, Delivery, Host, Plugin, PluginSpec, StateSource};

/// How a trial is set up.
#[derive(Clone, Debug, Args)]
pub(super) struct TrialArgs {
    /// Give it the settings, limits and grants that the pipeline file has for this plugin
    #[arg(long = "as", value_name = "PLUGIN")]
    like: Option<String>,
    /// Set a value of its config (repeatable), over the file's
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
    /// Let it send HTTP requests where the file grants them: they are real, and cannot be taken back
    #[arg(long)]
    with_http: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a setting is written KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// As whom a build is called.
#[derive(Clone)]
pub(super) struct Role {
    pipeline: String,
    group: String,
    max_attempts: u32,
    spec: PluginSpec,
    state: Option<Arc<dyn StateSource>>,
}

/// What a build answered.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Answer {
    /// ack, retry, reject or fault.
    pub(super) verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The kind of a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<&'static str>,
    /// Milliseconds that it asks to wait before a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay_ms: Option<u64>,
    /// Events that it would append.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) appends: Vec<Append>,
    /// State that it would write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) writes: Vec<Write>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Append {
    stream: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    metadata: JsonObject,
    payload: JsonObject,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Write {
    bucket: String,
    key: String,
    /// Its new value, bytes that are no UTF-8 replaced; none where the key goes.
    value: Option<String>,
}

impl Role {
    /// As the plugin of the pipeline file that `--as` names, else of the pipeline that serves this
    /// group, else with defaults.
    pub(super) fn new(
        context: &Context,
        args: &TrialArgs,
        key: &GroupKey,
        max_attempts: u32,
    ) -> Result<Self, Exit> {
        let config = context.load_if_there()?;
        let pipeline = config.as_ref().and_then(|config| serves(config, key));
        let plugin = match (&args.like, &config) {
            (Some(name), Some(config)) => Some(named(config, name)?),
            (Some(_), None) => return Err(Exit::usage("--as needs a pipeline file: name one with --config")),
            (None, Some(config)) => {
                pipeline.and_then(|pipeline| config.plugins.iter().find(|p| p.name == pipeline.plugin))
            }
            (None, None) => None,
        };
        let mut spec = match (plugin, &config) {
            (Some(plugin), Some(config)) => engine::spec(&config.engine, plugin),
            _ => PluginSpec::new("trial", ""),
        };
        if !args.with_http {
            spec.grants.http.clear();
        }
        // What it would write there could not be taken back.
        spec.grants.dirs.iter_mut().for_each(|dir| dir.writable = false);
        for (key, value) in &args.settings {
            set(&mut spec, key, value);
        }
        let group = key.group.to_string();
        Ok(Self {
            pipeline: pipeline.map_or_else(|| group.clone(), |pipeline| pipeline.name.to_string()),
            group,
            max_attempts,
            spec,
            state: None,
        })
    }

    /// With the state that a store holds.
    pub(super) fn with_store(mut self, store: Shared) -> Self {
        self.state = Some(Arc::new(StoreState(store)));
        self
    }

    /// With other state, for an attempt that may be beyond the others.
    pub(super) fn with_state(&self, state: Arc<dyn StateSource>, attempt: u32) -> Self {
        Self { state: Some(state), max_attempts: self.max_attempts.max(attempt), ..self.clone() }
    }

    /// With these settings over its own, and grants to append to these streams besides.
    pub(super) fn with_setting(&self, config: &BTreeMap<String, String>, streams: &[Name]) -> Self {
        let mut role = self.clone();
        config.iter().for_each(|(key, value)| set(&mut role.spec, key, value));
        role.spec.grants.streams.extend_from_slice(streams);
        role
    }

    /// The pipeline that it plays: its own buckets are this one's.
    pub(super) fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// Loads a build to be called in this role.
    pub(super) async fn load(&self, host: &Arc<Host>, path: &Path) -> Result<Arc<Plugin>, Exit> {
        let spec = PluginSpec { path: path.to_owned(), ..self.spec.clone() };
        host.load(&spec).await.map_err(|error| Exit::Usage(error.into()))
    }

    /// Calls a build with an event.
    pub(super) async fn ask(&self, plugin: &Plugin, event: &Event, attempt: u32) -> (Answer, CallReport) {
        let delivery = Delivery {
            pipeline: &self.pipeline,
            group: &self.group,
            attempt,
            max_attempts: self.max_attempts,
            state: self.state.clone(),
        };
        let (result, report) = plugin.handle_reported(event, &delivery).await;
        (answer(result), report)
    }
}

fn set(spec: &mut PluginSpec, key: &str, value: &str) {
    spec.config.retain(|(known, _)| known != key);
    spec.config.push((key.to_owned(), value.to_owned()));
}

fn serves<'c>(config: &'c Config, key: &GroupKey) -> Option<&'c config::Pipeline> {
    config.pipelines.iter().find(|p| p.stream == key.stream && p.group == key.group)
}

fn named<'c>(config: &'c Config, name: &str) -> Result<&'c config::Plugin, Exit> {
    let found = config.plugins.iter().find(|plugin| plugin.name == name);
    found.ok_or_else(|| Exit::usage(format!("--as: the pipeline file has no plugin `{name}`")))
}

fn answer(result: Result<Outcome, Fault>) -> Answer {
    let plain = Answer::ack();
    match result {
        Ok(Outcome::Ack(effects)) => with_effects(plain, effects),
        Ok(Outcome::Retry { reason, delay }) => {
            let delay_ms = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
            Answer { verdict: "retry", reason: Some(reason), delay_ms, ..plain }
        }
        Ok(Outcome::Reject { reason }) => Answer { verdict: "reject", reason: Some(reason), ..plain },
        // Only the engine counts hops.
        Ok(Outcome::TooManyHops { .. }) => plain,
        Err(fault) => {
            let kind = Some(fault.kind.as_str());
            Answer { verdict: "fault", reason: Some(fault.message), fault: kind, ..plain }
        }
    }
}

fn with_effects(plain: Answer, effects: Effects) -> Answer {
    let appends = effects.appends.into_iter().map(|staged| Append {
        stream: staged.stream.to_string(),
        event_type: staged.event.event_type,
        key: staged.event.key,
        partition: staged.event.partition,
        metadata: staged.event.metadata,
        payload: staged.event.payload,
    });
    let writes = effects.writes.into_iter().map(|write| Write {
        bucket: write.bucket.to_string(),
        key: write.key,
        value: write.value.map(|value| String::from_utf8_lossy(&value).into_owned()),
    });
    Answer { appends: appends.collect(), writes: writes.collect(), ..plain }
}

impl Answer {
    /// An ack that changes nothing.
    pub(super) fn ack() -> Self {
        let (appends, writes) = (Vec::new(), Vec::new());
        Self { verdict: "ack", reason: None, fault: None, delay_ms: None, appends, writes }
    }

    /// What it would commit: what kind, and what it is.
    pub(super) fn effects(&self) -> Vec<(&'static str, String)> {
        let mut effects = Vec::new();
        for append in &self.appends {
            let text = |name: &str, text: &Option<String>| {
                text.as_ref().map_or(String::new(), |text| format!(" {name} {text}"))
            };
            let (event_type, key) = (text("type", &append.event_type), text("key", &append.key));
            effects
                .push(("append", format!("{}{event_type}{key} {}", append.stream, append.payload.as_str())));
        }
        for write in &self.writes {
            let value = write.value.as_ref().map_or("removed".to_owned(), |value| format!("= {value}"));
            effects.push(("write", format!("{} {} {value}", write.bucket, write.key)));
        }
        effects
    }

    /// In one line.
    pub(super) fn brief(&self) -> String {
        let mut text = self.fault.map_or_else(|| self.verdict.to_owned(), |kind| format!("fault ({kind})"));
        if let Some(delay_ms) = self.delay_ms {
            text.push_str(&format!(" after {delay_ms} ms"));
        }
        if let Some(reason) = self.reason.as_deref().and_then(|reason| reason.lines().next()) {
            text.push_str(": ");
            text.push_str(reason);
        }
        let effects = [(self.appends.len(), "event"), (self.writes.len(), "write")];
        let effects: Vec<String> = effects
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, thing)| output::count(*count as u64, thing))
            .collect();
        if !effects.is_empty() {
            text.push_str(&format!(" ({})", effects.join(", ")));
        }
        text
    }
}

/// The builds of a trial.
pub(super) struct Builds {
    pub(super) new: Arc<Plugin>,
    pub(super) old: Option<Arc<Plugin>>,
}

impl Builds {
    pub(super) async fn load(role: &Role, new: &Path, old: Option<&PathBuf>) -> Result<Self, Exit> {
        Self::load_on(&plugin_host()?, role, new, old).await
    }

    pub(super) async fn load_on(
        host: &Arc<Host>,
        role: &Role,
        new: &Path,
        old: Option<&PathBuf>,
    ) -> Result<Self, Exit> {
        let new = role.load(host, new).await?;
        let old = match old {
            Some(path) => Some(role.load(host, path).await?),
            None => None,
        };
        Ok(Self { new, old })
    }
}
