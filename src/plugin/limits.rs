//! What a plugin may use, and the guard that holds an instance's memory to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use wasmtime::{ResourceLimiter, Result};

use super::output::LINES_MAX;
use crate::event::EVENT_BYTES_MAX_DEFAULT;

/// Longest [`Limits::timeout`]; longer ones are cut to it.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Elements of all tables of one instance together; each takes a pointer's space.
pub(super) const TABLE_ELEMENTS_MAX: usize = 1_000_000;

/// Core instances, memories and tables of one instance. Components that link many libraries
/// dynamically, as Python's do, have some dozens. Each memory reserves gigabytes of addresses.
const INSTANCES_MAX: usize = 1_000;
const MEMORIES_MAX: usize = 64;
const TABLES_MAX: usize = 1_000;

/// Bytes that a guest may hand over in one call of a host function, whatever its limits are.
const CALL_BYTES_MIN: usize = 16 << 20;

/// What one instance of a plugin may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time for one call, instantiation included where it is needed; at most [`TIMEOUT_MAX`].
    /// Default: 30 s.
    pub timeout: Duration,
    /// Time that one call may compute, waiting not counted; seen every 5 ms. Default: the timeout alone.
    pub cpu_max: Option<Duration>,
    /// Instances that run at once; calls above it wait within their time. Default: 1,024.
    pub instances_max: usize,
    /// Lines of a call's output that are kept. Default: [`LINES_MAX`].
    pub lines_max: u32,
    /// Bytes of linear memory, the sum over an instance's memories. Default: 256 MiB, which
    /// leaves room for the interpreters of Python and JavaScript and their libraries.
    pub memory_bytes_max: usize,
    /// Calls after which an instance is replaced, so that what leaks in a guest stays bounded.
    /// Default: 10,000.
    pub reuse_count_max: u32,
    /// Time after which an unused instance is dropped. Default: 60 s.
    pub idle_max: Duration,
    /// What one call may stage and read.
    pub effects: EffectLimits,
}

/// How much one call may stage in its outbox and in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectLimits {
    /// Events that it appends. Default: 1,000.
    pub events_max: usize,
    /// Bytes of these events together. Default: 4 MiB.
    pub event_bytes_sum_max: usize,
    /// Bytes of one of them: what the store takes. Default: 4 MiB.
    pub event_bytes_max: usize,
    /// Keys of its state that it reads or writes. Default: 1,000.
    pub state_keys_max: usize,
    /// Bytes that it reads and writes there, each write counted. Default: 4 MiB.
    pub state_bytes_max: usize,
}

impl EffectLimits {
    /// Bytes that the host takes over from the guest in one call of a host function. Enough for
    /// what may be staged at once, so that what is too much is refused in words, and no more.
    pub(super) fn call_bytes_max(&self) -> usize {
        self.event_bytes_sum_max.max(self.state_bytes_max).saturating_mul(2).max(CALL_BYTES_MIN)
    }
}

impl Default for EffectLimits {
    fn default() -> Self {
        Self {
            events_max: 1000,
            event_bytes_sum_max: 4 << 20,
            event_bytes_max: EVENT_BYTES_MAX_DEFAULT,
            state_keys_max: 1000,
            state_bytes_max: 4 << 20,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            cpu_max: None,
            instances_max: 1024,
            lines_max: LINES_MAX,
            memory_bytes_max: 256 * 1024 * 1024,
            reuse_count_max: 10_000,
            idle_max: Duration::from_secs(60),
            effects: EffectLimits::default(),
        }
    }
}

/// Counts what an instance's memories and tables hold, and refuses more than is allowed.
pub(super) struct Guard {
    bytes_max: usize,
    bytes: usize,
    /// `bytes` before the growth that was permitted last, should it fail after all.
    bytes_before: usize,
    /// What all instances of the plugin have together, this one's `bytes` among them.
    bytes_sum: Arc<AtomicUsize>,
    elements: usize,
    /// Bytes that a refused growth of a memory asked for, in this call.
    pub(super) refused_bytes: Option<usize>,
    /// Elements that a refused growth of a table asked for, in this call.
    pub(super) refused_elements: Option<usize>,
}

impl Guard {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            bytes_before: 0,
            bytes_sum: Arc::default(),
            elements: 0,
            refused_bytes: None,
            refused_elements: None,
        }
    }

    /// Counts this instance's memories into a plugin's sum, before it has any.
    pub(super) fn count_into(&mut self, bytes_sum: &Arc<AtomicUsize>) {
        self.bytes_sum = Arc::clone(bytes_sum);
    }

    /// Takes note of what the memories have now.
    fn set_bytes(&mut self, bytes: usize) {
        // Wraps where it shrinks, and so comes out right.
        self.bytes_sum.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// What the instance's memories have together. They never shrink: it is the most so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

impl ResourceLimiter for Guard {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let bytes = self.bytes.saturating_sub(current).saturating_add(desired);
        self.bytes_before = self.bytes;
        if bytes > self.bytes_max {
            self.refused_bytes = Some(bytes);
            return Ok(false);
        }
        self.set_bytes(bytes);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> Result<()> {
        self.set_bytes(self.bytes_before);
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let elements = self.elements.saturating_sub(current).saturating_add(desired);
        if elements > TABLE_ELEMENTS_MAX {
            self.refused_elements = Some(elements);
            return Ok(false);
        }
        self.elements = elements;
        Ok(true)
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 65536;

    #[test]
    fn the_sum_over_all_memories_is_limited() {
        let mut guard = Guard::new(10 * PAGE);
        assert!(guard.memory_growing(0, 6 * PAGE, None).unwrap());
        assert!(guard.memory_growing(0, 4 * PAGE, None).unwrap());
        assert!(!guard.memory_growing(4 * PAGE, 5 * PAGE, None).unwrap());
        assert_eq!(guard.refused_bytes, Some(11 * PAGE));
    }

    #[test]
    fn a_growth_that_fails_after_all_is_not_counted() {
        let mut guard = Guard::new(10 * PAGE);
        assert!(guard.memory_growing(0, 8 * PAGE, None).unwrap());
        guard.memory_grow_failed(wasmtime::Error::msg("above the memory's own maximum")).unwrap();
        assert!(guard.memory_growing(0, 10 * PAGE, None).unwrap());
    }

    #[test]
    fn a_plugins_sum_follows_its_instances() {
        let sum = Arc::default();
        let guard = || {
            let mut guard = Guard::new(10 * PAGE);
            guard.count_into(&sum);
            guard
        };
        let (mut one, mut other) = (guard(), guard());
        one.memory_growing(0, 2 * PAGE, None).unwrap();
        other.memory_growing(0, PAGE, None).unwrap();
        one.memory_growing(2 * PAGE, 5 * PAGE, None).unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 6 * PAGE);
        one.memory_grow_failed(wasmtime::Error::msg("no address space")).unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 3 * PAGE);
        drop(one);
        assert_eq!(sum.load(Ordering::Relaxed), PAGE);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut guard = Guard::new(10 * PAGE);
        assert!(guard.memory_growing(0, PAGE, None).unwrap());
        assert!(!guard.memory_growing(0, usize::MAX, None).unwrap());
        assert!(!guard.table_growing(0, usize::MAX, None).unwrap());
        assert!(guard.table_growing(0, 100, None).unwrap());
    }
}
