//! Pods that arrived before their claims.
//!
//! Watches of different kinds are independent, so a pod can be observed a moment before its claim. If it were decided
//! at once, it would be refused, and wait for its whole backoff. Such a pod is held back until its claims are known,
//! but only briefly: if they do not appear, the refusal is correct.
//!
//! A held pod waits for one claim at a time, so that a list of claims costs no more than its length.

use crate::queue::PodKey;
use berth_core::api;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::time::Duration;

/// The pods that are held back, indexed by the claims that they wait for and by deadline.
#[derive(Debug, Default)]
pub(super) struct Hold {
    pods: FxHashMap<PodKey, Held>,
    by_claim: FxHashMap<Box<str>, SmallVec<[PodKey; 1]>>,
    deadlines: BTreeSet<(Duration, PodKey)>,
}

/// A pod that is held back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) pod: Box<api::Pod>,
    /// Its deadline.
    pub(super) until: Duration,
    /// The claim that it waits for, as `namespace/name`.
    claim: Box<str>,
}

impl Hold {
    /// Holds a pod back until a claim is known.
    pub(super) fn put(&mut self, key: &PodKey, pod: &api::Pod, claim: &str, until: Duration) {
        self.take(key);
        let held = Held {
            pod: Box::new(pod.clone()),
            until,
            claim: claim.into(),
        };
        let waiting = self.by_claim.entry(claim.into()).or_default();
        waiting.push(PodKey::clone(key));
        self.deadlines.insert((until, PodKey::clone(key)));
        self.pods.insert(PodKey::clone(key), held);
    }

    /// Releases a pod.
    pub(super) fn take(&mut self, key: &str) -> Option<Held> {
        let (key, held) = self.pods.remove_entry(key)?;
        if let Some(waiting) = self.by_claim.get_mut(&held.claim) {
            waiting.retain(|pod| *pod != key);
            if waiting.is_empty() {
                self.by_claim.remove(&held.claim);
            }
        }
        self.deadlines.remove(&(held.until, key));
        Some(held)
    }

    /// Releases the pods that wait for a claim.
    pub(super) fn take_waiting_for(&mut self, claim: &str) -> Vec<Held> {
        let keys = self.by_claim.get(claim).cloned().unwrap_or_default();
        keys.iter().filter_map(|key| self.take(key)).collect()
    }

    /// Releases the pods whose deadline has passed.
    pub(super) fn take_overdue(&mut self, now: Duration) -> Vec<Held> {
        let past = self.deadlines.iter().take_while(|(until, _)| *until <= now);
        let keys: Vec<_> = past.map(|(_, key)| PodKey::clone(key)).collect();
        keys.iter().filter_map(|key| self.take(key)).collect()
    }

    /// The first deadline.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _)| *until)
    }
}
