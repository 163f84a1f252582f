//! Watched pods: those to be scheduled, and those with a node.
//!
//! ```text
//!   new ──its claims are known, or its time is over──▶ pending ──bound──▶ running ──▶ gone
//!    └────────────────── early ─────────────────▲
//! ```
//!
//! A pod never loses its node, and one with the same name and another UID is a different pod: contradicting events are
//! outdated, or come from a list that skipped what happened in between.

use super::early::EarlyPod;
use super::{PendingPod, Scheduler, scheduler_name};
use crate::cluster::RunningPod;
use crate::events::ClusterEvent;
use crate::pod::Footprint;
use crate::queue::PodKey;
use berth_core::api::{self, Kind, Object};
use berth_core::nodes::NodeId;
use std::sync::Arc;
use std::time::Duration;

impl Scheduler {
    pub(super) fn upsert_pod(&mut self, pod: &api::Pod, now: Duration) {
        let key: PodKey = pod.metadata.full_name().into();
        let early = self.early.take(&key);
        if self.has_namesake(&key, pod) {
            self.remove_pod(&pod.metadata.namespace, &pod.metadata.name, now);
        }
        if !pod.spec.node_name.is_empty() {
            self.refusals.note(pod, now);
            match self.cluster.binder().node(&pod.spec.node_name) {
                Some(node) => self.settle_room(&key, node, now),
                None => self.give_up_room(&key, now),
            }
            self.confirm_binding(&key, pod);
            self.drop_pending(&key, now);
            self.track_running(pod, now);
            return;
        }
        let ours = self.profiles.contains_key(scheduler_name(pod));
        if !ours || pod.is_finished() || pod.metadata.is_deleting() {
            // No one waits for it to leave a node: it gets none.
            self.evicted(&key, None);
            self.give_up_room(&key, now);
            self.drop_pending(&key, now);
            return;
        }
        if self.has_node(&key, pod) {
            return;
        }
        let until = early
            .filter(|early| !is_another(&early.pod.metadata.uid, &pod.metadata.uid))
            .map_or(now + self.await_claims, |early| early.until);
        if self.pods.contains_key(&key) || until <= now || !self.hold_back(&key, pod, until) {
            self.admit(&key, pod, now);
        }
    }

    /// Whether a different pod with this name is known.
    fn has_namesake(&self, key: &PodKey, pod: &api::Pod) -> bool {
        let uid = &pod.metadata.uid;
        let pending = self.pods.get(key);
        pending.is_some_and(|known| is_another(&known.object.metadata.uid, uid))
            || self
                .known_running(&pod.metadata.namespace, &pod.metadata.name)
                .is_some_and(|running| is_another(&running.footprint.uid, uid))
    }

    /// Whether a pod that is observed without a node has one: its binding was accepted, and the watch lags behind.
    fn has_node(&self, key: &PodKey, pod: &api::Pod) -> bool {
        let running = self.known_running(&pod.metadata.namespace, &pod.metadata.name);
        let seen = running.is_some_and(|running| running.assumed.is_none());
        seen || self.is_bound(key)
    }

    /// Holds a pod back if one of its claims is unknown.
    fn hold_back(&mut self, key: &PodKey, pod: &api::Pod, until: Duration) -> bool {
        let Some(claim) = self.unknown_claim(pod) else {
            return false;
        };
        self.early.put(key, pod, &claim, until);
        true
    }

    /// The first unknown claim of a pod, as `namespace/name`.
    fn unknown_claim(&self, pod: &api::Pod) -> Option<String> {
        let namespace = self.cluster.symbols().get(&pod.metadata.namespace);
        let volumes = pod.spec.volumes.iter();
        let mut claims = volumes.filter_map(|volume| volume.claim_name(&pod.metadata.name));
        let unknown = claims.find(|name| {
            let known = namespace.and_then(|namespace| self.cluster.binder().claim_named(namespace, name));
            known.is_none()
        })?;
        Some(format!("{}/{unknown}", pod.metadata.namespace))
    }

    /// A claim is known: early pods that wait for it proceed, or wait for their next claim.
    pub(super) fn let_go(&mut self, claim: &str, now: Duration) {
        for EarlyPod { pod, until, .. } in self.early.take_waiting_for(claim) {
            let key: PodKey = pod.metadata.full_name().into();
            if !self.hold_back(&key, &pod, until) {
                self.admit(&key, &pod, now);
            }
        }
    }

    /// Releases overdue early pods: if their claims do not exist, the refusal is correct.
    pub(super) fn let_overdue_go(&mut self, now: Duration) {
        for EarlyPod { pod, .. } in self.early.take_overdue(now) {
            self.admit(&pod.metadata.full_name().into(), &pod, now);
        }
    }

