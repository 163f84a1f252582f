//! Durations in arguments and configuration files.

use jiff::SignedDuration;
use std::time::Duration;

/// A duration in the format of Kubernetes components: 15s, 1m30s, 500ms.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    let found = Duration::try_from(parsed).map_err(|_| "must not be negative".to_owned())?;
    if found.is_zero() {
        return Err("must be greater than zero".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::duration;
    use std::time::Duration;

    #[test]
    fn lengths_of_time() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "15", "-1s", "0s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
