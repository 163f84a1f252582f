//! Pods that arrived before their claims.
//!
//! Watches of different kinds are independent, so a pod can be observed a moment before its claim. If it were decided
//! at once, it would be refused, and wait for its whole backoff. Such a pod waits until its claims are known,
//! but only briefly: if they do not appear, the refusal is correct.
//!
//! An early pod waits for one claim at a time, so that a list of claims costs no more than its length.

use crate::queue::PodKey;
use berth_core::api;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::time::Duration;

/// Early pods, indexed by the claims that they wait for and by deadline.
#[derive(Debug, Default)]
pub(super) struct Early {
    pods: FxHashMap<PodKey, EarlyPod>,
    by_claim: FxHashMap<Box<str>, SmallVec<[PodKey; 1]>>,
    deadlines: BTreeSet<(Duration, PodKey)>,
}

/// A pod that arrived before a claim.
#[derive(Debug)]
pub(super) struct EarlyPod {
    pub(super) pod: Box<api::Pod>,
    /// Its deadline.
    pub(super) until: Duration,
    /// The claim that it waits for, as `namespace/name`.
    claim: Box<str>,
}

impl Early {
    /// Keeps a pod until a claim is known.
    pub(super) fn put(&mut self, key: &PodKey, pod: &api::Pod, claim: &str, until: Duration) {
        self.take(key);
        let early = EarlyPod {
            pod: Box::new(pod.clone()),
            until,
            claim: claim.into(),
        };
        let waiting = self.by_claim.entry(claim.into()).or_default();
        waiting.push(PodKey::clone(key));
        self.deadlines.insert((until, PodKey::clone(key)));
        self.pods.insert(PodKey::clone(key), early);
    }

    /// Releases a pod.
    pub(super) fn take(&mut self, key: &str) -> Option<EarlyPod> {
        let (key, early) = self.pods.remove_entry(key)?;
        if let Some(waiting) = self.by_claim.get_mut(&early.claim) {
            waiting.retain(|pod| *pod != key);
            if waiting.is_empty() {
                self.by_claim.remove(&early.claim);
            }
        }
        self.deadlines.remove(&(early.until, key));
        Some(early)
    }

    /// Releases the pods that wait for a claim.
    pub(super) fn take_waiting_for(&mut self, claim: &str) -> Vec<EarlyPod> {
        let keys = self.by_claim.get(claim).cloned().unwrap_or_default();
        keys.iter().filter_map(|key| self.take(key)).collect()
    }

    /// Releases the pods whose deadline has passed.
    pub(super) fn take_overdue(&mut self, now: Duration) -> Vec<EarlyPod> {
        let past = self.deadlines.iter().take_while(|(until, _)| *until <= now);
        let keys: Vec<_> = past.map(|(_, key)| PodKey::clone(key)).collect();
        keys.iter().filter_map(|key| self.take(key)).collect()
    }

    /// The first deadline.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _)| *until)
    }
}
