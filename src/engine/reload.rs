//! Carries over to a running engine what has changed in its pipeline file and its plugins.
//!
//! All that can go wrong comes first: the file is read, new builds are compiled and tried, streams
//! and groups are made ready. Only then is anything changed; until then the engine runs as it did.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::assemble::{AssembleError, Build, Plugins, assemble, outputs, spec};
use super::fleet::Remote;
use super::handler::Slot;
use super::pipeline::Pipeline;
use super::prepare::prepare_outputs;
use super::watch::Mark;
use crate::backend::Shared;
use crate::config::{self, Config, ConfigError};
use crate::event::Name;
use crate::metrics::Metrics;
use crate::telemetry;

/// Reads the pipeline file.
pub type ReadConfig = Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// What an engine runs, and how it is brought up to date.
pub struct Reloader {
    backend: Shared,
    remote: Remote,
    file: PathBuf,
    read: ReadConfig,
    config: Config,
    plugins: Plugins,
    /// The files as they were before they were read last.
    seen: BTreeMap<PathBuf, Mark>,
    /// What was complained of last, by what it is about: each complaint is said once.
    complaints: BTreeMap<String, String>,
    /// Something could not be carried over since the reload began.
    refused: bool,
    metrics: Arc<Metrics>,
}

/// A change that is known to be possible.
#[derive(Default)]
struct Plan {
    config: Option<Config>,
    builds: Vec<Build>,
    /// Names of pipelines that end, some of them to start again.
    stop: Vec<Arc<str>>,
    start: Vec<Pipeline>,
}

impl Plan {
    /// The slot of a plugin that is new.
    fn slot(&self, plugin: &str) -> Option<Arc<Slot>> {
        let build = self.builds.iter().find(|build| build.spec.name == plugin)?;
        Some(Arc::clone(&build.slot))
    }
}

impl Reloader {
    /// For an engine that was started with this file and these plugins; `mark` is the file as it was
    /// before it was read.
    #[must_use]
    pub fn new(
        backend: Shared,
        remote: Remote,
        (file, mark, read): (PathBuf, Mark, ReadConfig),
        config: Config,
        plugins: Plugins,
        metrics: Arc<Metrics>,
    ) -> Self {
        let plugins_seen = plugins.loaded.values().map(|known| (known.spec.path.clone(), known.mark.clone()));
        let seen = std::iter::once((file.clone(), mark)).chain(plugins_seen).collect();
        let complaints = BTreeMap::new();
        Self { backend, remote, file, read, config, plugins, seen, complaints, refused: false, metrics }
    }

