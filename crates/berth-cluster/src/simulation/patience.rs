//! Stops a workload from looping at one virtual moment.
//!
//! In virtual time everything that can happen at a moment happens at it. A workload whose pods fail at once, for
//! example, would create new ones forever, and time would never advance. Such a workload is delayed, twice as long each
//! time, so that every simulation ends.

use crate::{Step, field};
use berth_core::effect::{Effect, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a workload may do at one moment in addition to what its size requires.
const SPARE: u64 = 50;
/// How many objects it may create at one moment for each desired pod: the pod, its claims, and again.
const MADE_PER_POD: u64 = 8;
/// How often it may be processed for each of them: a pod changes some ten times until it runs.
const LOOKS_PER_POD: u64 = 100;
/// The first delay, doubled each time.
const FIRST_DELAY_SECONDS: i64 = 10;
/// The maximum delay is the first one times 2 to this power, a little more than an hour.
const MAX_DOUBLINGS: u32 = 9;

/// What each workload has done since time last advanced, and how often it was delayed.
#[derive(Debug, Default)]
pub(super) struct Patience {
    now: BTreeMap<ObjectKey, Done>,
    put_off: BTreeMap<ObjectKey, u32>,
    /// Until when excessive workloads wait.
    waiting: BTreeMap<ObjectKey, Timestamp>,
}

#[derive(Debug, Default)]
struct Done {
    looks: u64,
    made: u64,
}

impl Patience {
    /// Time advances.
    pub(super) fn renew(&mut self) {
        self.now.clear();
    }

    /// Whether a workload did too much and must still wait.
    pub(super) fn must_wait(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let is_over = |until: &Timestamp| *until <= now;
        if self.waiting.get(key).is_some_and(is_over) {
            self.waiting.remove(key);
        }
        self.waiting.contains_key(key)
    }

    /// Records that a workload was processed, and the result. Returns `Some` if that is too much.
    pub(super) fn look(
        &mut self,
        key: &ObjectKey,
        workload: &Value,
        nodes: usize,
        step: &Step,
        now: Timestamp,
    ) -> Option<Excess> {
        let made = step.effects.iter().filter(|effect| matches!(effect, Effect::Create(_)));
        let done = self.now.entry(key.clone()).or_default();
        done.looks += 1;
        done.made += made.count() as u64;
        let pods = wanted_pods(workload, nodes);
        let is_too_much = done.made > SPARE + pods.saturating_mul(MADE_PER_POD)
            || done.looks > SPARE + pods.saturating_mul(LOOKS_PER_POD);
        is_too_much.then(|| self.excess(key, now))
    }

    fn excess(&mut self, key: &ObjectKey, now: Timestamp) -> Excess {
        let made = self.now.remove(key).unwrap_or_default().made;
        let delay = self.delay(key);
        let until = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
        self.waiting.insert(key.clone(), until);
        Excess { made, delay, until }
    }

    /// The delay after a workload could not proceed or did too much: longer each time.
    pub(super) fn delay(&mut self, key: &ObjectKey) -> SignedDuration {
        let times = self.put_off.entry(key.clone()).or_default();
        let delay = SignedDuration::from_secs(FIRST_DELAY_SECONDS << (*times).min(MAX_DOUBLINGS));
        *times += 1;
        delay
    }
}

/// A workload that does too much.
pub(super) struct Excess {
    /// Number of objects created at this moment.
    pub(super) made: u64,
    /// Its delay.
    pub(super) delay: SignedDuration,
    /// Until when.
    pub(super) until: Timestamp,
}

fn wanted_pods(workload: &Value, nodes: usize) -> u64 {
    let counts = ["replicas", "parallelism", "completions"]
        .map(|name| field::count(workload, &format!("/spec/{name}")).unwrap_or(0));
    let of_nodes = if field::kind(workload) == "DaemonSet" { nodes } else { 0 };
    counts.iter().sum::<i64>().unsigned_abs() + of_nodes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whoever_makes_too_much_waits_longer_each_time() {
        let mut patience = Patience::default();
        let key = ObjectKey::new("ReplicaSet", "default", "web");
        let workload = json!({"kind": "ReplicaSet", "spec": {"replicas": 10}});
        let step = Step {
            effects: vec![Effect::Create(Box::new(json!({})))],
            wake: None,
        };
        let mut now = Timestamp::UNIX_EPOCH;
        let mut looks_until_put_off = || {
            let mut looks = 0;
            loop {
                looks += 1;
                if let Some(excess) = patience.look(&key, &workload, 0, &step, now) {
                    assert!(patience.must_wait(&key, now));
                    now = excess.until;
                    assert!(!patience.must_wait(&key, now));
                    return (looks, excess.delay.as_secs());
                }
            }
        };
        assert_eq!(looks_until_put_off(), (131, 10));
        assert_eq!(looks_until_put_off(), (131, 20));
        patience.renew();
        assert_eq!(patience.delay(&key).as_secs(), 40);
    }
}