    /// Adds or updates a pod to be scheduled.
    fn admit(&mut self, key: &PodKey, pod: &api::Pod, now: Duration) {
        let known = self.pods.get(key);
        let unchanged = known
            .is_some_and(|known| known.object.spec == pod.spec && known.object.metadata.labels == pod.metadata.labels);
        if known.is_some() {
            self.follow_nomination(key, &pod.status.nominated_node_name, now);
        } else {
            self.restore_nomination(key, &pod.status.nominated_node_name);
        }
        if unchanged {
            if let Some(known) = self.pods.get_mut(key) {
                let (known, seen) = (&mut known.object.metadata, &pod.metadata);
                known.resource_version.clone_from(&seen.resource_version);
                known.annotations.clone_from(&seen.annotations);
            }
            self.commit_again(key, now);
            return;
        }
        let Some(profile) = self.profiles.get(scheduler_name(pod)) else {
            return;
        };
        let adapted = profile.adapt(pod);
        // A pod whose binding is in progress keeps it: a changed spec is considered if the binding fails.
        let old = self.pods.remove(key);
        let known_before = old.is_some();
        let (said, nominations_sent, last_attempt, committed_before) = old.map_or_else(Default::default, |old| {
            self.cluster.release(&old.compiled);
            (old.said, old.nominations_sent, old.last_attempt, old.committed_before)
        });
        let compiled = self.cluster.compile(&adapted);
        let (priority, gated) = (pod.spec.priority.unwrap_or(0), !pod.spec.scheduling_gates.is_empty());
        let object = pod.clone();
        self.pods.insert(
            PodKey::clone(key),
            PendingPod {
                object,
                compiled,
                said,
                nominations_sent,
                last_attempt,
                committed_before,
                has_clean_claims: false,
            },
        );
        self.commit_again(key, now);
        let wait = self.refusals.wait(pod, now);
        self.queue.upsert(key, priority, gated, now);
        match wait.filter(|_| !known_before) {
            Some(wait) => self.queue.hold_off(key, now + wait, now),
            None => self.queue.wake(key, now),
        }
    }

    /// A pod with a node: the cluster counts it there.
    fn track_running(&mut self, pod: &api::Pod, now: Duration) {
        let before = self.running(&pod.metadata.namespace, &pod.metadata.name);
        self.cluster.upsert(&Object::Pod(Box::new(pod.clone())));
        let after = self.running(&pod.metadata.namespace, &pod.metadata.name);
        if after.is_none() {
            self.evicted(&pod.metadata.full_name(), None);
        } else {
            self.evicted(&pod.metadata.full_name(), Some(&pod.metadata.uid));
        }
        match (before, after) {
            // Most changes of a running pod do not affect waiting pods.
            (Some((from, old)), Some((to, new))) if from == to && old.uid == new.uid => {
                if old.labels != new.labels {
                    let (node, pod) = (None, Arc::clone(&old));
                    self.happened(&ClusterEvent::PodGone { node, pod }, now);
                    let (node, pod) = (to, Arc::clone(&new));
                    self.happened(&ClusterEvent::PodPlaced { node, pod }, now);
                }
                if old.requests != new.requests {
                    self.happened(&ClusterEvent::PodResized { node: to }, now);
                }
                if old.terminating != new.terminating {
                    self.happened(&ClusterEvent::PodTerminating { pod: new }, now);
                }
            }
            (before, after) => {
                if let Some((node, pod)) = before {
                    self.left(node, pod, now);
                }
                if let Some((node, pod)) = after {
                    self.happened(&ClusterEvent::PodPlaced { node, pod }, now);
                }
            }
        }
    }

    /// The pod with this name that has a node, or is assumed to.
    fn known_running(&self, namespace: &str, name: &str) -> Option<&RunningPod> {
        let namespace = self.cluster.symbols().get(namespace)?;
        let pods = self.cluster.pods();
        pods.get(pods.find(namespace, name)?)
    }

    /// A pod that is counted on a node.
    fn running(&self, namespace: &str, name: &str) -> Option<(NodeId, Arc<Footprint>)> {
        let running = self.known_running(namespace, name)?;
        Some((running.node?, Arc::clone(&running.footprint)))
    }

    pub(super) fn remove_pod(&mut self, namespace: &str, name: &str, now: Duration) {
        let key: PodKey = format!("{namespace}/{name}").into();
        self.early.take(&key);
        self.evicted(&key, None);
        self.give_up_room(&key, now);
        self.drop_pending(&key, now);
        let running = self.running(namespace, name);
        self.cluster.remove(Kind::Pod, namespace, name);
        if let Some((node, pod)) = running {
            self.left(node, pod, now);
        }
    }

    /// A pod is no longer counted on a node.
    pub(super) fn left(&mut self, node: NodeId, pod: Arc<Footprint>, now: Duration) {
        let gone = ClusterEvent::PodGone { node: Some(node), pod };
        self.happened(&gone, now);
        self.room_was_made(node, now);
    }

    /// Drops a pod that no longer needs to be scheduled, with its binding if there is one.
    fn drop_pending(&mut self, key: &str, now: Duration) {
        self.end_binding(key, now);
        if let Some(pod) = self.pods.remove(key) {
            self.cluster.release(&pod.compiled);
            self.queue.remove(key);
        }
    }
}

/// Whether two UIDs are of different objects. Objects of files may have none.
fn is_another(known: &str, uid: &str) -> bool {
    !known.is_empty() && !uid.is_empty() && known != uid
}
