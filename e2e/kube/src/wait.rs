//! Waits for conditions, with a deadline.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How often a condition is checked.
const PAUSE: Duration = Duration::from_millis(25);

/// A condition was not met in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {} s still not so: {what}", .deadline.as_secs())]
pub struct Late {
    /// The condition.
    pub what: String,
    /// How long it had.
    pub deadline: Duration,
}

/// Waiting failed.
#[derive(Debug, thiserror::Error)]
pub enum WaitError<E: Display> {
    /// It took too long.
    #[error("{0}")]
    Late(Late),
    /// There is no point in waiting longer.
    #[error("{0}")]
    Failed(E),
}

/// Waits until the condition returns something, fails, or the deadline passes.
///
/// # Errors
/// If the condition fails, or is not met in time.
pub async fn eventually<T, E: Display>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Result<Option<T>, E>,
) -> Result<T, WaitError<E>> {
    let start = Instant::now();
    loop {
        match condition().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) if start.elapsed() < deadline => tokio::time::sleep(PAUSE).await,
            Ok(None) => {
                return Err(WaitError::Late(Late {
                    what: what.to_owned(),
                    deadline,
                }));
            }
            Err(error) => return Err(WaitError::Failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_ends_with_what_was_found_with_the_error_or_in_time() {
        let mut calls = 0;
        let found = eventually("third time", Duration::from_secs(60), async || {
            calls += 1;
            Ok::<_, String>((calls == 3).then_some(calls))
        });
        assert_eq!(found.await.unwrap(), 3);
        let failed = eventually("never", Duration::from_secs(60), async || {
            Err::<Option<()>, _>("broken")
        });
        assert_eq!(failed.await.unwrap_err().to_string(), "broken");
        let late = eventually("never", Duration::ZERO, async || Ok::<Option<()>, String>(None));
        assert_eq!(late.await.unwrap_err().to_string(), "after 0 s still not so: never");
    }
}
