//! Preemption for refused pods: evictions in progress, and nominated nodes.
//!
//! ```text
//!   refused ──victims found──▶ nominated ──victims gone, woken──▶ placed on its node, or decided again
//!                                  │
//!                                  ├── its eviction failed: retried after its backoff
//!                                  ├── the node is gone, or useless whatever leaves it: room is made elsewhere
//!                                  └── nothing helps any more, or a more important pod needs the room: not nominated
//! ```

use super::{Effect, Outcome, PendingPod, PodRef, Scheduler, Write, WriteOutcome};
use crate::cluster::Cluster;
use crate::cluster::PodId;
use crate::diagnose::Diagnosis;
use crate::events::ClusterEvent;
use crate::framework::{Code, PluginSet};
use crate::nominated::{Nominated, Question};
use crate::preemption::{Candidate, Preemption, best, preempt};
use crate::queue::Place;
use crate::queue::PodKey;
use berth_core::nodes::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The nominated nodes of pods, by name.
pub(super) type Nominations = BTreeMap<PodKey, Box<str>>;

/// Maximum number of nominations of a pod remembered until the watch shows them. It does so within a second, and a pod is
/// nominated at most once per try.
const MAX_NOMINATIONS_SENT: usize = 4;

impl PendingPod {
    /// The nominated node in the API, now or after the pending writes; empty for none.
    fn told_destination(&self) -> &str {
        let sent = self.nominations_sent.last();
        sent.map_or(&self.object.status.nominated_node_name, |node| node)
    }

    /// Whether a nominated node in the API came from this scheduler. If so, it and earlier ones have been observed.
    fn is_own_nomination(&mut self, node: &str) -> bool {
        let sent = &mut self.nominations_sent;
        if sent.last().is_some_and(|last| **last == *node) {
            sent.clear();
            return true;
        }
        let found = sent.iter().position(|sent| **sent == *node);
        if let Some(at) = found {
            sent.drain(..=at);
        }
        found.is_some()
    }
}

/// A pod that was evicted and still exists.
#[derive(Debug)]
pub(super) struct Eviction {
    pub(super) by: PodKey,
    /// The profile of that pod.
    scheduler: String,
    victim: PodRef,
    /// Its node.
    node: Box<str>,
    /// The message about the victim.
    message: String,
}

/// The nominations that matter to a pod.
pub(super) fn nominated<'a>(
    nominations: &Nominations,
    pods: &'a FxHashMap<PodKey, PendingPod>,
    cluster: &Cluster,
    key: &PodKey,
) -> Nominated<'a> {
    let mut nominated = Nominated::default();
    let Some(priority) = pods.get(key).map(|pod| pod.compiled.footprint.priority) else {
        return nominated;
    };
    for (other, node) in nominations {
        let Some(node) = cluster.binder().node(node) else {
            continue;
        };
        if other == key {
            nominated.own = Some(node);
        } else if let Some(pod) = pods.get(other)
            && pod.compiled.footprint.priority >= priority
        {
            nominated.others.push((node, &pod.compiled));
        }
    }
    nominated
}

impl Scheduler {
    /// Tries preemption for a refused pod. Returns its message, and which plugins would refuse it even without others.
    pub(super) fn make_room(
        &mut self,
        key: &PodKey,
        diagnosis: &Diagnosis,
        now: Duration,
    ) -> (Option<String>, PluginSet) {
        if diagnosis.node_count == 0 {
            // There are no victims, and nothing to report about it.
            self.withdraw(key, now);
            return (None, PluginSet::default());
        }
        match self.preemption(key, diagnosis) {
            None => (None, PluginSet::default()),
            Some(Preemption::NotTried(message)) => (message, PluginSet::default()),
            Some(Preemption::Helpless(message, refused_by)) => {
                self.withdraw(key, now);
                (Some(message), refused_by)
            }
            Some(Preemption::Evict(candidates)) => {
                if !self.consult_about_victims(key, &candidates)
                    && let Some(candidate) = best(&self.cluster, candidates)
                {
                    self.evict(key, &candidate, now);
                }
                (None, PluginSet::default())
            }
        }
    }

    fn preemption(&mut self, key: &PodKey, diagnosis: &Diagnosis) -> Option<Preemption> {
        if self.waits_for_victims(key, diagnosis) {
            let message = "preemption: not eligible due to a terminating pod on the nominated node.";
            return Some(Preemption::NotTried(Some(message.to_owned())));
        }
        let pod = self.pods.get(key)?;
        let question = Question {
            pod: &pod.compiled,
            profile: self.profiles.get(pod.scheduler_name())?,
            states: &self.scratch.states,
            nominated: &nominated(&self.nominations, &self.pods, &self.cluster, key),
        };
        Some(preempt(&mut self.cluster, &question, diagnosis))
    }

