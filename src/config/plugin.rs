//! What `[plugins.NAME]` means.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::Value as Json;

use super::problem::Problem;
use super::raw::RawPlugin;
use super::resolve::{Resolver, Text, literal};
use super::table::At;
use super::{Plugin, bounds};

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
        let config: Vec<Option<(String, String)>> =
            raw.config.iter().map(|(key, value)| Some((key.clone(), self.setting(value)?))).collect();
        Some(Plugin {
            name: name?.as_str().to_owned(),
            path: path?,
            timeout: timeout?,
            max_memory: max_memory?,
            config: config.into_iter().collect::<Option<_>>()?,
        })
    }

    /// The plugin's file, if there is one.
    fn plugin_file(&mut self, written: &Text) -> Option<PathBuf> {
        let path = self.base_dir().join(&written.value);
        let shown = written.or_shown(&path.display().to_string());
        let title = match fs::metadata(&path) {
            _ if written.value.is_empty() => "a path cannot be empty".to_owned(),
            Ok(found) if found.is_dir() => format!("{shown} is a folder, not a plugin's file"),
            Ok(_) => return Some(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => format!("{shown} does not exist"),
            Err(error) => format!("cannot look for {shown}: {}", error.kind()),
        };
        let problem = Problem::at(&written.span, title);
        self.report(
            problem.help("`path` names a WebAssembly component, relative to the folder of this file"),
        );
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
