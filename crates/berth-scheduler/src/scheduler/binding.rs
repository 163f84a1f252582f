//! Binds a scheduled pod: first its volumes, then the pod itself.
//!
//! ```text
//!   start ──▶ writing ──all written──▶ waiting ──all claims bound──▶ binding the pod ──written──▶ done
//!                │                      │  ▲ │                             │
//!                │      all volumes held▼  │ │                             │
//!                │                   committing                            │
//!                └─────────────── failed, timed out, object deleted ───────┘
//!                                         ▼
//!                          what was not written is reverted; the pod waits
//! ```
//!
//! Volumes of an attempt are committed when all of them exist (`attempts`); only then are claims bound.
//!
//! The binder decides what is written for the volumes, in which order, and when they are bound
//! ([`VolumeBinder::writes`](berth_core::binder::VolumeBinder::writes)). When a write fails, the others in flight are
//! awaited, so that the next attempt knows what was written and continues from there.
//!
//! Nothing is polled: a response to a write, a watched object or the deadline advances a binding.
//!
//! Provisioning takes time, and an autoscaler must not remove the node meanwhile. `nominatedNodeName` therefore shows where the pod
//! is going (KEP-5278): it is sent before the request for the volumes, which does not wait for its response, and cleared when the
//! binding fails. Existing volumes are bound at once: they are not worth another write.

use super::{Effect, FailedStage, Outcome, PodRef, Scheduler, Write, WriteId, WriteOutcome};
use crate::cluster::AssumedPod;
use crate::events::ClusterEvent;
use crate::framework::{PluginName, PreFilter};
use crate::plugins;
use crate::queue::PodKey;
use berth_core::api::{self, Object};
use berth_core::binder::{Assumption, BindingError, Progress, WriteTarget};
use berth_core::model::{ClaimId, VolumeId};
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// The plugins that are run again on the chosen node when the volumes are bound.
const VOLUME_FILTERS: [PluginName; 4] = [
    PluginName::VolumeRestrictions,
    PluginName::NodeVolumeLimits,
    PluginName::VolumeBinding,
    PluginName::VolumeZone,
];

/// How long after the first refusal a commit is written again, if no change of the pod is observed before; twice as long after each further one.
const RECOMMIT: Duration = Duration::from_secs(1);
/// The longest wait: a watch that is this late is usually reopened.
const RECOMMIT_MAX: Duration = Duration::from_secs(32);

/// A scheduled pod that is being bound.
#[derive(Debug)]
pub(super) struct Binding {
    assumption: Assumption,
    assumed_pod: AssumedPod,
    stage: Stage,
    deadline: Duration,
    /// Why the binding fails, once the writes in flight are answered.
    failed: Option<String>,
    /// A response was lost: something may be written that is not known to be.
    in_doubt: bool,
    /// All volumes of the attempt exist, and the API server has recorded it.
    committed: bool,
    /// How often its commit was refused.
    refusals: u32,
}

berth_core::trace!(Binding { assumption, assumed_pod; stage, deadline, failed, in_doubt, committed, refusals });

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Writes without a response yet.
    Writing(FxHashMap<WriteId, WriteTarget>),
    /// Until these claims are bound, or ready before the attempt is committed.
    Waiting(FxHashSet<ClaimId>),
    /// Until the API server has recorded that all volumes exist.
    Committing {
        /// Without a response yet. `None` if it was refused: then it is written again on another version of the pod, or
        /// after a while.
        write: Option<WriteId>,
        /// The version of the pod that it was written on.
        version: u64,
    },
    /// Until the API server has accepted the pod's node.
    BindingPod(WriteId),
    /// Until the watch shows it.
    Bound,
}

/// A pod that the watch showed on the chosen node before the response to its binding. The response shows who bound it:
/// another scheduler may have chosen the same node.
#[derive(Debug)]
pub(super) struct Seen {
    pod: PodRef,
    /// The name of its profile.
    scheduler: String,
    node: String,
}

impl Binding {
    pub(super) fn new(assumption: Assumption, assumed_pod: AssumedPod, deadline: Duration) -> Self {
        Self {
            assumption,
            assumed_pod,
            stage: Stage::Writing(FxHashMap::default()),
            deadline,
            failed: None,
            in_doubt: false,
            committed: false,
            refusals: 0,
        }
    }

