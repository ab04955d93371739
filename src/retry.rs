//! When a failed event comes back: exponential backoff with jitter, as a pure function.

use std::time::Duration;

/// How failures of a pipeline are repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Deliveries after which a failure is a dead letter; at least 1.
    pub max_attempts: u32,
    /// Wait after the first failure.
    pub initial: Duration,
    /// What each further wait is multiplied by; at least 1.
    pub factor: f64,
    /// Upper bound of a wait, before jitter.
    pub max: Duration,
    /// Share of the wait by which it varies in both directions, 0 to 1.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    /// 5 attempts; 200 ms, doubling, at most 1 minute, ± 20 %.
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial: Duration::from_millis(200),
            factor: 2.0,
            max: Duration::from_secs(60),
            jitter: 0.2,
        }
    }
}

impl RetryPolicy {
    /// The wait after the failure of attempt `attempt` (from 1).
    ///
    /// `random` is a draw from 0 to 1 that the caller makes: 0 gives the shortest wait, 0.5 the
    /// plain one, 1 the longest. Values outside are clamped.
    #[must_use]
    pub fn backoff(&self, attempt: u32, random: f64) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let max = self.max.as_secs_f64();
        // An overflow is infinite, and the minimum brings it back; NaN cannot arise from finite
        // non-negative factors but for 0 × ∞, where `min` also yields the maximum.
        let plain = (self.initial.as_secs_f64() * self.factor.powi(exponent)).min(max);
        let spread = 1.0 + self.jitter.clamp(0.0, 1.0) * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        Duration::try_from_secs_f64(plain * spread).unwrap_or(self.max)
    }

    /// The longest wait that [`RetryPolicy::backoff`] can give.
    #[must_use]
    pub fn backoff_max(&self) -> Duration {
        self.backoff(self.max_attempts.max(1), 1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn doubles_up_to_the_maximum() {
        let policy = RetryPolicy::default();
        let waits: Vec<u128> = (1..=10).map(|attempt| policy.backoff(attempt, 0.5).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000]);
    }

    #[test]
    fn jitter_spreads_both_ways() {
        let policy = RetryPolicy { jitter: 0.5, ..RetryPolicy::default() };
        assert_eq!(policy.backoff(1, 0.0).as_millis(), 100);
        assert_eq!(policy.backoff(1, 1.0).as_millis(), 300);
    }

    proptest! {
        #[test]
        fn stays_in_bounds(
            attempt in any::<u32>(), initial_ms in 0u64..1_000_000, factor in 1.0f64..100.0,
            max_ms in 0u64..100_000_000, jitter in 0.0f64..=1.0, random in -1.0f64..2.0,
        ) {
            let policy = RetryPolicy {
                max_attempts: 5,
                initial: Duration::from_millis(initial_ms),
                factor,
                max: Duration::from_millis(max_ms),
                jitter,
            };
            let wait = policy.backoff(attempt, random);
            let plain = policy.backoff(attempt, 0.5);
            prop_assert!(plain <= policy.max + Duration::from_millis(1));
            prop_assert!(wait.as_secs_f64() <= plain.as_secs_f64() * (1.0 + jitter) + 1e-6);
            prop_assert!(wait.as_secs_f64() >= plain.as_secs_f64() * (1.0 - jitter) - 1e-6);
            prop_assert!(policy.backoff(attempt.saturating_add(1), 0.5) >= plain);
        }
    }
}
