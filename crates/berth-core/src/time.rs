//! Times as objects contain them.

use jiff::Timestamp;

/// A time without its fraction of a second.
#[must_use]
pub fn truncated(time: Timestamp) -> Timestamp {
    // The time is in range, and so is the second that it belongs to, but the type does not express that.
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A time in the form of `metav1.Time`, which has a resolution of seconds.
///
/// ```
/// let time = "2026-11-15T18:20:00.75Z".parse()?;
/// assert_eq!(berth_core::time::seconds(time), "2026-11-15T18:20:00Z");
/// # Ok::<(), jiff::Error>(())
/// ```
#[must_use]
pub fn seconds(time: Timestamp) -> String {
    truncated(time).to_string()
}

/// A time in the form of `metav1.MicroTime`, which leases use.
#[must_use]
pub fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// A time of an object, in seconds since 1970; `None` if it is not in RFC 3339.
#[must_use]
pub fn since_1970(text: &str) -> Option<i64> {
    text.parse().ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_the_resolution_of_their_field() {
        for (time, in_seconds, in_micros) in [
            (
                "2026-11-15T18:20:00.9999995Z",
                "2026-11-15T18:20:00Z",
                "2026-11-15T18:20:00.999999Z",
            ),
            (
                "1970-01-01T00:00:00Z",
                "1970-01-01T00:00:00Z",
                "1970-01-01T00:00:00.000000Z",
            ),
        ] {
            let time = time.parse().unwrap();
            assert_eq!((&*seconds(time), &*micros(time)), (in_seconds, in_micros));
        }
        assert_eq!(since_1970("1970-01-01T00:01:00.5Z"), Some(60));
        assert_eq!(since_1970("yesterday"), None);
        assert_eq!(seconds(Timestamp::MIN), truncated(Timestamp::MIN).to_string());
    }
}