    /// How far its claims must be before the next action.
    fn goal(&self) -> Progress {
        match self.open_attempt() {
            Some(_) => Progress::Ready,
            None => Progress::Bound,
        }
    }

    /// The attempt, unless it is committed.
    pub(super) fn open_attempt(&self) -> Option<u64> {
        let attempt = self.assumption.attempt().filter(|_| !self.committed)?;
        Some(attempt.number)
    }

    /// The attempt, if it may have left held objects.
    fn abandoned_attempt(&self) -> Option<u64> {
        let written = self.in_doubt || self.assumption.is_partly_written();
        self.open_attempt().filter(|_| written)
    }

    /// An attempt is being committed.
    pub(super) fn committing(&mut self, write: WriteId, version: u64) {
        let write = Some(write);
        self.stage = Stage::Committing { write, version };
    }

    /// The version of the pod on which a commit was refused.
    pub(super) fn refused_commit(&self) -> Option<u64> {
        match self.stage {
            Stage::Committing { write: None, version } => Some(version),
            _ => None,
        }
    }

    /// A commit was refused. Returns how long it waits for a change of the pod.
    fn refused(&mut self) -> Duration {
        if let Stage::Committing { write, .. } = &mut self.stage {
            *write = None;
        }
        let wait = RECOMMIT.saturating_mul(1 << self.refusals.min(5)).min(RECOMMIT_MAX);
        self.refusals = self.refusals.saturating_add(1);
        wait
    }

    /// The attempt is committed.
    pub(super) fn committed(&mut self) {
        self.committed = true;
        self.wait_again();
    }

    /// Checks again whether all volumes exist.
    pub(super) fn wait_again(&mut self) {
        self.stage = Stage::Waiting(FxHashSet::default());
    }

    /// The deadline for binding the volumes.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The chosen existing volumes, with their claims.
    pub(super) fn chosen_volumes(&self) -> impl Iterator<Item = (ClaimId, VolumeId)> {
        self.assumption.decision().bindings.iter().copied()
    }
}

impl Scheduler {
    /// Starts a binding: sends its first writes, all at once.
    pub(super) fn start_binding(&mut self, key: &PodKey, binding: Binding, now: Duration) {
        if let Some(pod) = self.pods.get(key) {
            for claim in pod.claims() {
                self.waiting_for_claim
                    .entry(claim)
                    .or_default()
                    .push(PodKey::clone(key));
            }
        }
        if !binding.assumption.decision().provisions.is_empty() {
            let node = self.node_name(binding.assumption.node());
            self.tell_destination(key, &node);
        }
        self.bindings.insert(key, binding);
        self.when_answered(key, now);
    }

    /// Continues if all writes in flight are answered: fails, sends the next ones, or waits for their outcome.
    fn when_answered(&mut self, key: &PodKey, now: Duration) {
        let Some(binding) = self.bindings.get_mut(key) else {
            return;
        };
        if !matches!(&binding.stage, Stage::Writing(outstanding) if outstanding.is_empty()) {
            return;
        }
        if let Some(message) = binding.failed.take() {
            self.fail_binding(key, FailedStage::BindVolumes, message, now);
            return;
        }
        let writes = match self.cluster.binder().writes(&binding.assumption) {
            Ok(writes) => writes,
            Err(problem) => {
                self.fail_binding(key, stage_of(&problem), problem.to_string(), now);
                return;
            }
        };
        let mut outstanding = FxHashMap::default();
        for (target, write) in writes {
            outstanding.insert(self.write(key, Write::Volume(write)), target);
        }
        if let Some(binding) = self.bindings.get_mut(key) {
            binding.stage = Stage::Writing(outstanding);
        }
        self.move_on(key, now);
    }

    pub(super) fn node_name(&self, node: NodeId) -> String {
        let name = self.cluster.nodes().name(node);
        self.cluster.symbols().text(name).to_owned()
    }

