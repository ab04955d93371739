//! What a benchmark prints.

use serde::Serialize;

use super::ground::Ground;
use crate::bench::{Round, Shape, Summary};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::output;

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

/// Prints what came of the rounds of one thing.
pub(super) fn report(
    context: &Context,
    ground: &Ground,
    what: What<'_>,
    rounds: &[Round],
) -> Result<(), Exit> {
    let What { scenario, variant, shape, latency_of } = what;
    let Some(summary) = Summary::of(rounds)? else { return Ok(()) };
    if context.json() {
        return output::json_line(&Line {
            scenario,
            variant,
            store: ground.store(),
            payload_bytes: shape.payload_bytes,
            batch: shape.batch,
            concurrency: shape.concurrency,
            partitions: shape.partitions,
            latency_of,
            summary: &summary,
        });
    }
    let headings = [
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
    output::table(headings, &[row(what, &summary)])?;
    let (rounds, events) =
        (output::count(summary.rounds as u64, "round"), output::count(summary.events, "event"));
    output::line(&format!(
        "{rounds} of {events} on {}; p50 to max: {latency_of}, in µs; CPU: µs an event",
        ground.store()
    ))
}

fn row(what: What<'_>, summary: &Summary) -> [String; 11] {
    let rate = |rate: f64| format!("{rate:.0}");
    let us = |us: f64| format!("{us:.1}");
    let latency = &summary.latency;
    [
        what.variant
            .map_or_else(|| what.scenario.to_owned(), |variant| format!("{}, {variant}", what.scenario)),
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
