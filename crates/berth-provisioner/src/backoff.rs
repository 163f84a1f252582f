//! How long to wait before a claim or volume that failed is looked at again.

use std::time::Duration;

/// The first wait: short, because most failures are a driver that restarts.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest wait: the CSI sidecars' too, so nobody is surprised.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The wait after so many failures in a row: it doubles each time.
#[must_use]
pub fn backoff(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    FIRST.saturating_mul(doubled).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes() {
        let seconds: Vec<_> = [0, 1, 2, 3, 9, 10, u32::MAX].map(|n| backoff(n).as_secs()).into();
        assert_eq!(seconds, [1, 1, 2, 4, 256, 300, 300]);
    }
}