    /// Applies the result of a write.
    pub fn written(&mut self, id: WriteId, outcome: &WriteOutcome, now: Duration) {
        let Some(key) = self.writes.remove(&id) else {
            return;
        };
        if self.evictions.contains_key(&id) {
            self.eviction_written(id, outcome);
            return;
        }
        if self.rollback_written(id, &key, outcome) {
            return;
        }
        if let Some(seen) = self.unanswered.remove(&id) {
            match outcome {
                WriteOutcome::Done { .. } | WriteOutcome::Unknown { .. } => self.tell_scheduled(seen),
                WriteOutcome::Failed { .. } | WriteOutcome::Overtaken { .. } => self.counts.overtaken += 1,
            }
            return;
        }
        let Some(binding) = self.bindings.get_mut(&key) else {
            return;
        };
        match (&mut binding.stage, outcome) {
            (Stage::Writing(outstanding), outcome) => {
                let Some(target) = outstanding.remove(&id) else {
                    return;
                };
                match outcome {
                    WriteOutcome::Done { version } => binding.assumption.written(target, *version),
                    WriteOutcome::Failed { problem }
                    | WriteOutcome::Overtaken { problem }
                    | WriteOutcome::Unknown { problem } => {
                        binding.in_doubt |= matches!(outcome, WriteOutcome::Unknown { .. });
                        let message = format!("running PreBind plugin \"VolumeBinding\": {problem}");
                        binding.failed.get_or_insert(message);
                    }
                }
                self.when_answered(&key, now);
            }
            (Stage::Committing { write, .. }, outcome) if *write == Some(id) => {
                if matches!(outcome, WriteOutcome::Done { .. }) {
                    binding.committed();
                    self.move_on(&key, now);
                } else {
                    let wait = binding.refused();
                    self.recommits.insert((now + wait, PodKey::clone(&key)));
                    self.commit_again(&key, now);
                }
            }
            (Stage::BindingPod(write), WriteOutcome::Done { .. }) if *write == id => {
                binding.stage = Stage::Bound;
                let node = binding.assumption.node_name();
                self.queue.remove(&key);
                if let Some(pod) = self.pods.get_mut(&key) {
                    pod.said = None;
                }
                if let Some(seen) = self.seen(&key, node) {
                    self.tell_scheduled(seen);
                }
            }
            (Stage::BindingPod(write), WriteOutcome::Failed { problem }) if *write == id => {
                self.fail_binding(&key, FailedStage::BindPod, format!("binding rejected: {problem}"), now);
            }
            (Stage::BindingPod(write), WriteOutcome::Overtaken { problem } | WriteOutcome::Unknown { problem })
                if *write == id =>
            {
                let message = format!("binding rejected: {problem}");
                self.fail_binding(&key, FailedStage::BindPodInDoubt, message, now);
            }
            // A response to a write that is no longer awaited.
            (Stage::Waiting(_) | Stage::Committing { .. } | Stage::Bound | Stage::BindingPod(_), _) => {}
        }
    }

    /// A pod on its chosen node.
    fn seen(&self, key: &PodKey, node: Symbol) -> Option<Seen> {
        let pod = self.pods.get(key)?;
        Some(Seen {
            pod: pod.reference(key),
            scheduler: pod.scheduler_name().to_owned(),
            node: self.cluster.symbols().text(node).to_owned(),
        })
    }

    fn tell_scheduled(&mut self, seen: Seen) {
        self.counts.scheduled += 1;
        let Seen { pod, scheduler, node } = seen;
        self.effects.push(Effect::Event {
            message: format!("Successfully assigned {} to {node}", pod.key),
            pod,
            source: scheduler,
            outcome: Outcome::Scheduled,
        });
    }

    /// Whether the API server has accepted the pod's node, and the watch has not shown it yet.
    pub(super) fn is_bound(&self, key: &str) -> bool {
        let binding = self.bindings.get(key);
        binding.is_some_and(|binding| binding.stage == Stage::Bound)
    }

