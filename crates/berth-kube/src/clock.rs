//! The time of day, as a parameter of every component.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time of day: that of the machine, or one that follows the clock by which tasks sleep.
///
/// A component of a cluster has the time of the machine. Where all components are in one process, they share a clock of the
/// second kind: what is due by one clock is due by the other, even if somebody sets the clock of the machine or stops the
/// clock of the runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// A moment by both clocks.
    begun: Option<(Instant, Timestamp)>,
}

impl Clock {
    /// A clock on which it is this time now, and which follows the runtime's from here on.
    #[must_use]
    pub fn starting_at(time: Timestamp) -> Self {
        Self {
            begun: Some((Instant::now(), time)),
        }
    }

    /// A clock that shows what this one shows now, and follows the runtime's from here on: for whoever sleeps until a time.
    #[must_use]
    pub fn steady(self) -> Self {
        match self.begun {
            Some(_) => self,
            None => Self::starting_at(Timestamp::now()),
        }
    }

    /// The present.
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
