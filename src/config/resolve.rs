//! What the values of a pipeline file mean: variables, durations, sizes, names, ranges; and the
//! tables that concern the store.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::time::Duration;

use crate::event::{EVENT_BYTES_MAX_DEFAULT, NAME_BYTES_MAX, Name, NameError};
use crate::target::{Target, TargetError};

use super::problem::{Problem, list, nearest, quoted};
use super::raw::{RawBackend, RawConfig, RawEngine, RawStream};
use super::table::At;
use super::vars::{self, VarError, VarErrorKind};
use super::{Backend, Config, Engine, Store, Stream, Synchronous, bounds, units};

/// What a name that we may create looks like.
const NAME_FORM: &str = "a name is made of up to 128 letters, digits, `.`, `_` and `-`";

/// Goes through a raw file. A method that answers `None` has reported the problem.
pub(super) struct Resolver<'a> {
    source: &'a str,
    base_dir: &'a Path,
    env: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<Problem>,
}

/// A string of the file with its variables filled in.
pub(super) struct Text {
    /// What is meant; possibly a secret.
    pub(super) value: String,
    /// What is written.
    source: String,
    /// Whether a variable is a part of it.
    from_variable: bool,
    /// Where it stands, in bytes.
    pub(super) span: Range<usize>,
}

impl Text {
    /// The text as messages may show it: never what a variable holds.
    pub(super) fn shown(&self) -> String {
        let written = quoted(&self.source);
        if self.from_variable { format!("the value of {written}") } else { written }
    }

    /// What a message may show of something made from this text.
    pub(super) fn or_shown(&self, made: &str) -> String {
        if self.from_variable { self.shown() } else { quoted(made) }
    }
}

impl<'a> Resolver<'a> {
    pub(super) fn new(
        source: &'a str,
        base_dir: &'a Path,
        env: &'a dyn Fn(&str) -> Option<String>,
        problems: Vec<Problem>,
    ) -> Self {
        Self { source, base_dir, env, problems }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn base_dir(&self) -> &'a Path {
        self.base_dir
    }

    /// The value of an environment variable.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    pub(super) fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The whole file.
    pub(super) fn config(&mut self, raw: &RawConfig) -> Option<Config> {
        // Every part is looked at before the first one that failed ends it.
        let store = self.store(raw);
        let plugins = self.plugins(&raw.plugins);
        let http = self.http(&raw.http);
        let pipelines = self.pipelines(raw);
        let Store { backend, streams, engine } = store?;
        Some(Config { backend, plugins: plugins?, streams, engine, http: http?, pipelines: pipelines? })
    }

    /// What concerns the store.
    pub(super) fn store(&mut self, raw: &RawConfig) -> Option<Store> {
        let backend = self.backend(&raw.backend);
        let streams = self.streams(&raw.streams);
        let engine = self.engine(&raw.engine);
        Some(Store { backend: backend?, streams: streams?, engine: engine? })
    }

    fn backend(&mut self, raw: &RawBackend) -> Option<Backend> {
        let target = self.optional(raw.url.as_ref(), Self::target);
        let namespace = self.optional(raw.namespace.as_ref(), Self::namespace);
        let synchronous = self.optional(raw.synchronous.as_ref(), |this, raw| {
            let words = [("full", Synchronous::Full), ("normal", Synchronous::Normal)];
            this.word("synchronous", raw, &words)
        });
        let tls = self.tls(raw, target.as_ref().and_then(Option::as_ref));
        Some(Backend { target: target?, tls: tls?, namespace: namespace?, synchronous: synchronous? })
    }

    fn target(&mut self, raw: &At<String>) -> Option<Target> {
        let url = self.text(raw)?;
        match Target::parse(&url.value, self.base_dir) {
            Ok(target) => Some(target),
            Err(error) => {
                let problem = Problem::at(&url.span, "`url` names no store");
                self.report(match error {
                    TargetError::Scheme => problem.help(error.to_string()),
                    TargetError::NoFile | TargetError::Redis(_) | TargetError::WithoutTls => {
                        problem.label(error.to_string())
                    }
                });
                None
            }
        }
    }

    fn namespace(&mut self, raw: &At<String>) -> Option<String> {
        let text = self.text(raw)?;
        let fits = !text.value.is_empty() && text.value.len() <= NAME_BYTES_MAX;
        if fits && !text.value.contains(char::is_control) {
            return Some(text.value);
        }
        let title = format!("{} cannot be a namespace", text.shown());
        let form = format!("a namespace has 1 to {NAME_BYTES_MAX} bytes and no control characters");
        self.report(Problem::at(&text.span, title).help(form));
        None
    }

