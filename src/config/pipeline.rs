//! What `[[pipeline]]` means, and which pipelines can stand side by side.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::event::{GroupKey, Name};
use crate::outcome::OnFault;
use crate::retry::RetryPolicy;

use super::problem::{Problem, list, nearest, quoted};
use super::raw::{RawConfig, RawOnFault, RawPartitions, RawPipeline, RawRetry};
use super::resolve::Resolver;
use super::table::At;
use super::{Partitions, Pipeline, Start, bounds, units};

/// Most plugins that a message lists.
const SUGGESTED_MAX: usize = 10;

impl Resolver<'_> {
    pub(super) fn pipelines(&mut self, raw: &RawConfig) -> Option<Vec<Pipeline>> {
        if raw.pipelines.is_empty() {
            self.report_no_pipeline(raw);
            return None;
        }
        let mut names = HashMap::new();
        let found: Vec<Option<Pipeline>> =
            raw.pipelines.iter().map(|pipeline| self.pipeline(pipeline, raw, &mut names)).collect();
        self.check_groups(&raw.pipelines, &found);
        found.into_iter().collect()
    }

    /// Says that there is no pipeline, unless one could not be read: then that was said already.
    fn report_no_pipeline(&mut self, raw: &RawConfig) {
        if !raw.pipeline_unreadable {
            let problem = Problem::new("the file has no pipeline");
            self.report(
                problem.help("a pipeline is a table `[[pipeline]]` with `name`, `stream` and `plugin`"),
            );
        }
    }

    fn pipeline(
        &mut self,
        raw: &RawPipeline,
        file: &RawConfig,
        names: &mut HashMap<Name, Range<usize>>,
    ) -> Option<Pipeline> {
        let name = self.unique_name(raw.name.as_ref(), names);
        let stream = raw.stream.as_ref().and_then(|raw| self.name(raw));
        let group = match &raw.group {
            Some(group) => self.name(group),
            None => name.clone(),
        };
        let plugin = raw.plugin.as_ref().and_then(|plugin| self.known_plugin(plugin, file));
        let partitions = self.partitions(raw.partitions.as_ref(), stream.as_ref(), file);
        let (concurrency, max_in_flight) = self.limits(raw);
        let lease = self.duration("lease", raw.lease.as_ref(), &bounds::LEASE, bounds::LEASE_DEFAULT);
        let start = self.optional(raw.start.as_ref(), |this, raw| {
            this.word("start", raw, &[("beginning", Start::Beginning), ("end", Start::End)])
        });
        let retry = self.retry(&raw.retry);
        let on_fault = match &raw.on_fault {
            Some(on_fault) => self.on_fault(on_fault),
            None => Some(OnFault::default()),
        };
        Some(Pipeline {
            on_fault: on_fault?,
            name: name?,
            stream: stream?,
            group: group?,
            plugin: plugin?,
            partitions: partitions?,
            concurrency: concurrency?,
            max_in_flight: max_in_flight?,
            lease: lease?,
            start: start?.unwrap_or(Start::Beginning),
            max_attempts: raw.retry.max_attempts.as_ref().and(retry.as_ref()).map(|retry| retry.max_attempts),
            retry: retry?,
        })
    }

    fn on_fault(&mut self, raw: &RawOnFault) -> Option<OnFault> {
        #[derive(Clone, Copy, PartialEq)]
        enum Action {
            Retry,
            DeadLetter,
            Pause,
        }
        let after =
            self.integer("after", raw.after.as_ref(), &bounds::FAULTS_AFTER, bounds::FAULTS_AFTER_DEFAULT);
        let twice = after.unwrap_or_default().saturating_mul(2);
        let of = self.integer("of", raw.of.as_ref(), &bounds::FAULTS_OF, twice);
        let words = [("retry", Action::Retry), ("dead-letter", Action::DeadLetter), ("pause", Action::Pause)];
        let action = self.word("action", raw.action.as_ref()?, &words)?;
        let idle = raw.after.as_ref().or(raw.of.as_ref());
        if let Some(key) = idle.filter(|_| action != Action::Pause) {
            let problem = Problem::at(&key.span, "`after` and `of` say when a pipeline pauses");
            self.report(problem.help("write `action = \"pause\"`, or leave them out"));
            return None;
        }
        let (after, of) = (after?, of?);
        match action {
            Action::Retry => Some(OnFault::Retry),
            Action::DeadLetter => Some(OnFault::DeadLetter),
            Action::Pause if of >= after => Some(OnFault::Pause { after, of }),
            Action::Pause => {
                let at = raw.of.as_ref().or(raw.after.as_ref())?;
                let problem =
                    Problem::at(&at.span, format!("there are never {after} faults among {of} attempts"));
                self.report(problem.help("`of` is at least `after`"));
                None
            }
        }
    }

    /// The name of a stream or group that may exist already.
    fn name(&mut self, raw: &At<String>) -> Option<Name> {
        let text = self.text(raw)?;
        self.existing_name(&text)
    }

    /// A pipeline's name, which no other has.
    fn unique_name(
        &mut self,
        raw: Option<&At<String>>,
        names: &mut HashMap<Name, Range<usize>>,
    ) -> Option<Name> {
        let text = self.text(raw?)?;
        let name = self.new_name(&text)?;
        match names.get(&name) {
            Some(first) => {
                let problem = Problem::at(&text.span, "two pipelines have the same name");
                self.report(
                    problem
                        .context(first, "the first one")
                        .help("logs and summaries tell them apart by name"),
                );
                None
            }
            None => {
                names.insert(name.clone(), text.span);
                Some(name)
            }
        }
    }

    fn known_plugin(&mut self, raw: &At<String>, file: &RawConfig) -> Option<String> {
        let text = self.text(raw)?;
        let known = || file.plugins.iter().map(|(name, _)| name.value.as_str());
        if known().any(|name| name == text.value) {
            return Some(text.value);
        }
        let help = match nearest(&text.value, known()) {
            Some(name) => format!("did you mean {}?", quoted(name)),
            None if known().next().is_none() => {
                "a plugin is a table `[plugins.NAME]` with its `path`".to_owned()
            }
            None => format!("the file has {}", list(known().take(SUGGESTED_MAX), "and")),
        };
        self.report(
            Problem::at(&text.span, format!("{} is not a plugin of this file", text.shown())).help(help),
        );
        None
    }

    fn partitions(
        &mut self,
        raw: Option<&RawPartitions>,
        stream: Option<&Name>,
        file: &RawConfig,
    ) -> Option<Partitions> {
        let list = match raw {
            None => return Some(Partitions::All),
            Some(RawPartitions::Word(word)) => {
                return self.partitions_word(word);
            }
            Some(RawPartitions::List(list)) => list,
        };
        if list.value.is_empty() {
            let problem = Problem::at(&list.span, "a pipeline needs at least one partition");
            self.report(problem.help("leave `partitions` out to read all of them"));
            return None;
        }
        let mut numbers = BTreeSet::new();
        for item in &list.value {
            let number = self.integer("partition", Some(item), &bounds::PARTITION, 0)?;
            if !numbers.insert(number) {
                self.report(Problem::at(&item.span, format!("partition {number} is named twice")));
                return None;
            }
            self.check_declared(number, item, stream, file)?;
        }
        Some(Partitions::List(numbers.into_iter().collect()))
    }

    fn partitions_word(&mut self, raw: &At<String>) -> Option<Partitions> {
        let text = self.text(raw)?;
        if text.value == "all" {
            return Some(Partitions::All);
        }
        let title = format!("`partitions` cannot be {}", text.shown());
        self.report(
            Problem::at(&text.span, title)
                .help("`partitions` is \"all\" or a list of numbers, as in `[0, 1]`"),
        );
        None
    }

    /// Refuses a partition that `[streams.NAME]` of this file does not have.
    fn check_declared(
        &mut self,
        number: u32,
        item: &At<i64>,
        stream: Option<&Name>,
        file: &RawConfig,
    ) -> Option<()> {
        let mut streams = file.streams.iter();
        let declared = streams.find(|(name, _)| stream.is_some_and(|stream| stream.as_str() == name.value));
        let Some(count) = declared.and_then(|(_, stream)| stream.partitions.as_ref()) else {
            return Some(());
        };
        if i64::from(number) < count.value || count.value < 1 {
            return Some(());
        }
        let problem = Problem::at(&item.span, format!("the stream has no partition {number}"));
        self.report(problem.context(&count.span, "partitions count from 0"));
        None
    }

    /// `concurrency` and `max_in_flight`.
    fn limits(&mut self, raw: &RawPipeline) -> (Option<u32>, Option<u32>) {
        let concurrency = self.integer(
            "concurrency",
            raw.concurrency.as_ref(),
            &bounds::CONCURRENCY,
            bounds::CONCURRENCY_DEFAULT,
        );
        let default = bounds::MAX_IN_FLIGHT_DEFAULT.max(concurrency.unwrap_or_default());
        let max_in_flight =
            self.integer("max_in_flight", raw.max_in_flight.as_ref(), &bounds::MAX_IN_FLIGHT, default);
        if let (Some(calls), Some(leases), Some(at)) = (concurrency, max_in_flight, &raw.max_in_flight)
            && leases < calls
        {
            let problem = Problem::at(&at.span, "`max_in_flight` is less than `concurrency`")
                .help(format!("every running call holds a lease: `max_in_flight` must be at least {calls}"));
            self.report(match &raw.concurrency {
                Some(concurrency) => problem.context(&concurrency.span, "this many calls"),
                None => problem,
            });
            return (concurrency, None);
        }
        (concurrency, max_in_flight)
    }

    fn retry(&mut self, raw: &RawRetry) -> Option<RetryPolicy> {
        let default = RetryPolicy::default();
        let max_attempts = self.integer(
            "max_attempts",
            raw.max_attempts.as_ref(),
            &bounds::MAX_ATTEMPTS,
            default.max_attempts,
        );
        let initial = self.duration("initial", raw.initial.as_ref(), &bounds::RETRY_WAIT, default.initial);
        let factor = self.number("factor", raw.factor.as_ref(), &bounds::RETRY_FACTOR, default.factor);
        let max_default = default.max.max(initial.unwrap_or_default());
        let max = self.duration("max", raw.max.as_ref(), &bounds::RETRY_WAIT, max_default);
        let jitter = self.number("jitter", raw.jitter.as_ref(), &bounds::RETRY_JITTER, default.jitter);
        let policy = RetryPolicy {
            max_attempts: max_attempts?,
            initial: initial?,
            factor: factor?,
            max: max?,
            jitter: jitter?,
        };
        match &raw.max {
            Some(max) if policy.max < policy.initial => {
                let problem = Problem::at(&max.span, "`max` is shorter than `initial`");
                let help = format!("the first wait is {}", units::show_duration(policy.initial));
                self.report(match &raw.initial {
                    Some(initial) => problem.context(&initial.span, "the first wait"),
                    None => problem.help(help),
                });
                None
            }
            _ => Some(policy),
        }
    }

    /// Pipelines may share a group only if they share no partition and agree about the group.
    fn check_groups(&mut self, raw: &[RawPipeline], found: &[Option<Pipeline>]) {
        let mut groups: HashMap<GroupKey, Vec<(&RawPipeline, &Pipeline)>> = HashMap::new();
        for (raw, pipeline) in raw.iter().zip(found) {
            let Some(pipeline) = pipeline else { continue };
            let key = GroupKey::new(pipeline.stream.clone(), pipeline.group.clone());
            let earlier = groups.entry(key).or_default();
            if let Some(problem) = earlier.iter().find_map(|first| conflict(*first, (raw, pipeline))) {
                self.report(problem);
            }
            earlier.push((raw, pipeline));
        }
    }
}