    /// The files whose change makes a reload worth its while, as they were when they were read.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, Mark)> {
        self.seen.iter().map(|(path, mark)| (path.clone(), mark.clone())).collect()
    }

    /// Brings the engine up to date with the files. What cannot be carried over is said once, and
    /// what ran goes on. Answers whether anything was changed.
    pub async fn reload(&mut self) -> bool {
        self.refused = false;
        let changed = self.carry_over().await;
        if changed {
            self.metrics.reloaded();
        }
        if self.refused {
            self.metrics.reload_refused();
        }
        changed
    }

    async fn carry_over(&mut self) -> bool {
        let wanted = self.wanted();
        let readable = wanted.is_some();
        // Without a file that can be carried over, builds are looked at all the same.
        let Some(plan) = self.plan(wanted.unwrap_or_else(|| self.config.clone())).await else { return false };
        if readable {
            self.complaints.remove("file");
        }
        self.apply(plan).await
    }

    /// The file as it should be carried over; `None` where it cannot be.
    fn wanted(&mut self) -> Option<Config> {
        self.seen.insert(self.file.clone(), Mark::of(&self.file));
        let wanted = match (self.read)() {
            Ok(wanted) => wanted,
            Err(error) => {
                self.complain("file", error.to_string());
                return None;
            }
        };
        if let Some(table) = fixed(&self.config, &wanted) {
            self.complain(
                "file",
                format!("`{table}` cannot change while the engine runs: start it again, or change it back"),
            );
            return None;
        }
        Some(wanted)
    }

    /// Lets pipelines go on that paused because their plugins faulted too often.
    pub async fn resume(&self) {
        self.remote.resume().await;
    }

    async fn plan(&mut self, wanted: Config) -> Option<Plan> {
        let mut plan = Plan::default();
        for plugin in &wanted.plugins {
            if !self.plan_plugin(&wanted.engine, plugin, &mut plan).await {
                return None;
            }
        }
        if let Err(error) = self.plan_pipelines(&wanted, &mut plan).await {
            self.complain("file", format!("{error}; nothing was changed"));
            return None;
        }
        if wanted != self.config {
            plan.config = Some(wanted);
        }
        Some(plan)
    }

    async fn plan_pipelines(&self, wanted: &Config, plan: &mut Plan) -> Result<(), AssembleError> {
        let known =
            |config: &Config, name: &Name| config.pipelines.iter().any(|pipeline| pipeline.name == *name);
        let changed = changed(&self.config, wanted);
        for pipeline in wanted.pipelines.iter().filter(|pipeline| changed(pipeline)) {
            // The file was validated: each pipeline's plugin is in it, and has a slot by now.
            let slot = self.plugins.slot(&pipeline.plugin).or_else(|| plan.slot(&pipeline.plugin));
            let Some(slot) = slot else { continue };
            plan.start.push(assemble(self.backend.as_ref(), wanted, pipeline, slot).await?);
            if known(&self.config, &pipeline.name) {
                plan.stop.push(pipeline.name.as_str().into());
            }
        }
        self.prepare_new_outputs(wanted).await?;
        for old in self.config.pipelines.iter().filter(|old| !known(wanted, &old.name)) {
            plan.stop.push(old.name.as_str().into());
        }
        Ok(())
    }

    /// Makes the streams ready that plugins may append to only since this file, for pipelines that go
    /// on as they are.
    async fn prepare_new_outputs(&self, wanted: &Config) -> Result<(), AssembleError> {
        let granted = |config: &Config, name: &str| {
            let plugin = config.plugins.iter().find(|plugin| plugin.name == name);
            plugin.map(|plugin| outputs(config, plugin)).unwrap_or_default()
        };
        for pipeline in &wanted.pipelines {
            let outputs = granted(wanted, &pipeline.plugin);
            if outputs != granted(&self.config, &pipeline.plugin) {
                let failed = |error| AssembleError { pipeline: pipeline.name.to_string(), error };
                prepare_outputs(self.backend.as_ref(), &outputs).await.map_err(failed)?;
                if let Some(slot) = self.plugins.slot(&pipeline.plugin) {
                    slot.set_outputs(outputs);
                }
            }
        }
        Ok(())
    }

    /// Loads a plugin's build where its file or its settings have changed. False where the whole file
    /// cannot be carried over without it.
    async fn plan_plugin(
        &mut self,
        engine: &config::Engine,
        plugin: &config::Plugin,
        plan: &mut Plan,
    ) -> bool {
        let spec = spec(engine, plugin);
        let mark = Mark::of(&spec.path);
        self.seen.insert(spec.path.clone(), mark.clone());
        let known = self.plugins.loaded.get_mut(&spec.name);
        if known.as_ref().is_some_and(|known| known.spec == spec && known.mark == mark) {
            return true;
        }
        match self.plugins.host.load(&spec).await {
            Ok(build) => {
                self.complaints.remove(&format!("plugin {}", spec.name));
                match self.plugins.loaded.get_mut(&spec.name) {
                    // Written again, but the same.
                    Some(known) if known.spec == spec && known.digest == *build.digest() => known.mark = mark,
                    _ => plan.builds.push(Build::new(spec, mark, build)),
                }
                true
            }
            Err(error) => {
                // The old build stays. Settings that no build was tried with are another matter.
                let stays = known.is_some_and(|known| known.spec == spec);
                let text = match stays {
                    true => format!("{error}; the build before it goes on"),
                    false => error.to_string(),
                };
                self.complain(&format!("plugin {}", spec.name), text);
                stays
            }
        }
    }

    async fn apply(&mut self, plan: Plan) -> bool {
        let any = !plan.builds.is_empty() || plan.config.is_some();
        for build in plan.builds {
            let before = self.plugins.loaded.get(&build.spec.name).map(|known| &*known.digest);
            telemetry::plugin_reloaded(&build.spec.name, before, build.plugin.digest());
            self.plugins.put(build);
        }
        // All at once: each may take as long as a drain may.
        let mut stops = JoinSet::new();
        for name in &plan.stop {
            let (name, remote) = (Arc::clone(name), self.remote.clone());
            stops.spawn(async move { remote.stop(&name).await });
        }
        stops.join_all().await;
        let started: Vec<Arc<str>> = plan.start.iter().map(|pipeline| Arc::clone(&pipeline.name)).collect();
        for pipeline in plan.start {
            self.remote.start(pipeline).await;
        }
        telemetry::pipelines_reloaded(&plan.stop, &started);
        if let Some(config) = plan.config {
            self.plugins.loaded.retain(|name, _| config.plugins.iter().any(|plugin| plugin.name == *name));
            let file = &self.file;
            self.seen
                .retain(|path, _| path == file || config.plugins.iter().any(|plugin| plugin.path == *path));
            self.config = config;
        }
        any
    }

    /// Says what is wrong, unless that was the last thing said about it.
    fn complain(&mut self, about: &str, text: String) {
        self.refused = true;
        if self.complaints.get(about) != Some(&text) {
            telemetry::reload_refused(&text);
            self.complaints.insert(about.to_owned(), text);
        }
    }
}

/// The first table that differs and cannot be carried over.
fn fixed(old: &Config, new: &Config) -> Option<&'static str> {
    if old.backend != new.backend {
        return Some("[backend]");
    }
    if old.http != new.http {
        return Some("[http]");
    }
    (old.engine != new.engine).then_some("[engine]")
}

/// Whether a pipeline of the new file differs from what runs.
fn changed<'a>(old: &'a Config, new: &'a Config) -> impl Fn(&config::Pipeline) -> bool + use<'a> {
    |pipeline| {
        let named = |stream: &&config::Stream| stream.name == pipeline.stream;
        let stream = |config: &Config| config.streams.iter().find(named).cloned();
        !old.pipelines.iter().any(|known| known == pipeline) || stream(old) != stream(new)
    }
}
