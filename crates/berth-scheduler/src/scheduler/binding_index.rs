//! The bindings in progress, indexed by pod, by chosen volumes, and by deadline.
//!
//! Most watched objects are unrelated to any binding, and there may be thousands of bindings: nothing here walks over
//! all.

use super::binding::Binding;
use crate::queue::PodKey;
use berth_core::model::{ClaimId, VolumeId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::time::Duration;

/// The bindings in progress. A deadline exists only while its binding waits for volumes.
#[derive(Debug, Default)]
pub(super) struct BindingIndex {
    by_pod: FxHashMap<PodKey, Binding>,
    /// By volume: the pods that chose it, each with its claim.
    by_volume: FxHashMap<VolumeId, SmallVec<[(PodKey, ClaimId); 1]>>,
    deadlines: BTreeSet<(Duration, PodKey)>,
}

impl BindingIndex {
    pub(super) fn insert(&mut self, key: &PodKey, binding: Binding) {
        self.remove(key);
        self.deadlines.insert((binding.deadline(), PodKey::clone(key)));
        for (claim, volume) in binding.chosen_volumes() {
            let pods = self.by_volume.entry(volume).or_default();
            pods.push((PodKey::clone(key), claim));
        }
        self.by_pod.insert(PodKey::clone(key), binding);
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Binding> {
        let (key, binding) = self.by_pod.remove_entry(key)?;
        for (_, volume) in binding.chosen_volumes() {
            if let Some(pods) = self.by_volume.get_mut(&volume) {
                pods.retain(|(pod, _)| *pod != key);
                if pods.is_empty() {
                    self.by_volume.remove(&volume);
                }
            }
        }
        self.deadlines.remove(&(binding.deadline(), key));
        Some(binding)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Binding> {
        self.by_pod.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Binding> {
        self.by_pod.get_mut(key)
    }

    pub(super) fn len(&self) -> usize {
        self.by_pod.len()
    }

    /// All bindings.
    pub(super) fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.by_pod.values()
    }

    /// All pods with a binding.
    pub(super) fn keys(&self) -> Vec<PodKey> {
        self.by_pod.keys().map(PodKey::clone).collect()
    }

    /// The pods whose bindings chose a volume, with their claims.
    pub(super) fn of_volume(&self, volume: VolumeId) -> SmallVec<[(PodKey, ClaimId); 1]> {
        self.by_volume.get(&volume).cloned().unwrap_or_default()
    }

    /// The volumes of a binding are bound: its deadline is met.
    pub(super) fn volumes_are_bound(&mut self, key: &PodKey) {
        if let Some(binding) = self.by_pod.get(key) {
            self.deadlines.remove(&(binding.deadline(), PodKey::clone(key)));
        }
    }

    /// The first deadline of a binding that still waits for its volumes.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The pods whose bindings wait for their volumes beyond the deadline.
    pub(super) fn overdue(&self, now: Duration) -> Vec<PodKey> {
        let past = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        past.map(|(_, key)| PodKey::clone(key)).collect()
    }
}