    fn streams(&mut self, raw: &[(At<String>, RawStream)]) -> Option<Vec<Stream>> {
        let streams: Vec<Option<Stream>> = raw.iter().map(|(name, raw)| self.stream(name, raw)).collect();
        streams.into_iter().collect()
    }

    fn stream(&mut self, name: &At<String>, raw: &RawStream) -> Option<Stream> {
        let name = self.new_name(&literal(name));
        let partitions = raw.partitions.as_ref();
        let partitions =
            self.integer("partitions", partitions, &bounds::PARTITIONS, bounds::PARTITIONS_DEFAULT);
        let max_age = self.optional(raw.max_age.as_ref(), |this, raw| {
            this.duration("max_age", Some(raw), &bounds::MAX_AGE, *bounds::MAX_AGE.end())
        });
        let max_length = self.optional(raw.max_length.as_ref(), Self::max_length);
        Some(Stream { name: name?, partitions: partitions?, max_age: max_age?, max_length: max_length? })
    }

    fn max_length(&mut self, raw: &At<i64>) -> Option<u64> {
        let (start, end) = (bounds::MAX_LENGTH.start(), bounds::MAX_LENGTH.end());
        let form = format!("a whole number from {start} to {end}");
        let length = u64::try_from(raw.value).unwrap_or(0);
        self.in_range("max_length", length, &bounds::MAX_LENGTH, &raw.span, &form)
    }

    fn engine(&mut self, raw: &RawEngine) -> Option<Engine> {
        let drain_timeout = self.duration(
            "drain_timeout",
            raw.drain_timeout.as_ref(),
            &bounds::DRAIN_TIMEOUT,
            bounds::DRAIN_TIMEOUT_DEFAULT,
        );
        let default = EVENT_BYTES_MAX_DEFAULT as u64;
        let max_event_bytes =
            self.size("max_event_bytes", raw.max_event_bytes.as_ref(), &bounds::MAX_EVENT_BYTES, default);
        let max_event_bytes = max_event_bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let max_hops =
            self.integer("max_hops", raw.max_hops.as_ref(), &bounds::MAX_HOPS, bounds::MAX_HOPS_DEFAULT);
        Some(Engine { drain_timeout: drain_timeout?, max_event_bytes: max_event_bytes?, max_hops: max_hops? })
    }

    /// Resolves what may be absent: the outer `None` is a problem, the inner one an absence.
    pub(super) fn optional<R, T>(
        &mut self,
        raw: Option<&R>,
        resolve: impl FnOnce(&mut Self, &R) -> Option<T>,
    ) -> Option<Option<T>> {
        match raw {
            None => Some(None),
            Some(raw) => resolve(self, raw).map(Some),
        }
    }

    /// Fills in the variables of a string.
    pub(super) fn text(&mut self, raw: &At<String>) -> Option<Text> {
        let (value, from_variable) = self.expand(&raw.value, &raw.span)?;
        Some(Text { value, source: raw.value.clone(), from_variable, span: raw.span.clone() })
    }

    /// Fills in the variables of a string somewhere in the value at `span`.
    pub(super) fn expand(&mut self, text: &str, span: &Range<usize>) -> Option<(String, bool)> {
        match vars::expand(text, self.env) {
            Ok(expanded) => Some((expanded.text, expanded.from_variable)),
            Err(errors) => {
                for error in errors {
                    let problem = self.variable_problem(&error, text, span);
                    self.report(problem);
                }
                None
            }
        }
    }

    fn variable_problem(&self, error: &VarError, text: &str, span: &Range<usize>) -> Problem {
        let written = &text[error.at.clone()];
        // Where the file writes it without escapes, point at the variable alone.
        let place = self.source.get(span.clone()).and_then(|source| source.find(written));
        let at = match place {
            Some(place) => span.start + place..span.start + place + written.len(),
            None => span.clone(),
        };
        match &error.kind {
            VarErrorKind::Missing(name) => {
                let title = format!("the environment variable {} is not set", quoted(name));
                Problem::at(&at, title).help(format!("set it, or write a default: `${{{name}:-default}}`"))
            }
            VarErrorKind::Unclosed => {
                let problem = Problem::at(&at, "the `}` of a variable is missing");
                problem.help("a variable is `${NAME}` or `${NAME:-default}`; write `$${` for the text `${`")
            }
            VarErrorKind::BadName => {
                let problem = Problem::at(&at, "this is not the name of an environment variable");
                problem.help(
                    "a variable is `${NAME}` or `${NAME:-default}`, its name made of letters, digits and `_`",
                )
            }
            VarErrorKind::Nested => Problem::at(&at, "a variable's default cannot hold another variable")
                .help("write the default out"),
        }
    }

