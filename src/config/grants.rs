//! What the grants of `[plugins.NAME]` mean.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use crate::event::Name;
use crate::grants::{DirGrant, Grants, HttpGrant};

use super::problem::{Problem, quoted};
use super::raw::{RawDir, RawPlugin};
use super::resolve::{Resolver, Text, literal};
use super::table::At;
use super::vars;

pub(super) const HTTP_FORM: &str =
    "`allow_http` names hosts, as in `[\"api.example.com\", \"*.example.org:8443\", \"127.0.0.1:9000\"]`";
pub(super) const ENV_FORM: &str =
    "`allow_env` names environment variables of the engine, as in `[\"LANG\", \"API_URL\"]`";
pub(super) const DIRS_FORM: &str = "`allow_dirs` names directories, as in `[\"models\", { path = \"out\", guest = \"/out\", write = true }]`";
pub(super) const STREAMS_FORM: &str = "`allow_streams` names streams, as in `[\"audit\", \"alerts\"]`";
pub(super) const BUCKETS_FORM: &str = "`buckets` gives the plugin's name for a shared bucket and that bucket's name, as in `{ rates = \"fx-rates\" }`";

impl Resolver<'_> {
    /// All that a plugin is granted.
    pub(super) fn grants(&mut self, raw: &RawPlugin) -> Option<Grants> {
        // Every list is looked at before the first one that failed ends it.
        let http = self.each(&raw.allow_http, Self::http_grant);
        let env = self.each(&raw.allow_env, Self::env_grant);
        let dirs = self.dir_grants(&raw.allow_dirs);
        let streams = self.each(&raw.allow_streams, |this, raw| {
            let text = this.text(raw)?;
            this.existing_name(&text)
        });
        let buckets = self.each(&raw.buckets, |this, (name, bucket)| {
            let own = this.new_name(&literal(name));
            let bucket = this.text(bucket).and_then(|text| this.new_name(&text));
            Some((own?.as_str().to_owned(), bucket?))
        });
        let buckets: BTreeMap<String, Name> = buckets?.into_iter().collect();
        Some(Grants { http: http?, env: env?, dirs: dirs?, buckets, streams: streams? })
    }

    fn each<R, T>(
        &mut self,
        raw: &[R],
        mut resolve: impl FnMut(&mut Self, &R) -> Option<T>,
    ) -> Option<Vec<T>> {
        let found: Vec<Option<T>> = raw.iter().map(|raw| resolve(self, raw)).collect();
        found.into_iter().collect()
    }

    fn http_grant(&mut self, raw: &At<String>) -> Option<HttpGrant> {
        let text = self.text(raw)?;
        match HttpGrant::parse(&text.value) {
            Ok(grant) => Some(grant),
            Err(error) => {
                let title = format!("{} names no host", text.shown());
                self.report(Problem::at(&text.span, title).help(error.to_string()));
                None
            }
        }
    }

    /// A variable of the engine's environment, which must be there.
    fn env_grant(&mut self, raw: &At<String>) -> Option<(String, String)> {
        let text = self.text(raw)?;
        let problem = if !vars::is_name(&text.value) {
            let title = format!("{} is not the name of an environment variable", text.shown());
            Problem::at(&text.span, title).help("a name is made of letters, digits and `_`")
        } else if let Some(value) = self.variable(&text.value) {
            return Some((text.value, value));
        } else {
            let title = format!("the environment variable {} is not set", text.or_shown(&text.value));
            Problem::at(&text.span, title).help("set it, or take it out of `allow_env`")
        };
        self.report(problem);
        None
    }

    fn dir_grants(&mut self, raw: &[RawDir]) -> Option<Vec<DirGrant>> {
        let mut places = BTreeMap::new();
        self.each(raw, |this, raw| {
            let (path, guest, writable) = match raw {
                RawDir::Path(path) => (Some(path), None, false),
                RawDir::Table(table) => {
                    (table.path.as_ref(), table.guest.as_ref(), table.write.as_ref().is_some_and(|w| w.value))
                }
            };
            let path = path.and_then(|path| this.text(path));
            let guest = this.optional(guest, Self::text)?;
            let path = path?;
            let place = guest.as_ref().unwrap_or(&path);
            if place.value.is_empty() {
                this.report(Problem::at(&place.span, "a path cannot be empty").help(DIRS_FORM));
                return None;
            }
            if let Some(first) = places.insert(place.value.clone(), place.span.clone()) {
                let problem = Problem::at(&place.span, "two directories have the same place in the plugin");
                this.report(problem.context(&first, "the first one").help("give each its own `guest`"));
                return None;
            }
            Some(DirGrant { host: this.directory(&path)?, guest: place.value.clone(), writable })
        })
    }

    /// A directory that is there.
    fn directory(&mut self, written: &Text) -> Option<PathBuf> {
        let path = self.base_dir().join(&written.value);
        let shown = written.or_shown(&path.display().to_string());
        let title = match fs::metadata(&path) {
            Ok(found) if found.is_dir() => return Some(path),
            Ok(_) => format!("{shown} is not a directory"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => format!("{shown} does not exist"),
            Err(error) => format!("cannot look for {shown}: {}", error.kind()),
        };
        let help = format!(
            "a directory of {} must be there; its path is relative to the folder of this file",
            quoted("allow_dirs")
        );
        self.report(Problem::at(&written.span, title).help(help));
        None
    }
}
