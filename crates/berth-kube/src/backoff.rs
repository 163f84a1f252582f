//! Chance for the delays of what failed.

use berth_core::backoff::Backoff;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The delay after this many failures in a row, with up to a quarter more by chance.
#[must_use]
pub fn jittered(backoff: Backoff, failures: u32) -> Duration {
    backoff.jittered(failures, chance())
}

/// A number between 0 and 1, another one each time.
pub(crate) fn chance() -> f64 {
    let random = RandomState::new().hash_one(()) % 1000;
    random as f64 / 1000.0
}