    /// Advances a binding as far as possible.
    pub(super) fn move_on(&mut self, key: &PodKey, now: Duration) {
        let Some(binding) = self.bindings.get(key) else {
            return;
        };
        match &binding.stage {
            Stage::Writing(outstanding) if !outstanding.is_empty() => {}
            Stage::Writing(_) | Stage::Waiting(_) => {
                let (binder, assumption) = (self.cluster.binder(), &binding.assumption);
                self.counts.claims_checked += assumption.decided_claims().count() as u64;
                let goal = binding.goal();
                match binder.progress(assumption) {
                    Ok(Progress::Bound) => self.bind_pod(key, now),
                    Ok(reached) if reached >= goal => self.commit(key, now),
                    Ok(Progress::Waiting | Progress::Ready) => {
                        let is_open =
                            |claim: &ClaimId| binder.progress_of(assumption, *claim).is_ok_and(|far| far < goal);
                        let open = assumption.decided_claims().filter(is_open).collect();
                        if let Some(binding) = self.bindings.get_mut(key) {
                            binding.stage = Stage::Waiting(open);
                        }
                    }
                    Err(problem) => self.fail_binding(key, stage_of(&problem), problem.to_string(), now),
                }
            }
            Stage::Committing { .. } | Stage::BindingPod(_) | Stage::Bound => {}
        }
    }

    /// One claim of a pod or its volume changed: advances the binding if it was the last one it waits for, or fails it if it
    /// can no longer succeed. The other claims are not checked.
    fn move_on_with(&mut self, key: &PodKey, claim: Option<ClaimId>, now: Duration) {
        if let Some(binding) = self.bindings.get_mut(key)
            && let goal = binding.goal()
            && let Stage::Waiting(open) = &mut binding.stage
            && let Some(claim) = claim.filter(|claim| binding.assumption.decides(*claim))
        {
            self.counts.claims_checked += 1;
            match self.cluster.binder().progress_of(&binding.assumption, claim) {
                Ok(far) if far < goal => {
                    open.insert(claim);
                    return;
                }
                Ok(_) => {
                    open.remove(&claim);
                    if !open.is_empty() {
                        return;
                    }
                }
                // It is found again, and reported.
                Err(_) => {}
            }
        }
        self.move_on(key, now);
    }

