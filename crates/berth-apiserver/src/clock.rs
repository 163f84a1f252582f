//! The clock for timestamps of objects, as a parameter: a simulation provides its own.

use jiff::{Timestamp, Unit};

/// A clock.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The time of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// `metav1.Time` has a resolution of seconds.
pub(crate) fn seconds(time: Timestamp) -> Timestamp {
    // Truncating to seconds cannot leave the range of timestamps, but the type does not express that.
    time.round(
        jiff::TimestampRound::new()
            .smallest(Unit::Second)
            .mode(jiff::RoundMode::Trunc),
    )
    .unwrap_or(time)
}

/// The format of Kubernetes.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    seconds(time).to_string()
}
