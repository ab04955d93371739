//! What `[plugins.NAME]` means.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value as Json;

use super::problem::Problem;
use super::raw::RawPlugin;
use super::resolve::{Resolver, Text, literal};
use super::table::At;
use super::{Plugin, PluginEffects, bounds};

impl Resolver<'_> {
    pub(super) fn plugins(&mut self, raw: &[(At<String>, RawPlugin)]) -> Option<Vec<Plugin>> {
        let plugins: Vec<Option<Plugin>> = raw.iter().map(|(name, raw)| self.plugin(name, raw)).collect();
        plugins.into_iter().collect()
    }

    fn plugin(&mut self, name: &At<String>, raw: &RawPlugin) -> Option<Plugin> {
        let name = self.new_name(&literal(name));
        let path =
            raw.path.as_ref().and_then(|path| self.text(path)).and_then(|path| self.plugin_file(&path));
        let timeout =
            self.duration("timeout", raw.timeout.as_ref(), &bounds::TIMEOUT, bounds::TIMEOUT_DEFAULT);
        let max_memory = self.size(
            "max_memory",
            raw.max_memory.as_ref(),
            &bounds::MAX_MEMORY_BYTES,
            bounds::MAX_MEMORY_BYTES_DEFAULT,
        );
        let limits = self.effect_limits(raw);
        let max_cpu = self.optional(raw.max_cpu.as_ref(), |this, raw| {
            this.duration("max_cpu", Some(raw), &bounds::MAX_CPU, Duration::ZERO)
        });
        let max_instances = self.integer(
            "max_instances",
            raw.max_instances.as_ref(),
            &bounds::MAX_INSTANCES,
            bounds::MAX_INSTANCES_DEFAULT,
        );
        let max_calls =
            self.integer("max_calls", raw.max_calls.as_ref(), &bounds::MAX_CALLS, bounds::MAX_CALLS_DEFAULT);
        let max_log_lines = self.integer(
            "max_log_lines",
            raw.max_log_lines.as_ref(),
            &bounds::MAX_LOG_LINES,
            bounds::MAX_LOG_LINES_DEFAULT,
        );
        let grants = self.grants(raw);
        let config: Vec<Option<(String, String)>> =
            raw.config.iter().map(|(key, value)| Some((key.clone(), self.setting(value)?))).collect();
        Some(Plugin {
            name: name?.as_str().to_owned(),
            path: path?,
            timeout: timeout?,
            max_memory: max_memory?,
            max_cpu: max_cpu?,
            max_instances: max_instances?,
            max_calls: max_calls?,
            max_log_lines: max_log_lines?,
            effects: limits?,
            grants: grants?,
            config: config.into_iter().collect::<Option<_>>()?,
        })
    }

    /// What a call may stage.
    fn effect_limits(&mut self, raw: &RawPlugin) -> Option<PluginEffects> {
        let max_outbox = self.size(
            "max_outbox",
            raw.max_outbox.as_ref(),
            &bounds::MAX_OUTBOX_BYTES,
            bounds::MAX_OUTBOX_BYTES_DEFAULT,
        );
        let max_outbox_events = self.integer(
            "max_outbox_events",
            raw.max_outbox_events.as_ref(),
            &bounds::MAX_OUTBOX_EVENTS,
            bounds::MAX_OUTBOX_EVENTS_DEFAULT,
        );
        let max_state = self.size(
            "max_state",
            raw.max_state.as_ref(),
            &bounds::MAX_STATE_BYTES,
            bounds::MAX_STATE_BYTES_DEFAULT,
        );
        let max_state_keys = self.integer(
            "max_state_keys",
            raw.max_state_keys.as_ref(),
            &bounds::MAX_STATE_KEYS,
            bounds::MAX_STATE_KEYS_DEFAULT,
        );
        Some(PluginEffects {
            max_outbox: max_outbox?,
            max_outbox_events: max_outbox_events?,
            max_state: max_state?,
            max_state_keys: max_state_keys?,
        })
    }

    /// The plugin's file, if there is one.
    fn plugin_file(&mut self, written: &Text) -> Option<PathBuf> {
        let help = "`path` names a WebAssembly component, relative to the folder of this file";
        self.file(written, "a plugin's file", help)
    }

    /// A file that must be there, relative to the folder of the pipeline file.
    pub(super) fn file(&mut self, written: &Text, what: &str, help: &str) -> Option<PathBuf> {
        let path = self.base_dir().join(&written.value);
        let shown = written.or_shown(&path.display().to_string());
        let title = match fs::metadata(&path) {
            _ if written.value.is_empty() => "a path cannot be empty".to_owned(),
            Ok(found) if found.is_dir() => format!("{shown} is a folder, not {what}"),
            Ok(_) => return Some(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => format!("{shown} does not exist"),
            Err(error) => format!("cannot look for {shown}: {}", error.kind()),
        };
        self.report(Problem::at(&written.span, title).help(help));
        None
    }

    /// One value of a plugin's `config` as the plugin will read it.
    fn setting(&mut self, raw: &At<Json>) -> Option<String> {
        let value = self.expand_json(&raw.value, raw)?;
        match value {
            Json::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }

    /// Fills in the variables of every string in a value, keys excepted.
    fn expand_json(&mut self, value: &Json, whole: &At<Json>) -> Option<Json> {
        match value {
            Json::String(text) => self.expand(text, &whole.span).map(|(text, _)| Json::String(text)),
            Json::Array(items) => {
                let items: Vec<Option<Json>> =
                    items.iter().map(|item| self.expand_json(item, whole)).collect();
                items.into_iter().collect::<Option<_>>().map(Json::Array)
            }
            Json::Object(entries) => {
                let entries: Vec<Option<(String, Json)>> = entries
                    .iter()
                    .map(|(key, value)| Some((key.clone(), self.expand_json(value, whole)?)))
                    .collect();
                entries.into_iter().collect::<Option<_>>().map(Json::Object)
            }
            other => Some(other.clone()),
        }
    }
}
