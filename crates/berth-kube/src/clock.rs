//! The wall clock, as a parameter of every component.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Returns the time of day: that of the machine, or one that follows the clock by which tasks sleep.
///
/// A component of a cluster uses the time of the machine. Components in one process share a clock of the second kind: what
/// is due by one clock is due by the other, even if the machine's clock is set or the runtime's clock is paused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// One moment by both clocks.
    begun: Option<(Instant, Timestamp)>,
}

impl Clock {
    /// A clock that starts at this time and follows the runtime's clock.
    #[must_use]
    pub fn starting_at(time: Timestamp) -> Self {
        Self {
            begun: Some((Instant::now(), time)),
        }
    }

    /// A clock that starts at the current time and follows the runtime's clock, for sleeping until a time.
    #[must_use]
    pub fn steady(self) -> Self {
        match self.begun {
            Some(_) => self,
            None => Self::starting_at(Timestamp::now()),
        }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let Some((instant, time)) = self.begun else {
            return Timestamp::now();
        };
        let passed = SignedDuration::try_from(instant.elapsed()).unwrap_or(SignedDuration::MAX);
        time.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use jiff::{SignedDuration, Timestamp};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_follows_the_one_that_tasks_sleep_by() {
        let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::starting_at(begin);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.now(), begin + SignedDuration::from_secs(90));
        assert!(Clock::default().now() > begin);
    }
}
