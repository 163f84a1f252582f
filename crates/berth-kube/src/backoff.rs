//! Random jitter for retry delays.

use berth_core::backoff::Backoff;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The delay after this many consecutive failures, plus up to a quarter of random jitter.
#[must_use]
pub fn jittered(backoff: Backoff, failures: u32) -> Duration {
    backoff.jittered(failures, chance())
}

/// A new random number between 0 and 1 each time.
pub(crate) fn chance() -> f64 {
    let random = RandomState::new().hash_one(()) % 1000;
    random as f64 / 1000.0
}
