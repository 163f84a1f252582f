//! Binding a placed pod: its volumes first, then the pod itself.
//!
//! ```text
//!   start ──▶ writing ──all written──▶ waiting ──all claims bound──▶ binding the pod ──written──▶ done
//!                │                        │                                │
//!                └─────────────── failed, timed out, something gone ───────┘
//!                                         ▼
//!                          what was not written is reverted; the pod waits
//! ```
//!
//! Volumes are reserved first, and nodes selected for claims only when every volume is: a reservation can be lost to
//! another writer, and a volume that is being made cannot be taken back. When a write fails, the others under way are
//! waited for, so that the next attempt knows what was written and goes on from there.
//!
//! Nothing is polled: a write that was answered, a watched object or the deadline moves a binding on.

use super::{Scheduler, Write, WriteId, WriteOutcome};
use crate::cluster::AssumedPod;
use crate::events::ClusterEvent;
use crate::framework::{PluginName, PreFilter};
use crate::plugins;
use crate::queue::PodKey;
use berth_core::api::{self, Object};
use berth_core::binder::{Assumption, NodeVolumes};
use berth_core::model::{ClaimId, VolumeId};
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// What is said when there is nowhere to go any more.
const NODE_GONE: &str = "the chosen node is gone";
/// The plugins that are asked once more about the chosen node when the volumes are bound.
const VOLUME_FILTERS: [PluginName; 4] = [
    PluginName::VolumeRestrictions,
    PluginName::NodeVolumeLimits,
    PluginName::VolumeBinding,
    PluginName::VolumeZone,
];

/// A placed pod on its way.
#[derive(Debug)]
pub(super) struct Binding {
    node: NodeId,
    /// Its name: another node may get the number of one that is gone.
    node_name: Symbol,
    volumes: NodeVolumes,
    assumption: Assumption,
    assumed_pod: AssumedPod,
    stage: Stage,
    deadline: Duration,
    /// Claims for which the node is selected when the volumes are reserved.
    unselected: SmallVec<[ClaimId; 2]>,
    /// Why the binding fails, when the writes under way are answered.
    failed: Option<String>,
    /// The versions that the API server gave to what was written; older states are not yet the outcome.
    written: SmallVec<[(Target, u64); 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Volume(VolumeId),
    Claim(ClaimId),
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Writes that were not yet answered.
    Writing(SmallVec<[(WriteId, Target); 2]>),
    /// Until the claims are bound.
    Waiting,
    /// Until the API server has taken the pod's node.
    BindingPod(WriteId),
    /// Until the watch shows it.
    Bound,
}

/// How far the volumes of a binding are.
enum Progress {
    Waiting,
    Bound,
    Failed(String),
}

impl Binding {
    pub(super) fn new(
        (node, node_name): (NodeId, Symbol),
        volumes: NodeVolumes,
        assumption: Assumption,
        assumed_pod: AssumedPod,
        deadline: Duration,
    ) -> Self {
        Self {
            node,
            node_name,
            volumes,
            assumption,
            assumed_pod,
            stage: Stage::Writing(SmallVec::new()),
            deadline,
            unselected: SmallVec::new(),
            failed: None,
            written: SmallVec::new(),
        }
    }

    /// When the volumes must be bound.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The existing volumes that it chose.
    pub(super) fn chosen_volumes(&self) -> impl Iterator<Item = VolumeId> + use<> {
        self.volumes.bindings.clone().into_iter().map(|(_, volume)| volume)
    }

    /// The API server has taken a write.
    fn took(&mut self, target: Target, version: u64) {
        self.written.push((target, version));
        match target {
            Target::Volume(volume) => self.assumption.volume_written(volume),
            Target::Claim(claim) => self.assumption.claim_written(claim),
        }
    }

    fn claims(&self) -> impl Iterator<Item = ClaimId> + '_ {
        let bindings = self.volumes.bindings.iter().map(|(claim, _)| *claim);
        bindings.chain(self.volumes.provisions.iter().copied())
    }
}

impl Scheduler {
    /// Sends the first writes of a binding, all at once.
    pub(super) fn start_binding(&mut self, key: &PodKey, mut binding: Binding, now: Duration) {
        let mut outstanding = SmallVec::new();
        for (claim, volume) in binding.volumes.bindings.clone() {
            if binding.assumption.volumes().contains(&volume)
                && let Some(write) = self.reserve_volume(volume, claim)
            {
                outstanding.push((self.write(key, write), Target::Volume(volume)));
            }
        }
        binding.unselected = binding.assumption.claims().into();
        binding.stage = Stage::Writing(outstanding);
        if let Some(pod) = self.pods.get(key) {
            for claim in pod.claims() {
                self.waiting_for_claim
                    .entry(claim)
                    .or_default()
                    .push(PodKey::clone(key));
            }
        }
        self.bindings.insert(key, binding);
        self.when_answered(key, now);
    }

