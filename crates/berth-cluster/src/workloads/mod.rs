//! The workload controllers that common manifests need: StatefulSet, DaemonSet, ReplicaSet, ReplicationController,
//! Deployment and Job. For a CronJob they report that nothing runs it.
//!
//! Each controller reads one workload and what it owns, and returns what is missing or surplus. A workload that is
//! being deleted is left alone: its children are deleted through their owner references. Children are those with the
//! workload as their controller; pods that merely match its selector are not adopted.

mod claims;
mod daemon_set;
mod deployment;
mod job;
mod pods;
mod recreated;
mod replica_set;
mod revisions;
mod rollout;
mod roster;
mod stateful_set;
#[cfg(test)]
mod tests;

pub use pods::{Selector, is_over};

use super::field;
use super::hash::Suffixes;
use super::objects::{View, key_for, key_of};
use super::step::Step;
use berth_core::effect::ObjectKey;
use jiff::Timestamp;
use recreated::Recreated;
use roster::Roster;
use serde_json::Value;
use std::collections::BTreeMap;

/// The supported kinds, owners before what they own.
pub const KINDS: [&str; 7] = [
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
];

/// Maximum number of pods that one step creates or deletes for one workload, as in Kubernetes. The change of the last
/// one triggers the workload again.
const BURST: usize = 500;

/// The workload controllers. They remember only the names they have used, which pods failed, and what the pods of StatefulSets showed.
#[derive(Clone, Debug)]
pub struct Workloads {
    suffixes: Suffixes,
    recreated: Recreated,
    rosters: BTreeMap<ObjectKey, Roster>,
}

impl Workloads {
    /// Controllers whose generated names are derived from the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            suffixes: Suffixes::new(seed),
            recreated: Recreated::default(),
            rosters: BTreeMap::new(),
        }
    }

    /// Reconciles one workload: see [`concerned`] for when. A deleted one needs nothing. The view is always the same one, or a copy of it
    /// that is used with a copy of these controllers.
    pub fn reconcile(&mut self, view: &dyn View, workload: &ObjectKey, now: Timestamp) -> Step {
        match view.get(&workload.kind, &workload.namespace, &workload.name) {
            Some(found) => self.look_after(view, found, now),
            None => {
                self.rosters.remove(workload);
                Step::default()
            }
        }
    }

    fn look_after(&mut self, view: &dyn View, workload: &Value, now: Timestamp) -> Step {
        if field::is_deleting(workload) {
            return Step::default();
        }
        match field::kind(workload) {
            "Deployment" => deployment::reconcile(view, workload, now),
            "ReplicaSet" | "ReplicationController" => replica_set::reconcile(view, workload, &mut self.suffixes, now),
            "DaemonSet" => daemon_set::reconcile(view, workload, &mut self.suffixes, now),
            "CronJob" => not_run(workload),
            "StatefulSet" => {
                let roster = self.rosters.entry(key_of(workload)).or_default();
                let step = stateful_set::reconcile(view, workload, roster, &self.recreated, now);
                self.recreated.note(view, &step, now);
                step
            }
            "Job" => job::reconcile(view, workload, &mut self.suffixes, now),
            _ => Step::default(),
        }
    }
}

/// Reports that no controller runs a workload, so that no one waits for its pods.
fn not_run(workload: &Value) -> Step {
    let message = "nothing here runs CronJobs: create a Job from it, as `kubectl create job --from` does".to_owned();
    let mut step = Step::default();
    step.warning("workload-controller", workload, "NotSupported", message);
    step
}

/// Every workload, owners before what they own: what to reconcile at the start.
#[must_use]
pub fn all(view: &dyn View) -> Vec<ObjectKey> {
    KINDS.iter().flat_map(|kind| view.of_kind(kind)).map(key_of).collect()
}

/// Whether objects of a kind are workloads.
#[must_use]
pub fn is_workload(kind: &str) -> bool {
    KINDS.contains(&kind)
}

/// The workloads to reconcile when an object was created, changed or deleted (pass its last state).
#[must_use]
pub fn concerned(view: &dyn View, object: &Value) -> Vec<ObjectKey> {
    let namespace = field::namespace(object);
    let mut keys = Vec::new();
    if KINDS.contains(&field::kind(object)) {
        keys.push(key_of(object));
    }
    if field::kind(object) == "Node" {
        keys.extend(view.of_kind("DaemonSet").map(key_of));
    }
    if let Some(owner) = field::controller_of(object) {
        let owner = key_for(field::text(owner, "/kind"), namespace, field::text(owner, "/name"));
        // A Deployment counts the pods of its ReplicaSets.
        let above = view
            .get(&owner.kind, namespace, &owner.name)
            .and_then(field::controller_of);
        let above = above.map(|above| key_for(field::text(above, "/kind"), namespace, field::text(above, "/name")));
        keys.extend([Some(owner), above].into_iter().flatten());
    } else if matches!(field::kind(object), "Pod" | "PersistentVolumeClaim") {
        // A pod or claim that no workload created can block a StatefulSet that needs its name.
        keys.extend(stateful_set::wanting(view, object));
    }
    keys.retain(|key| KINDS.contains(&&*key.kind));
    keys
}