    /// Whether victims are still terminating on the nominated node of a pod, and the node is useful without them.
    fn waits_for_victims(&self, key: &PodKey, diagnosis: &Diagnosis) -> bool {
        let Some(nominated) = self.nominations.get(key) else {
            return false;
        };
        let Some(node) = self.cluster.binder().node(nominated) else {
            return false;
        };
        let mut refusals = diagnosis.nodes.iter().filter(|(refused, _)| *refused == node);
        let is_useless = refusals.any(|(_, refusal)| refusal.code == Code::UnschedulableAndUnresolvable);
        let mut evictions = self.evictions.values();
        !is_useless && evictions.any(|eviction| eviction.by == *key && eviction.node == *nominated)
    }

    /// A pod to evict, by name.
    pub(super) fn victim(&self, victim: PodId) -> Option<PodRef> {
        let footprint = &self.cluster.pods().get(victim)?.footprint;
        let namespace = self.cluster.symbols().text(footprint.namespace);
        Some(PodRef {
            key: format!("{namespace}/{}", footprint.name).into(),
            uid: footprint.uid.to_string(),
        })
    }

    pub(super) fn evict(&mut self, key: &PodKey, candidate: &Candidate, now: Duration) {
        let Some(preemptor) = self.pods.get(key) else {
            return;
        };
        let (uid, priority) = (
            preemptor.object.metadata.uid.clone(),
            preemptor.compiled.footprint.priority,
        );
        let (reference, scheduler) = (preemptor.reference(key), preemptor.scheduler_name().to_owned());
        let node = self.node_name(candidate.node);
        for victim in &candidate.victims {
            let running = self.cluster.pods().get(*victim);
            // A pod that is already terminating need not be evicted again.
            if running.is_none_or(|running| running.footprint.terminating) {
                continue;
            }
            let Some(victim) = self.victim(*victim) else {
                continue;
            };
            let write = Write::EvictPod {
                pod: victim.clone(),
                by: PodKey::clone(key),
            };
            let id = self.write(key, write);
            let eviction = Eviction {
                by: PodKey::clone(key),
                scheduler: scheduler.clone(),
                victim,
                node: node.as_str().into(),
                message: format!("Preempted by pod {uid} on node {node}"),
            };
            self.evictions.insert(id, eviction);
        }
        self.nominate(reference, &node, now);
        self.withdraw_lesser(&node, priority, now);
    }

    /// Withdraws nominations of lower priority on a node: its room goes to a more important pod.
    fn withdraw_lesser(&mut self, node: &str, priority: i32, now: Duration) {
        let lesser = |key: &PodKey| {
            let pod = self.pods.get(key);
            pod.is_some_and(|pod| pod.compiled.footprint.priority < priority)
        };
        let keys: Vec<_> = self.nominated_to(node).filter(lesser).collect();
        for key in keys {
            self.withdraw(&key, now);
            self.queue.wake(&key, now);
        }
    }

    /// The pods that are nominated to a node.
    fn nominated_to(&self, node: &str) -> impl Iterator<Item = PodKey> {
        let on_node = self.nominations.iter().filter(move |(_, found)| ***found == *node);
        on_node.map(|(key, _)| PodKey::clone(key))
    }

    /// A node was removed: pods nominated there must look elsewhere.
    pub(super) fn room_is_gone(&mut self, node: &str, now: Duration) {
        for key in self.nominated_to(node).collect::<Vec<_>>() {
            self.withdraw(&key, now);
            self.queue.wake(&key, now);
        }
    }

    /// A node changed: pods nominated there may have to look elsewhere.
    pub(super) fn room_changed(&mut self, node: &str, now: Duration) {
        for key in self.nominated_to(node).collect::<Vec<_>>() {
            self.queue.wake(&key, now);
        }
    }

    /// A pod left a node: pods nominated there that wait for no other victim are tried. They may have been refused for another reason
    /// meanwhile, and room that they cannot use goes to others.
    pub(super) fn room_was_made(&mut self, node: NodeId, now: Duration) {
        if self.nominations.is_empty() {
            return;
        }
        let node = self.node_name(node);
        let waits_on = |key: &PodKey| self.evictions.values().any(|eviction| eviction.by == *key);
        let keys: Vec<_> = self.nominated_to(&node).filter(|key| !waits_on(key)).collect();
        for key in keys {
            self.queue.wake(&key, now);
        }
    }

    fn nominate(&mut self, pod: PodRef, node: &str, now: Duration) {
        if self.nominations.get(&pod.key).is_some_and(|before| **before == *node) {
            return;
        }
        // Room elsewhere is no longer needed.
        self.give_up_room(&pod.key, now);
        self.nominations.insert(PodKey::clone(&pod.key), node.into());
        self.tell_nomination(pod, node);
    }