/// What keeps two pipelines from sharing their group.
fn conflict(first: (&RawPipeline, &Pipeline), second: (&RawPipeline, &Pipeline)) -> Option<Problem> {
    let place = |raw: &RawPipeline| raw.group.as_ref().or(raw.stream.as_ref()).map(|text| text.span.clone());
    if overlap(&first.1.partitions, &second.1.partitions) {
        let problem =
            Problem::at(&place(second.0)?, "two pipelines read the same partitions for the same group");
        let problem = problem.context(&place(first.0)?, "the first one");
        return Some(problem.help(
            "each event would go to either of them: give each its own `group`, or lists of `partitions` that share none",
        ));
    }
    if let (Some(a), Some(b)) = (&first.0.retry.max_attempts, &second.0.retry.max_attempts)
        && a.value != b.value
    {
        let problem = Problem::at(&b.span, "two pipelines of one group differ in `max_attempts`");
        return Some(problem.context(&a.span, "the first one"));
    }
    if first.1.start != second.1.start {
        let at = second.0.start.as_ref().or(first.0.start.as_ref())?;
        let problem = Problem::at(&at.span, "two pipelines of one group differ in `start`");
        return Some(problem.help("without it, a new group starts at the \"beginning\""));
    }
    None
}

fn overlap(first: &Partitions, second: &Partitions) -> bool {
    match (first, second) {
        (Partitions::List(first), Partitions::List(second)) => {
            first.iter().any(|number| second.contains(number))
        }
        (Partitions::All, _) | (_, Partitions::All) => true,
    }
}
