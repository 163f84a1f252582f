//! Simulated container behaviour that pod annotations set, instead of the default: containers start at once, are ready
//! and run forever.
//!
//! ```text
//!   ContainerCreating ──start-seconds──▶ running, not ready ──ready-seconds──▶ ready
//!                                          ▲         │
//!                     back-off: 10 s, 20 s │         │ run-seconds
//!                     ... 5 min            │         ▼
//!                                        CrashLoopBackOff                 containers that are always restarted
//! ```

use crate::field;
use crate::names;
use jiff::Timestamp;
use serde_json::Value;

/// The delay before kubelets restart a terminated container, doubled each time.
const BACKOFF_SECONDS: i64 = 10;
const BACKOFF_MAX_SECONDS: i64 = 300;
/// Number of restarts until the longest delay is reached. A simulation shows nothing new after that.
const TOLD_RESTARTS: i64 = 5;

/// The state of a pod whose containers have started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Its containers run. If not ready: until a time, or forever.
    Running { ready: Readiness, until: Option<Timestamp> },
    /// Its containers have run since a time, and end now.
    Ends { since: Timestamp },
    /// Its containers ended, and restart at a time. `wake`: whether that changes anything worth waiting for.
    Waits { until: Timestamp, wake: bool },
    /// They restart now.
    Restarts,
}

/// Whether containers pass their readiness probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// They do.
    Ready,
    /// Not yet.
    Slow,
    /// Never.
    Failing,
}

/// When the containers of a pod start that was bound to its node at this time.
pub(super) fn starts_at(pod: &Value, came: Timestamp) -> Option<Timestamp> {
    seconds(pod, names::START_SECONDS).map(|seconds| field::after(came, seconds))
}

/// When the containers of a pod end that have run since this time and will be restarted.
pub(super) fn crashes_at(pod: &Value, since: Timestamp) -> Option<Timestamp> {
    let is_restarted = matches!(field::text(pod, "/spec/restartPolicy"), "" | "Always");
    let run_seconds = seconds(pod, names::RUN_SECONDS).filter(|_| is_restarted)?;
    Some(field::after(since, run_seconds))
}

/// Whether containers that have run since this time are ready, and when that changes.
pub(super) fn readiness(pod: &Value, since: Timestamp, now: Timestamp) -> (Readiness, Option<Timestamp>) {
    if field::annotation(pod, names::READY_SECONDS) == Some("never") {
        return (Readiness::Failing, None);
    }
    let ready_at = seconds(pod, names::READY_SECONDS).map(|seconds| field::after(since, seconds));
    match ready_at.filter(|ready_at| now < *ready_at) {
        Some(ready_at) => (Readiness::Slow, Some(ready_at)),
        None => (Readiness::Ready, None),
    }
}

/// The state of a running pod.
pub(super) fn life(pod: &Value, now: Timestamp) -> Life {
    let container = field::at(pod, "/status/containerStatuses/0").unwrap_or(&Value::Null);
    let since = field::time(container, "/state/running/startedAt");
    let since = since.or_else(|| field::time(pod, "/status/startTime")).unwrap_or(now);
    let crashes = crashes_at(pod, since);
    if let Some(crashes) = crashes {
        let ended = field::time(container, "/lastState/terminated/finishedAt");
        if let (true, Some(ended)) = (container["state"]["waiting"].is_object(), ended) {
            return between_runs(container, ended, now);
        }
        if crashes <= now {
            return Life::Ends { since };
        }
    }
    let (ready, ready_at) = readiness(pod, since, now);
    let until = [crashes, ready_at].into_iter().flatten().min();
    Life::Running { ready, until }
}

fn between_runs(container: &Value, ended: Timestamp, now: Timestamp) -> Life {
    let restarts = field::count(container, "/restartCount").unwrap_or(0);
    let until = field::after(ended, backoff_seconds(restarts));
    if until <= now {
        return Life::Restarts;
    }
    Life::Waits {
        until,
        wake: restarts < TOLD_RESTARTS,
    }
}

/// The whole seconds in an annotation of a pod, if set.
pub(super) fn seconds(pod: &Value, annotation: &str) -> Option<i64> {
    let seconds = field::annotation(pod, annotation)?.parse::<u32>().ok();
    seconds.map(i64::from)
}

fn backoff_seconds(restarts: i64) -> i64 {
    let doublings = u32::try_from(restarts).unwrap_or(0).min(10);
    (BACKOFF_SECONDS << doublings).min(BACKOFF_MAX_SECONDS)
}
