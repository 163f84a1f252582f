//! The time that objects are stamped with, as a parameter: a simulation brings its own.

use jiff::{Timestamp, Unit};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The present.
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

/// `metav1.Time` has seconds and no more.
pub(crate) fn seconds(time: Timestamp) -> Timestamp {
    // Cutting to seconds cannot leave the range of timestamps, but the type cannot say so.
    time.round(
        jiff::TimestampRound::new()
            .smallest(Unit::Second)
            .mode(jiff::RoundMode::Trunc),
    )
    .unwrap_or(time)
}

/// The text form that Kubernetes writes.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    seconds(time).to_string()
}
