//! The arithmetic of a rolling update: the next number of pods of each ReplicaSet of a Deployment.
//!
//! Never more pods than `replicas + maxSurge`, never fewer available ones than `replicas - maxUnavailable`. Both are
//! guaranteed by counting changes in progress: a ReplicaSet that should shrink but still has its pods counts with all
//! of them against the upper limit, and only with those it may keep against the lower one.

use crate::field;
use serde_json::Value;

/// The current and desired state of one ReplicaSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Desired number of pods.
    pub(super) wanted: i64,
    /// Number of pods that are neither finished nor terminating.
    pub(super) active: i64,
    /// Number of available pods among those.
    pub(super) available: i64,
    /// Number of terminating pods.
    pub(super) leaving: i64,
}

impl Share {
    /// The current or desired number of pods, whichever is larger.
    fn most(self) -> i64 {
        self.wanted.max(self.active)
    }

    /// Number of available pods left after it has shrunk to the desired number.
    fn lasting(self) -> i64 {
        self.available.min(self.wanted)
    }
}

/// The limits of a Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) replicas: i64,
    pub(super) surge: i64,
    pub(super) unavailable: i64,
}

impl Limits {
    pub(super) fn of(deployment: &Value) -> Self {
        let replicas = field::count(deployment, "/spec/replicas").unwrap_or(1);
        if field::text(deployment, "/spec/strategy/type") == "Recreate" {
            return Self {
                replicas,
                surge: 0,
                unavailable: replicas,
            };
        }
        let limit = |name: &str, round_up| {
            let found = field::at(deployment, "/spec/strategy/rollingUpdate").and_then(|limits| limits.get(name));
            part_of(found, replicas, round_up)
        };
        let surge = limit("maxSurge", true);
        let unavailable = limit("maxUnavailable", false).min(replicas);
        Self {
            replicas,
            surge,
            // With neither, an update could never start.
            unavailable: if surge == 0 { unavailable.max(1) } else { unavailable },
        }
    }

    /// Minimum number of available pods.
    pub(super) fn floor(self) -> i64 {
        (self.replicas - self.unavailable).max(0)
    }

    /// Maximum number of pods.
    pub(super) fn ceiling(self) -> i64 {
        self.replicas + self.surge
    }
}

/// A number, or a percentage of the replicas; a quarter by default.
pub(super) fn part_of(limit: Option<&Value>, replicas: i64, round_up: bool) -> i64 {
    let percent = match limit {
        Some(Value::Number(number)) => return number.as_i64().unwrap_or(0).clamp(0, i64::from(i32::MAX)),
        Some(Value::String(text)) => text.strip_suffix('%').and_then(|percent| percent.parse::<i32>().ok()),
        _ => None,
    };
    let hundredths = replicas * i64::from(percent.unwrap_or(25).max(0));
    if round_up {
        (hundredths + 99) / 100
    } else {
        hundredths / 100
    }
}

/// One round of a rolling update to the ReplicaSet at `current`; the others are sorted oldest first.
pub(super) fn roll(shares: &mut [Share], current: usize, limits: Limits) {
    shed(shares, current, limits);
    grow(shares, current, limits);
    shrink_old(shares, current, limits);
}

/// One round of an update that stops all old pods before it starts new ones.
pub(super) fn recreate(shares: &mut [Share], current: usize, limits: Limits) {
    let mut is_clear = true;
    for (_, share) in shares.iter_mut().enumerate().filter(|(at, _)| *at != current) {
        is_clear &= share.active == 0 && share.leaving == 0;
        share.wanted = 0;
    }
    if is_clear {
        shares[current].wanted = limits.replicas;
    }
}

/// Applies a change of `replicas` while the update is paused: the newest ReplicaSet with pods takes the difference.
pub(super) fn scale(shares: &mut [Share], limits: Limits) {
    let Some(newest) = shares
        .iter()
        .rposition(|share| share.wanted > 0)
        .or(shares.len().checked_sub(1))
    else {
        return;
    };
    let total: i64 = shares.iter().map(|share| share.wanted).sum();
    let newest = &mut shares[newest];
    newest.wanted = (newest.wanted + limits.replicas - total).max(0);
}