    /// Writes the nominated node of a pod to the API; empty for none.
    fn tell_nomination(&mut self, pod: PodRef, node: &str) {
        if let Some(known) = self.pods.get_mut(&pod.key) {
            // A nomination that was sent long ago and not observed was lost.
            let lost = (known.nominations_sent.len() + 1).saturating_sub(MAX_NOMINATIONS_SENT);
            known.nominations_sent.drain(..lost);
            known.nominations_sent.push(node.into());
        }
        let node = node.to_owned();
        self.effects.push(Effect::Nominate { pod, node });
    }

    /// Writes the destination of a pod to the API, empty for none, unless it is already written.
    pub(super) fn tell_destination(&mut self, key: &PodKey, node: &str) {
        if let Some(pod) = self.pods.get(key)
            && pod.told_destination() != node
        {
            let reference = pod.reference(key);
            self.tell_nomination(reference, node);
        }
    }

    /// A pod no longer waits for room, although it was not scheduled: others may use the room.
    pub(super) fn withdraw(&mut self, key: &PodKey, now: Duration) {
        if !self.nominations.contains_key(key) {
            return;
        }
        if let Some(pod) = self.pods.get(key) {
            let pod = pod.reference(key);
            self.tell_nomination(pod, "");
        }
        self.give_up_room(key, now);
    }

    /// A pod has a node: it no longer needs room, unless that is its nominated node.
    pub(super) fn settle_room(&mut self, key: &PodKey, node: NodeId, now: Duration) {
        let promised = self.nominations.get(key);
        if promised.is_some_and(|promised| self.cluster.binder().node(promised) == Some(node)) {
            self.nominations.remove(key);
        } else {
            self.give_up_room(key, now);
        }
    }

    /// A pod no longer needs its nominated room: others may use it.
    pub(super) fn give_up_room(&mut self, key: &PodKey, now: Duration) {
        let node = self.nominations.remove(key);
        let node = node.and_then(|node| self.cluster.binder().node(&node));
        let pod = self.pods.get(key).map(|pod| Arc::clone(&pod.compiled.footprint));
        if let (Some(node), Some(pod)) = (node, pod) {
            let node = Some(node);
            self.happened(&ClusterEvent::PodGone { node, pod }, now);
        }
    }

    /// Restores the nominated node from the API, so that a restart loses no nomination.
    pub(super) fn restore_nomination(&mut self, key: &PodKey, node: &str) {
        if !node.is_empty() {
            self.nominations.insert(PodKey::clone(key), node.into());
        }
    }

    /// Applies a nomination by another component for a waiting pod, or its removal.
    pub(super) fn follow_nomination(&mut self, key: &PodKey, node: &str, now: Duration) {
        // A pod in its cycle has a node, or gets one by a decision in progress.
        let in_cycle = self.queue.place(key) == Some(Place::InCycle);
        let Some(known) = self.pods.get_mut(key) else {
            return;
        };
        let status = &mut known.object.status;
        if status.nominated_node_name == node {
            return;
        }
        node.clone_into(&mut status.nominated_node_name);
        let is_own = known.is_own_nomination(node);
        let is_known = self.nominations.get(key).is_some_and(|known| **known == *node);
        if !(is_own || is_known || in_cycle) {
            self.give_up_room(key, now);
            self.restore_nomination(key, node);
            // Whether it fits there shows when it is tried. If it does not, it must not hold the room.
            self.queue.wake(key, now);
        }
    }

    /// Applies the result of an eviction.
    pub(super) fn eviction_written(&mut self, id: super::WriteId, outcome: &WriteOutcome) {
        match outcome {
            WriteOutcome::Done { .. } => {
                let Some(eviction) = self.evictions.get(&id) else {
                    return;
                };
                self.counts.victims += 1;
                self.effects.push(Effect::Event {
                    pod: eviction.victim.clone(),
                    source: eviction.scheduler.clone(),
                    outcome: Outcome::Preempted,
                    message: eviction.message.clone(),
                });
            }
            WriteOutcome::Failed { .. } | WriteOutcome::Overtaken { .. } | WriteOutcome::Unknown { .. } => {
                if let Some(eviction) = self.evictions.remove(&id) {
                    self.queue.back_off(&eviction.by);
                }
            }
        }
    }

    /// A pod is gone, or replaced by another one with its name: it is no longer awaited.
    pub(super) fn evicted(&mut self, key: &str, uid: Option<&str>) {
        self.evictions.retain(|_, eviction| {
            let same_name = *eviction.victim.key == *key;
            !same_name || uid.is_some_and(|uid| uid == eviction.victim.uid)
        });
    }
}