    /// A duration in a range.
    pub(super) fn duration(
        &mut self,
        key: &str,
        raw: Option<&At<String>>,
        range: &RangeInclusive<Duration>,
        default: Duration,
    ) -> Option<Duration> {
        let Some(raw) = raw else { return Some(default) };
        let text = self.text(raw)?;
        let Some(duration) = units::parse_duration(&text.value) else {
            let title = format!("{} is not a duration", text.shown());
            self.report(Problem::at(&text.span, title).help(units::DURATION_FORM));
            return None;
        };
        let (start, end) = (units::show_duration(*range.start()), units::show_duration(*range.end()));
        self.in_range(key, duration, range, &text.span, &format!("a duration from {start} to {end}"))
    }

    /// A size in bytes in a range.
    pub(super) fn size(
        &mut self,
        key: &str,
        raw: Option<&At<String>>,
        range: &RangeInclusive<u64>,
        default: u64,
    ) -> Option<u64> {
        let Some(raw) = raw else { return Some(default) };
        let text = self.text(raw)?;
        let Some(size) = units::parse_size(&text.value) else {
            let title = format!("{} is not a size", text.shown());
            self.report(Problem::at(&text.span, title).help(units::SIZE_FORM));
            return None;
        };
        let (start, end) = (units::show_size(*range.start()), units::show_size(*range.end()));
        self.in_range(key, size, range, &text.span, &format!("a size from {start} to {end}"))
    }

    /// A whole number in a range.
    pub(super) fn integer(
        &mut self,
        key: &str,
        raw: Option<&At<i64>>,
        range: &RangeInclusive<u32>,
        default: u32,
    ) -> Option<u32> {
        let Some(raw) = raw else { return Some(default) };
        let wide = i64::from(*range.start())..=i64::from(*range.end());
        let form = format!("a whole number from {} to {}", range.start(), range.end());
        let number = self.in_range(key, raw.value, &wide, &raw.span, &form)?;
        u32::try_from(number).ok()
    }

    /// A number in a range; nothing is the range of a NaN.
    pub(super) fn number(
        &mut self,
        key: &str,
        raw: Option<&At<f64>>,
        range: &RangeInclusive<f64>,
        default: f64,
    ) -> Option<f64> {
        let Some(raw) = raw else { return Some(default) };
        let form = format!("a number from {} to {}", range.start(), range.end());
        self.in_range(key, raw.value, range, &raw.span, &form)
    }

    fn in_range<T: PartialOrd>(
        &mut self,
        key: &str,
        value: T,
        range: &RangeInclusive<T>,
        span: &Range<usize>,
        form: &impl Display,
    ) -> Option<T> {
        if range.contains(&value) {
            return Some(value);
        }
        let title = format!("{} is out of range", quoted(key));
        self.report(Problem::at(span, title).help(format!("{} is {form}", quoted(key))));
        None
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&mut self, key: &str, raw: &At<String>, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(raw)?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(*meaning);
        }
        let known = words.iter().map(|(word, _)| *word);
        let title = format!("{} cannot be {}", quoted(key), text.shown());
        let help = match nearest(&text.value, known.clone()) {
            Some(word) => format!("did you mean {}?", quoted(word)),
            None => format!("{} is {}", quoted(key), list(known, "or")),
        };
        self.report(Problem::at(&text.span, title).help(help));
        None
    }

    /// A name that we may create.
    pub(super) fn new_name(&mut self, text: &Text) -> Option<Name> {
        let title = match Name::new(&text.value) {
            Ok(name) => return Some(name),
            Err(NameError::Empty) => "a name cannot be empty".to_owned(),
            Err(NameError::TooLong(_)) => format!("{} is longer than {NAME_BYTES_MAX} bytes", text.shown()),
            Err(NameError::Character { .. }) => format!("{} is not a name", text.shown()),
        };
        self.report(Problem::at(&text.span, title).help(NAME_FORM));
        None
    }

    /// The name of something that may exist already, another program's perhaps.
    pub(super) fn existing_name(&mut self, text: &Text) -> Option<Name> {
        match Name::existing(&text.value) {
            Ok(name) => Some(name),
            Err(_) => {
                self.report(Problem::at(&text.span, "a name cannot be empty"));
                None
            }
        }
    }
}

/// A text in which `${` means nothing: a key.
pub(super) fn literal(key: &At<String>) -> Text {
    Text { value: key.value.clone(), source: key.value.clone(), from_variable: false, span: key.span.clone() }
}
