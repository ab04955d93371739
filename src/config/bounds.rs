//! Bounds and defaults of what a pipeline file may say. Checks, messages and schema share them.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Partitions of a stream.
pub(super) const PARTITIONS: RangeInclusive<u32> = 1..=1024;
/// Number of a partition.
pub(super) const PARTITION: RangeInclusive<u32> = 0..=1023;
/// Partitions of a stream that `[streams.NAME]` says nothing about.
pub(super) const PARTITIONS_DEFAULT: u32 = 1;

/// Age at which a stream's events go. Less than a minute would be finer than it is looked after.
pub(super) const MAX_AGE: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_hours(3650 * 24);
/// Events of a partition that stay.
pub(super) const MAX_LENGTH: RangeInclusive<u64> = 1..=1_000_000_000_000;

/// Handler calls of a pipeline at the same time.
pub(super) const CONCURRENCY: RangeInclusive<u32> = 1..=1024;
pub(super) const CONCURRENCY_DEFAULT: u32 = 8;
/// Events that a pipeline holds under leases.
pub(super) const MAX_IN_FLIGHT: RangeInclusive<u32> = 1..=65_536;
pub(super) const MAX_IN_FLIGHT_DEFAULT: u32 = 256;

/// Shorter leases would be lost to a slow network or a busy machine.
pub(super) const LEASE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);
pub(super) const LEASE_DEFAULT: Duration = Duration::from_secs(30);

pub(super) const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(1);
pub(super) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// At most what 32-bit WebAssembly can address.
pub(super) const MAX_MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=4 << 30;
/// Room for the interpreters of Python and JavaScript.
pub(super) const MAX_MEMORY_BYTES_DEFAULT: u64 = 256 << 20;

/// At least what the host can measure.
pub(super) const MAX_CPU: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_hours(1);
pub(super) const MAX_INSTANCES: RangeInclusive<u32> = 1..=65_536;
pub(super) const MAX_INSTANCES_DEFAULT: u32 = 1024;
pub(super) const MAX_CALLS: RangeInclusive<u32> = 1..=1_000_000_000;
pub(super) const MAX_CALLS_DEFAULT: u32 = 10_000;
pub(super) const MAX_LOG_LINES: RangeInclusive<u32> = 0..=100_000;
pub(super) const MAX_LOG_LINES_DEFAULT: u32 = 1_000;
/// What a call stages is committed in one step of the store, which must not take long.
pub(super) const MAX_OUTBOX_BYTES: RangeInclusive<u64> = 1 << 10..=64 << 20;
pub(super) const MAX_OUTBOX_BYTES_DEFAULT: u64 = 4 << 20;
pub(super) const MAX_OUTBOX_EVENTS: RangeInclusive<u32> = 1..=10_000;
pub(super) const MAX_OUTBOX_EVENTS_DEFAULT: u32 = 1_000;
pub(super) const MAX_STATE_BYTES: RangeInclusive<u64> = 1 << 10..=64 << 20;
pub(super) const MAX_STATE_BYTES_DEFAULT: u64 = 4 << 20;
pub(super) const MAX_STATE_KEYS: RangeInclusive<u32> = 1..=10_000;
pub(super) const MAX_STATE_KEYS_DEFAULT: u32 = 1_000;

pub(super) const MAX_HOPS: RangeInclusive<u32> = 1..=1_000;
pub(super) const MAX_HOPS_DEFAULT: u32 = 32;

/// Faults after which a pipeline pauses, and the attempts among which they count.
pub(super) const FAULTS_AFTER: RangeInclusive<u32> = 1..=1_000;
pub(super) const FAULTS_AFTER_DEFAULT: u32 = 5;
pub(super) const FAULTS_OF: RangeInclusive<u32> = 1..=10_000;

pub(super) const DRAIN_TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(1);
pub(super) const DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

pub(super) const MAX_EVENT_BYTES: RangeInclusive<u64> = 1 << 10..=64 << 20;

pub(super) const MAX_ATTEMPTS: RangeInclusive<u32> = 1..=1_000_000;
/// A zero wait would burn every attempt within milliseconds.
pub(super) const RETRY_WAIT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_hours(30 * 24);
pub(super) const RETRY_FACTOR: RangeInclusive<f64> = 1.0..=100.0;
pub(super) const RETRY_JITTER: RangeInclusive<f64> = 0.0..=1.0;
