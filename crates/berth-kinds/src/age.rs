//! Ages, as kubectl shows them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::columns::UNKNOWN;

/// A duration in at most two units: exact while it is short, coarse when it is long.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // A clock that is slightly behind is no cause for alarm.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// The time since a timestamp, or `<unknown>`.
#[must_use]
pub fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|time| time.parse::<Timestamp>().ok()) {
        Some(time) => between(time, now),
        None => UNKNOWN.to_owned(),
    }
}

/// The time between two timestamps.
#[must_use]
pub fn between(from: Timestamp, to: Timestamp) -> String {
    // The fraction of a second is truncated only after the subtraction.
    human_duration(to.duration_since(from).as_secs())
}

/// The age of an object.
pub(crate) fn of(object: &Value, now: Timestamp) -> Value {
    json!(since(&object["metadata"]["creationTimestamp"], now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        let (minute, hour, day) = (60, 3600, 86_400);
        let check = |seconds: i64, expect: &str| assert_eq!(human_duration(seconds), expect, "{seconds}");
        check(-5, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(2 * minute, "2m");
        check(3 * minute + 5, "3m5s");
        check(10 * minute + 5, "10m");
        check(179 * minute, "179m");
        check(3 * hour, "3h");
        check(7 * hour + 59 * minute, "7h59m");
        check(47 * hour, "47h");
        check(2 * day, "2d");
        check(7 * day + 23 * hour, "7d23h");
        check(8 * day + hour, "8d");
        check(729 * day, "729d");
        check(2 * 365 * day + day, "2y1d");
        check(9 * 365 * day + day, "9y");
    }
}
