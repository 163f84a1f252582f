//! The time of day by the clock that tasks sleep by: the two agree even if somebody sets the clock of the machine.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    instant: Instant,
    timestamp: Timestamp,
}

impl Clock {
    /// A clock that begins with the time of the machine.
    pub(super) fn start() -> Self {
        Self {
            instant: Instant::now(),
            timestamp: Timestamp::now(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.instant.elapsed()).unwrap_or(SignedDuration::MAX);
        self.timestamp.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}
