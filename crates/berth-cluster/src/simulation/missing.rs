//! Pods that a workload wants and that do not exist: one whose pods fail may have none when a simulation ends.

use crate::View;
use crate::field;
use crate::workloads::is_over;
use serde_json::Value;

/// The workloads with a desired number of pods at any time. Deployments have theirs through ReplicaSets.
pub const KEEPS_PODS: [&str; 4] = ["DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// Number of missing pods. If a pod of a workload waits, the others may wait for it, for the same reason.
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

/// The desired number of pods of a workload of [`KEEPS_PODS`].
#[must_use]
pub fn wanted_pods(workload: &Value) -> usize {
    let count = match field::kind(workload) {
        "DaemonSet" => field::count(workload, "/status/desiredNumberScheduled").unwrap_or(0),
        _ => field::count(workload, "/spec/replicas").unwrap_or(1),
    };
    usize::try_from(count).unwrap_or(0)
}