/// Removes pods above the upper limit, which happens when the user lowers `replicas` during an update. Unavailable pods
/// are removed first, so that this never takes one that the lower limit needs.
fn shed(shares: &mut [Share], current: usize, limits: Limits) {
    shares[current].wanted = shares[current].wanted.min(limits.replicas);
    let mut excess = shares.iter().map(|share| share.wanted).sum::<i64>() - limits.ceiling();
    let order: Vec<usize> = (0..shares.len()).filter(|at| *at != current).chain([current]).collect();
    for spares_available in [true, false] {
        for at in &order {
            let share = &mut shares[*at];
            let kept = if spares_available { share.lasting() } else { 0 };
            let taken = (share.wanted - kept).min(excess).max(0);
            share.wanted -= taken;
            excess -= taken;
        }
    }
}

fn grow(shares: &mut [Share], current: usize, limits: Limits) {
    let room = limits.ceiling() - shares.iter().map(|share| share.most()).sum::<i64>();
    let missing = limits.replicas - shares[current].wanted;
    shares[current].wanted += missing.min(room).max(0);
}

/// Removes old pods: first the unavailable ones, then as many available ones as the lower limit allows.
fn shrink_old(shares: &mut [Share], current: usize, limits: Limits) {
    let latest = shares[current];
    let total: i64 = shares.iter().map(|share| share.wanted).sum();
    // New pods that are not available yet may need the place of old ones that are.
    let mut removable = total - limits.floor() - (latest.wanted - latest.lasting());
    let old = |at: &usize| *at != current;
    for at in (0..shares.len()).filter(old) {
        let share = &mut shares[at];
        let taken = (share.wanted - share.lasting()).min(removable).max(0);
        share.wanted -= taken;
        removable -= taken;
    }
    let lasting: i64 = shares.iter().map(|share| share.lasting()).sum();
    let mut spare = lasting - limits.floor();
    for at in (0..shares.len()).filter(old) {
        let share = &mut shares[at];
        // Of the remaining ones, unavailable pods would be removed first without any gain.
        let unavailable = share.wanted - share.lasting();
        let taken = if unavailable > 0 {
            0
        } else {
            share.wanted.min(spare).max(0)
        };
        share.wanted -= taken;
        spare -= taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn limits(spec: Value) -> (i64, i64) {
        let limits = Limits::of(&json!({"spec": spec}));
        (limits.floor(), limits.ceiling())
    }

    #[test]
    fn percentages_round_in_favour_of_service() {
        assert_eq!(limits(json!({"replicas": 10})), (8, 13));
        assert_eq!(limits(json!({"replicas": 1})), (1, 2));
        let rolling = |surge, unavailable| json!({"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}});
        assert_eq!(limits(rolling(json!(0), json!(0))), (2, 3));
        assert_eq!(limits(rolling(json!("50%"), json!("50%"))), (2, 5));
        assert_eq!(limits(rolling(json!(1), json!(9))), (0, 4));
        assert_eq!(limits(rolling(json!("x"), json!(-4))), (3, 4));
    }

    #[test]
    fn a_pod_that_serves_nobody_goes_first() {
        let limits = Limits {
            replicas: 3,
            surge: 1,
            unavailable: 0,
        };
        let old = Share {
            wanted: 3,
            active: 3,
            available: 2,
            leaving: 0,
        };
        let new = Share {
            wanted: 1,
            active: 1,
            available: 1,
            leaving: 0,
        };
        let mut shares = [old, new];
        roll(&mut shares, 1, limits);
        assert_eq!([shares[0].wanted, shares[1].wanted], [2, 1]);
    }

    #[test]
    fn fewer_replicas_in_the_middle_of_an_update_take_unavailable_pods_first() {
        let limits = Limits {
            replicas: 4,
            surge: 1,
            unavailable: 1,
        };
        let old = Share {
            wanted: 6,
            active: 6,
            available: 6,
            leaving: 0,
        };
        let new = Share {
            wanted: 5,
            active: 5,
            available: 1,
            leaving: 0,
        };
        let mut shares = [old, new];
        roll(&mut shares, 1, limits);
        assert!(shares[0].wanted + shares[1].wanted <= 5, "{shares:?}");
        assert!(shares[0].lasting() + shares[1].lasting() >= 3, "{shares:?}");
    }
}