    /// All claims are bound: runs the volume filters again on the node, then binds the pod.
    fn bind_pod(&mut self, key: &PodKey, now: Duration) {
        let Some(binding) = self.bindings.get(key) else {
            return;
        };
        let (node, had_volumes) = (binding.assumption.node(), !binding.assumption.decision().is_empty());
        if had_volumes && let Some(message) = self.refused_after_all(key, node) {
            self.fail_binding(key, FailedStage::BindVolumes, message, now);
            return;
        }
        let node_name = self.node_name(node);
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let write = Write::BindPod {
            pod: pod.reference(key),
            node: node_name,
            extender: self.binder_of(key),
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
        // The pod must not count against itself while it is checked again.
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

    /// Reverts what was not written, reports why, and retries the pod after its backoff.
    pub(super) fn fail_binding(&mut self, key: &PodKey, stage: FailedStage, message: String, now: Duration) {
        self.counts.errors += 1;
        let abandoned = self.bindings.get(key).and_then(Binding::abandoned_attempt);
        self.revert_binding(key, now);
        if let Some(attempt) = abandoned {
            self.abort(key, attempt);
        }
        self.tell_destination(key, "");
        self.say(key, Outcome::Failed(stage), message);
        self.queue.failed(key, now);
    }

    /// Releases what a binding held: others may need it, or have relied on its writes.
    fn revert_binding(&mut self, key: &str, now: Duration) {
        let Some(binding) = self.bindings.remove(key) else {
            return;
        };
        let held: SmallVec<[_; 2]> = binding.assumption.volumes().collect();
        let selected = binding.assumption.claims().next().is_some();
        let (node, node_name) = (binding.assumption.node(), binding.assumption.node_name());
        self.cluster.revert_volumes(binding.assumption);
        self.settle_promises(now);
        let assumed = self.cluster.assumed(&binding.assumed_pod);
        let pod = assumed.map(|running| Arc::clone(&running.footprint));
        self.cluster.forget(binding.assumed_pod);
        let claims = self.stop_waiting(key);
        let node = Some(node).filter(|node| self.cluster.nodes().name(*node) == node_name);
        match (node, pod) {
            (Some(node), Some(pod)) => self.left(node, pod, now),
            (None, Some(pod)) => self.happened(&ClusterEvent::PodGone { node: None, pod }, now),
            (_, None) => {}
        }
        // A claim that was to be provisioned for the node may now be provisioned elsewhere.
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

    /// A pod no longer waits for its claims. Returns them.
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

    /// The watch shows a pod on a node: if it is being bound there, it is bound, whether or not the response arrived.
    /// Its event waits for the response.
    pub(super) fn confirm_binding(&mut self, key: &PodKey, pod: &api::Pod) {
        let Some(binding) = self.bindings.get(key) else {
            return;
        };
        let (Stage::BindingPod(id), node) = (&binding.stage, binding.assumption.node_name()) else {
            return;
        };
        let id = *id;
        if self.cluster.symbols().text(node) == pod.spec.node_name
            && let Some(seen) = self.seen(key, node)
        {
            self.unanswered.insert(id, seen);
            if let Some(binding) = self.bindings.get_mut(key) {
                binding.stage = Stage::Bound;
            }
        }
    }

    /// Ends the binding of a pod that the watch shows as bound or deleted. What was written is left as it is.
    pub(super) fn end_binding(&mut self, key: &str, now: Duration) {
        if self.is_bound(key) {
            if let Some(binding) = self.bindings.remove(key) {
                binding.assumption.keep();
                self.stop_waiting(key);
            }
        } else {
            self.revert_binding(key, now);
        }
    }

    /// A binding may be waiting for a watched object.
    pub(super) fn move_bindings_on(&mut self, object: &Object, now: Duration) {
        match object {
            Object::PersistentVolumeClaim(claim) => self.check_binding_of_claim(&claim.metadata.full_name(), now),
            Object::PersistentVolume(volume) => {
                // Another binding may have lost the chosen volume to the claim that it now refers to.
                if let Some(volume) = self.cluster.binder().volume_id(&volume.metadata.name) {
                    self.check_bindings_of_volume(volume, now);
                }
                if let Some(claim) = &volume.spec.claim_ref {
                    self.check_binding_of_claim(&format!("{}/{}", claim.namespace, claim.name), now);
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_binding_of_claim(&mut self, claim: &str, now: Duration) {
        let Some(pods) = self.waiting_for_claim.get(claim).cloned() else {
            return;
        };
        let (namespace, name) = claim.split_once('/').unwrap_or(("", claim));
        let namespace = self.cluster.symbols().get(namespace);
        let claim = namespace.and_then(|namespace| self.cluster.binder().claim_id(namespace, name));
        for key in pods {
            self.move_on_with(&key, claim, now);
        }
    }

    /// A volume changed or was deleted: the bindings that chose it may have lost it.
    pub(super) fn check_bindings_of_volume(&mut self, volume: VolumeId, now: Duration) {
        for (key, claim) in self.bindings.of_volume(volume) {
            self.move_on_with(&key, Some(claim), now);
        }
    }

    pub(super) fn check_all_bindings(&mut self, now: Duration) {
        for key in self.bindings.keys() {
            self.move_on(&key, now);
        }
    }

    /// Ends the bindings that took too long, and moves the pods whose backoff is over or that waited long enough for their
    /// claims.
    pub fn tick(&mut self, now: Duration) {
        for key in self.bindings.overdue(now) {
            let message = format!("running PreBind plugin \"VolumeBinding\": {BINDING_TIMED_OUT}");
            self.fail_binding(&key, FailedStage::BindVolumes, message, now);
        }
        self.commit_overdue(now);
        self.let_overdue_go(now);
        if self.promise_end.is_some_and(|end| end <= now) {
            self.settle_promises(now);
        }
        self.queue.flush(now);
    }
}

/// The message of an attempt whose volumes were not bound in time, without the plugin.
const BINDING_TIMED_OUT: &str = "binding volumes: timed out waiting for the condition";
/// The message of kube-scheduler since 1.27.
const DEADLINE_EXCEEDED: &str = "binding volumes: context deadline exceeded";

/// Whether a message of this scheduler or of kube-scheduler says that volumes were not bound in time.
#[must_use]
pub fn is_binding_timeout(message: &str) -> bool {
    [BINDING_TIMED_OUT, DEADLINE_EXCEEDED]
        .iter()
        .any(|known| message.contains(known))
}

/// The stage of an attempt whose volumes can no longer be bound.
fn stage_of(problem: &BindingError) -> FailedStage {
    match problem {
        BindingError::NodeGone => FailedStage::NodeGone,
        _ => FailedStage::BindVolumes,
    }
}