    /// Goes on if all writes under way are answered: fails, sends those that come second, or waits for their outcome.
    fn when_answered(&mut self, key: &PodKey, now: Duration) {
        let Some(binding) = self.bindings.get_mut(key) else {
            return;
        };
        if !matches!(&binding.stage, Stage::Writing(outstanding) if outstanding.is_empty()) {
            return;
        }
        if let Some(message) = binding.failed.take() {
            self.fail_binding(key, "FailedScheduling", message, now);
            return;
        }
        let (claims, node) = (std::mem::take(&mut binding.unselected), binding.node);
        // A selected node is not taken back: a volume may be made for it at once.
        if !claims.is_empty() && self.cluster.nodes().name(node) != binding.node_name {
            self.fail_binding(key, "FailedScheduling", NODE_GONE.to_owned(), now);
            return;
        }
        let mut outstanding = SmallVec::new();
        for claim in claims {
            if let Some(write) = self.select_node(claim, node) {
                outstanding.push((self.write(key, write), Target::Claim(claim)));
            }
        }
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.stage = Stage::Writing(outstanding);
        }
        self.move_on(key, now);
    }

    fn reserve_volume(&self, volume: VolumeId, claim: ClaimId) -> Option<Write> {
        let binder = self.cluster.binder();
        let (volume, claim) = (binder.volume(volume)?, binder.claim(claim)?);
        Some(Write::ReserveVolume {
            volume: volume.name.to_string(),
            version: volume.version,
            namespace: binder.symbols().text(claim.namespace).to_owned(),
            claim: claim.name.to_string(),
            uid: claim.uid.to_string(),
        })
    }

    fn select_node(&self, claim: ClaimId, node: NodeId) -> Option<Write> {
        let binder = self.cluster.binder();
        let claim = binder.claim(claim)?;
        Some(Write::SelectNode {
            namespace: binder.symbols().text(claim.namespace).to_owned(),
            claim: claim.name.to_string(),
            version: claim.version,
            node: self.node_name(node),
        })
    }

    pub(super) fn node_name(&self, node: NodeId) -> String {
        let name = self.cluster.nodes().name(node);
        self.cluster.symbols().text(name).to_owned()
    }

    /// Takes over how a write went.
    pub fn written(&mut self, id: WriteId, outcome: &WriteOutcome, now: Duration) {
        let Some(key) = self.writes.remove(&id) else {
            return;
        };
        if self.evictions.contains_key(&id) {
            self.eviction_written(id, outcome, now);
            return;
        }
        let Some(binding) = self.bindings.get_mut(&key) else {
            return;
        };
        match (&mut binding.stage, outcome) {
            (Stage::Writing(outstanding), outcome) => {
                let Some(at) = outstanding.iter().position(|(write, _)| *write == id) else {
                    return;
                };
                let (_, target) = outstanding.remove(at);
                match outcome {
                    WriteOutcome::Done { version } => binding.took(target, *version),
                    WriteOutcome::Failed { problem } => {
                        let message = format!("running PreBind plugin \"VolumeBinding\": {problem}");
                        binding.failed.get_or_insert(message);
                    }
                }
                self.when_answered(&key, now);
            }
            (Stage::BindingPod(write), WriteOutcome::Done { .. }) if *write == id => {
                binding.stage = Stage::Bound;
                self.pod_bound(&key);
            }
            (Stage::BindingPod(write), WriteOutcome::Failed { problem }) if *write == id => {
                self.fail_binding(&key, "FailedBinding", format!("binding rejected: {problem}"), now);
            }
            // An answer to a write that nobody waits for any more.
            (Stage::Waiting | Stage::Bound | Stage::BindingPod(_), _) => {}
        }
    }

    fn pod_bound(&mut self, key: &PodKey) {
        self.counts.scheduled += 1;
        let (Some(pod), Some(binding)) = (self.pods.get_mut(key), self.bindings.get(key)) else {
            return;
        };
        pod.said = None;
        let reference = pod.reference(key);
        let node = self.cluster.symbols().text(binding.node_name);
        let message = format!("Successfully assigned {key} to {node}");
        self.queue.remove(key);
        self.event(reference, false, "Scheduled", message);
    }

    /// Moves a binding on as far as it goes.
    fn move_on(&mut self, key: &PodKey, now: Duration) {
        let Some(binding) = self.bindings.get(key) else {
            return;
        };
        match &binding.stage {
            Stage::Writing(outstanding) if !outstanding.is_empty() => {}
            Stage::Writing(_) | Stage::Waiting => match self.progress(binding) {
                Progress::Waiting => {
                    if let Some(binding) = self.bindings.get_mut(key) {
                        binding.stage = Stage::Waiting;
                    }
                }
                Progress::Bound => self.bind_pod(key, now),
                Progress::Failed(message) => self.fail_binding(key, "FailedScheduling", message, now),
            },
            Stage::BindingPod(_) | Stage::Bound => {}
        }
    }

    /// How far the volumes are: every claim must be bound, or still be on its way to what was decided.
    fn progress(&self, binding: &Binding) -> Progress {
        let binder = self.cluster.binder();
        let node = binding.node_name;
        if self.cluster.nodes().name(binding.node) != node {
            return Progress::Failed(NODE_GONE.to_owned());
        }
        let behind = |target: Target, version: u64| {
            let of_target = binding.written.iter().find(|(written, _)| *written == target);
            of_target.is_some_and(|(_, written)| version < *written)
        };
        let mut all_bound = true;
        for id in binding.claims() {
            let Some(claim) = binder.claim(id) else {
                return Progress::Failed("a claim of the pod was deleted".to_owned());
            };
            if claim.deleting {
                return Progress::Failed(format!("claim {:?} is being deleted", claim.name));
            }
            if claim.is_bound() {
                continue;
            }
            all_bound = false;
            let provisioned = binding.volumes.provisions.contains(&id);
            if provisioned && claim.selected_node != node && !behind(Target::Claim(id), claim.version) {
                let problem = if claim.selected_node.is_empty() {
                    "was cleared"
                } else {
                    "was changed"
                };
                return Progress::Failed(format!("selected-node of claim {:?} {problem}", claim.name));
            }
        }
        for (claim, volume_id) in &binding.volumes.bindings {
            let claim = binder.claim(*claim).filter(|claim| !claim.is_bound());
            let Some(claim) = claim else {
                continue;
            };
            let Some(volume) = binder.volume(*volume_id) else {
                return Progress::Failed(format!("the volume chosen for claim {:?} was deleted", claim.name));
            };
            if !volume.is_for(claim) && !behind(Target::Volume(*volume_id), volume.version) {
                return Progress::Failed(format!(
                    "volume {:?} is no longer reserved for claim {:?}",
                    volume.name, claim.name
                ));
            }
        }
        if all_bound { Progress::Bound } else { Progress::Waiting }
    }

    /// All claims are bound: asks the volume filters once more about the node, then binds the pod.
    fn bind_pod(&mut self, key: &PodKey, now: Duration) {
        let Some(binding) = self.bindings.get(key) else {
            return;
        };
        let (node, had_volumes) = (binding.node, !binding.volumes.is_empty());
        if had_volumes && let Some(message) = self.refused_after_all(key, node) {
            self.fail_binding(key, "FailedScheduling", message, now);
            return;
        }
        let node_name = self.node_name(node);
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let write = Write::BindPod {
            pod: pod.reference(key),
            node: node_name,
        };
        let id = self.write(key, write);
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.stage = Stage::BindingPod(id);
        }
        self.bindings.volumes_are_bound(key);
    }

    /// Why the volume filters refuse the chosen node now that the real volumes are known.
    fn refused_after_all(&mut self, key: &PodKey, node: NodeId) -> Option<String> {
        let pod = self.pods.get(key)?;
        let profile = self.profiles.get(pod.scheduler_name())?;
        // The pod must not be held against itself while it is asked about once more.
        let compiled = &pod.compiled;
        let binding = self.bindings.get_mut(key)?;
        self.cluster.forget_assumed(&binding.assumed_pod);
        let refusal = VOLUME_FILTERS
            .into_iter()
            .filter(|plugin| profile.filters.contains(plugin))
            .find_map(
                |plugin| match plugins::pre_filter(plugin, &mut self.cluster, compiled, profile) {
                    PreFilter::Skip => None,
                    PreFilter::Refused(refusal) => Some(refusal),
                    PreFilter::Ready { state, .. } => state.filter(&self.cluster, node),
                },
            );
        binding.assumed_pod = self.cluster.assume_pod(compiled, node);
        let reasons: Vec<_> = refusal?.reasons.iter().map(ToString::to_string).collect();
        Some(format!(
            "the bound volumes do not suit the chosen node: {}",
            reasons.join(", ")
        ))
    }

    /// Undoes what was not written, says why, and has the pod tried again after its backoff.
    fn fail_binding(&mut self, key: &PodKey, reason: &'static str, message: String, now: Duration) {
        self.counts.errors += 1;
        self.revert_binding(key, now);
        if reason == "FailedScheduling" {
            self.say(key, "SchedulerError", message);
        } else if let Some(pod) = self.pods.get(key) {
            let reference = pod.reference(key);
            self.event(reference, true, reason, message);
        }
        self.queue.failed(key, now);
    }

    /// Gives back what a binding held: others may want it, or have relied on what it was to write.
    fn revert_binding(&mut self, key: &str, now: Duration) {
        let Some(binding) = self.bindings.remove(key) else {
            return;
        };
        let held: SmallVec<[_; 2]> = binding.assumption.volumes().into();
        let selected = !binding.assumption.claims().is_empty();
        self.cluster.binder_mut().revert(binding.assumption);
        let assumed = self.cluster.assumed(&binding.assumed_pod);
        let pod = assumed.map(|running| Arc::clone(&running.footprint));
        self.cluster.forget(binding.assumed_pod);
        let claims = self.stop_waiting(key);
        let node = Some(binding.node).filter(|node| self.cluster.nodes().name(*node) == binding.node_name);
        if let Some(pod) = pod {
            self.happened(&ClusterEvent::PodGone { node, pod }, now);
        }
        // A claim that was to be provisioned for the node may go elsewhere now.
        for claim in claims.iter().filter(|_| selected) {
            let claim = claim.as_str().into();
            self.happened(&ClusterEvent::Claim { claim }, now);
        }
        for volume in held {
            if let Some(volume) = self.cluster.binder().volume(volume) {
                let (name, class) = ((*volume.name).into(), volume.class);
                self.happened(&ClusterEvent::Volume { name, class }, now);
            }
        }
        for claim in claims {
            self.check_binding_of_claim(&claim, now);
        }
    }

    /// A pod waits for its claims no more. Returns them.
    fn stop_waiting(&mut self, key: &str) -> Vec<String> {
        let Some(pod) = self.pods.get(key) else {
            return Vec::new();
        };
        let claims: Vec<_> = pod.claims().collect();
        for claim in &claims {
            if let Some(pods) = self.waiting_for_claim.get_mut(claim) {
                pods.retain(|pod| **pod != *key);
                if pods.is_empty() {
                    self.waiting_for_claim.remove(claim);
                }
            }
        }
        claims
    }

    /// The watch shows a pod on a node: if it is being bound there, it is bound, whether or not the answer came.
    pub(super) fn confirm_binding(&mut self, key: &PodKey, pod: &api::Pod) {
        let ours = self.pods.get(key);
        let same_pod = ours.is_some_and(|ours| ours.object.metadata.uid == pod.metadata.uid);
        if let Some(binding) = self.bindings.get_mut(key).filter(|_| same_pod)
            && matches!(binding.stage, Stage::BindingPod(_))
            && self.cluster.symbols().text(binding.node_name) == pod.spec.node_name
        {
            binding.stage = Stage::Bound;
            self.pod_bound(key);
        }
    }

    /// Ends the binding of a pod that the watch shows bound or gone. What was written stays as it is.
    pub(super) fn end_binding(&mut self, key: &str, now: Duration) {
        let done = self
            .bindings
            .get(key)
            .is_some_and(|binding| binding.stage == Stage::Bound);
        if done {
            if let Some(binding) = self.bindings.remove(key) {
                binding.assumption.keep();
                self.stop_waiting(key);
            }
        } else {
            self.revert_binding(key, now);
        }
    }

    /// A watched object may be what a binding waits for.
    pub(super) fn move_bindings_on(&mut self, object: &Object, now: Duration) {
        match object {
            Object::PersistentVolumeClaim(claim) => self.check_binding_of_claim(&claim.metadata.full_name(), now),
            Object::PersistentVolume(volume) => {
                if let Some(claim) = &volume.spec.claim_ref {
                    self.check_binding_of_claim(&format!("{}/{}", claim.namespace, claim.name), now);
                } else if let Some(volume) = self.cluster.binder().volume_id(&volume.metadata.name) {
                    self.check_bindings_of_volume(volume, now);
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_binding_of_claim(&mut self, claim: &str, now: Duration) {
        for key in self.waiting_for_claim.get(claim).cloned().unwrap_or_default() {
            self.move_on(&key, now);
        }
    }

    /// A volume without a claim can only matter to a binding that chose it.
    pub(super) fn check_bindings_of_volume(&mut self, volume: VolumeId, now: Duration) {
        for key in self.bindings.of_volume(volume) {
            self.move_on(&key, now);
        }
    }

    pub(super) fn check_all_bindings(&mut self, now: Duration) {
        for key in self.bindings.keys() {
            self.move_on(&key, now);
        }
    }

    /// Ends the bindings that took too long, and moves on the pods whose backoff is over.
    pub fn tick(&mut self, now: Duration) {
        for key in self.bindings.overdue(now) {
            let message =
                "running PreBind plugin \"VolumeBinding\": binding volumes: timed out waiting for the condition";
            self.fail_binding(&key, "FailedScheduling", message.to_owned(), now);
        }
        self.queue.flush(now);
    }
}
