//! What a benchmark prints.

use serde::Serialize;

use super::ground::Ground;
use crate::bench::{Round, Shape, Summary};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::output;

const HEADINGS: [&str; 11] = [
    "scenario",
    ">events/s",
    ">slowest",
    ">fastest",
    ">p50",
    ">p90",
    ">p99",
    ">p99.9",
    ">max",
    ">client CPU",
    ">server CPU",
];

/// What was measured.
#[derive(Clone, Copy)]
pub(super) struct What<'a> {
    pub(super) scenario: &'a str,
    /// Which of the scenario's kinds, where it has several.
    pub(super) variant: Option<&'a str>,
    pub(super) shape: &'a Shape,
    /// What took the time whose percentiles are shown.
    pub(super) latency_of: &'a str,
}

/// One line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    scenario: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    store: &'static str,
    payload_bytes: usize,
    batch: usize,
    concurrency: usize,
    partitions: u32,
    latency_of: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
}

impl<'a> What<'a> {
    pub(super) fn new(scenario: &'a str, shape: &'a Shape, latency_of: &'a str) -> Self {
        Self { scenario, variant: None, shape, latency_of }
    }

    /// One of the kinds.
    pub(super) fn variant(self, variant: &'a str) -> Self {
        Self { variant: Some(variant), ..self }
    }

    /// Prints what came of its rounds.
    pub(super) fn report(self, context: &Context, ground: &Ground, rounds: &[Round]) -> Result<(), Exit> {
        Self::report_all(context, ground, &[(self, rounds)])
    }

    /// Prints what came of the rounds of some kinds of one scenario.
    pub(super) fn report_all(
        context: &Context,
        ground: &Ground,
        all: &[(What<'_>, &[Round])],
    ) -> Result<(), Exit> {
        let mut summaries = Vec::new();
        for (what, rounds) in all {
            summaries.extend(Summary::of(rounds)?.map(|summary| (what, summary)));
        }
        if context.json() {
            return output::json_lines(summaries.iter().map(|(what, summary)| what.line(ground, summary)));
        }
        let rows: Vec<_> = summaries.iter().map(|(what, summary)| what.row(summary)).collect();
        output::table(HEADINGS, &rows)?;
        let Some((what, summary)) = summaries.first() else { return Ok(()) };
        let rounds = output::count(summary.rounds as u64, "round");
        let events = output::count(summary.events, "event");
        let (store, latency_of) = (ground.store(), what.latency_of);
        output::line(&format!(
            "{rounds} of {events} on {store}; p50 to max: {latency_of}, in µs; CPU: µs an event"
        ))
    }

    fn line<'l>(&'l self, ground: &Ground, summary: &'l Summary) -> Line<'l> {
        Line {
            scenario: self.scenario,
            variant: self.variant,
            store: ground.store(),
            payload_bytes: self.shape.payload_bytes,
            batch: self.shape.batch,
            concurrency: self.shape.concurrency,
            partitions: self.shape.partitions,
            latency_of: self.latency_of,
            summary,
        }
    }

    fn row(&self, summary: &Summary) -> [String; 11] {
        let name = match self.variant {
            Some(variant) => format!("{}, {variant}", self.scenario),
            None => self.scenario.to_owned(),
        };
        let rate = |rate: f64| format!("{rate:.0}");
        let us = |us: f64| format!("{us:.1}");
        let latency = &summary.latency;
        [
            name,
            rate(summary.events_per_second),
            rate(summary.events_per_second_min),
            rate(summary.events_per_second_max),
            us(latency.p50_us),
            us(latency.p90_us),
            us(latency.p99_us),
            us(latency.p999_us),
            us(latency.max_us),
            us(summary.client_cpu_us_per_event),
            summary.server_cpu_us_per_event.map_or_else(|| "-".to_owned(), us),
        ]
    }
}
