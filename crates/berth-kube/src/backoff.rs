//! Delays that grow with every failure.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// How long to wait after failures in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub initial: Duration,
    /// The most it grows to.
    pub max: Duration,
}

impl Backoff {
    /// For watches and lists: an API server that comes back is not to be stormed.
    pub const WATCH: Self = Self {
        initial: Duration::from_millis(200),
        max: Duration::from_secs(30),
    };
    /// For effects on one object: a conflict is over soon, a write that is refused each time is not.
    pub const EFFECT: Self = Self {
        initial: Duration::from_millis(5),
        max: Duration::from_secs(60),
    };

    /// The most for watches and effects that failed because the API server is away: it comes back when it comes back, and
    /// what waits must not wait as long again.
    pub const OUTAGE_MAX: Duration = Duration::from_secs(5);

    /// For calls to a storage backend: most failures are a driver that restarts, some last until someone adds a disk.
    pub const CALL: Self = Self {
        initial: berth_provisioner::backoff::FIRST,
        max: berth_provisioner::backoff::LONGEST,
    };

    /// The delay after this many failures in a row (at least one), doubled each time.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        // Twenty doublings are beyond any maximum that makes sense, and do not overflow.
        let doublings = failures.saturating_sub(1).min(20);
        self.initial.saturating_mul(1 << doublings).min(self.max)
    }

    /// The same with up to a quarter more, so that many clients do not come back at once.
    #[must_use]
    pub fn jittered(&self, failures: u32) -> Duration {
        with_jitter(self.delay(failures))
    }
}

/// A delay with up to a quarter more.
pub(crate) fn with_jitter(delay: Duration) -> Duration {
    delay + share(delay / 4)
}

/// A random part of a time.
pub(crate) fn share(of: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 1000;
    of.mul_f64(random as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::Backoff;
    use std::time::Duration;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff::EFFECT;
        assert_eq!(backoff.delay(1), Duration::from_millis(5));
        assert_eq!(backoff.delay(3), Duration::from_millis(20));
        assert_eq!(backoff.delay(u32::MAX), Duration::from_secs(60));
        let jittered = backoff.jittered(3);
        assert!(jittered >= Duration::from_millis(20) && jittered <= Duration::from_millis(25));
    }
}
