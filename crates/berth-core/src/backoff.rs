//! Exponential backoff. Randomness is a parameter, like time.

use std::time::Duration;

/// How long to wait after consecutive failures.
///
/// ```
/// use berth_core::backoff::Backoff;
///
/// let seconds = [1, 2, 3, 9, 10].map(|failures| Backoff::CALL.delay(failures).as_secs());
/// assert_eq!(seconds, [1, 2, 4, 256, 300]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub initial: Duration,
    /// Upper bound.
    pub max: Duration,
}

impl Backoff {
    /// For watches and lists: a recovering API server must not be flooded.
    pub const WATCH: Self = Self {
        initial: Duration::from_millis(200),
        max: Duration::from_secs(30),
    };
    /// For effects on one object: a conflict resolves quickly, a write that is refused each time does not.
    pub const EFFECT: Self = Self {
        initial: Duration::from_millis(5),
        max: Duration::from_secs(60),
    };
    /// For calls to a storage backend: most failures are a restarting driver, some last until an administrator adds a
    /// disk. The maximum is that of the CSI sidecars.
    pub const CALL: Self = Self {
        initial: Duration::from_secs(1),
        max: Duration::from_secs(300),
    };

    /// Upper bound for watches and effects that failed because the API server is unavailable: after it recovers, pending
    /// work must not wait as long as the outage lasted.
    pub const OUTAGE_MAX: Duration = Duration::from_secs(5);

    /// The delay after this many consecutive failures (at least one), doubled each time.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        // More doublings than these overflow, and exceed any sensible maximum.
        let doublings = failures.saturating_sub(1).min(31);
        self.initial.saturating_mul(1 << doublings).min(self.max)
    }

    /// [`Self::delay`] plus up to a quarter, so that many clients do not retry at once. `chance` is between 0 and 1.
    #[must_use]
    pub fn jittered(&self, failures: u32, chance: f64) -> Duration {
        let delay = self.delay(failures);
        delay.saturating_add((delay / 4).mul_f64(chance.clamp(0.0, 1.0)))
    }

    /// Limits the delays to at most this.
    #[must_use]
    pub fn at_most(self, max: Duration) -> Self {
        let max = self.max.min(max);
        Self { max, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;
    use std::time::Duration;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff::EFFECT;
        let delays = [0, 1, 3, u32::MAX].map(|failures| backoff.delay(failures).as_millis());
        assert_eq!(delays, [5, 5, 20, 60_000]);
        let jittered = [0.0, 0.5, 1.0].map(|chance| backoff.jittered(3, chance).as_micros());
        assert_eq!(jittered, [20_000, 22_500, 25_000]);
        assert_eq!(backoff.at_most(Duration::from_secs(5)).delay(100).as_secs(), 5);
    }
}
