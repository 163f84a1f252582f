//! Pods that are not there although a workload wants them: one whose pods fail may have none when a simulation ends.

use crate::View;
use crate::field;
use crate::workloads::is_over;
use serde_json::Value;

/// The workloads that want a number of pods at any time. Deployments want theirs by their ReplicaSets.
pub const KEEPS_PODS: [&str; 4] = ["DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// How many pods are missing. Where a pod of a workload waits, the others may wait for it, and its reason is theirs.
pub(super) fn pods(view: &dyn View) -> usize {
    let workloads = KEEPS_PODS.iter().flat_map(|kind| view.of_kind(kind));
    let missing = workloads.map(|workload| {
        let is_own = |object: &&Value| field::kind(object) == "Pod" && field::is_controlled_by(object, workload);
        let own: Vec<&Value> = view.dependents(field::uid(workload)).filter(is_own).collect();
        let is_waiting = |pod: &&Value| field::text(pod, "/status/phase") == "Pending" || is_over(pod);
        if field::is_deleting(workload) || own.iter().any(is_waiting) {
            return 0;
        }
        wanted_pods(workload).saturating_sub(own.len())
    });
    missing.sum()
}

/// How many pods a workload of [`KEEPS_PODS`] wants.
#[must_use]
pub fn wanted_pods(workload: &Value) -> usize {
    let count = match field::kind(workload) {
        "DaemonSet" => field::count(workload, "/status/desiredNumberScheduled").unwrap_or(0),
        _ => field::count(workload, "/spec/replicas").unwrap_or(1),
    };
    usize::try_from(count).unwrap_or(0)
}
