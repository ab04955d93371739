//! Wasmill: an event-processing engine that people script with WebAssembly.
//!
//! # The life of an event
//!
//! A producer appends a [`event::NewEvent`] to a stream ([`backend::Backend::append`]). The
//! engine's dispatcher takes permits, then claims that many events for a pipeline's group
//! ([`backend::Backend::claim`]): each comes under a lease. An attempt calls the pipeline's plugin
//! with the event and ends in an [`outcome::Outcome`] or an [`outcome::Fault`].
//! [`outcome::decide`] turns that into a [`outcome::Verdict`]. The settler writes verdicts in
//! batches ([`backend::Backend::settle`]), and the permit goes back.
//!
//! # The modules, outermost first
//!
//! - [`cli`]: the commands, and what they print
//! - [`bench`](mod@bench): loads of a known shape, to measure with
//! - [`http`]: who asks a running engine how it is
//! - [`engine`]: the loop of a pipeline
//! - [`backend`]: the stores; [`plugin`]: the WebAssembly host; [`config`]: the pipeline file.
//!   None of these three sees another one, or the engine.
//! - [`telemetry`]: what is said of the engine's work; [`metrics`]: what is counted of it
//! - [`grants`]: what a plugin may do
//! - [`event`], [`outcome`], [`query`], [`retry`], [`routing`], [`state`], [`target`]: values and pure
//!   functions
//!
//! Dependencies point one way, from the top of this list to its end; a test holds that.

pub mod backend;
pub mod bench;
pub mod cli;
pub mod config;
pub mod engine;
pub mod event;
pub mod grants;
pub mod http;
pub mod metrics;
pub mod outcome;
pub mod plugin;
pub mod query;
pub mod retry;
pub mod routing;
pub mod state;
pub mod target;
pub mod telemetry;

/// Of the tests: beside them, since it is no part of the house.
#[cfg(test)]
#[path = "../tests/instructions/mod.rs"]
mod instructions;
