//! Pods that a workload wants and that do not exist: one whose pods fail may have none when a simulation ends. And the
//! reverse: pods that have ended and that others have replaced.

use crate::View;
use crate::field;
use crate::workloads::is_over;
use serde_json::Value;
use std::collections::BTreeSet;

/// The workloads with a desired number of pods at any time. Deployments have theirs through ReplicaSets.
pub const KEEPS_PODS: [&str; 4] = ["DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"];

/// The pods of all workloads, compared with the desired numbers.
#[derive(Debug, Default)]
pub(super) struct Replicas<'a> {
    /// UIDs of pods that have ended or are being deleted, and that others have replaced.
    replaced: BTreeSet<&'a str>,
    /// Workloads whose pods do not all exist, and how many do not.
    pub(super) missing: Vec<(&'a Value, usize)>,
}

impl<'a> Replicas<'a> {
    /// Counts the pods of all workloads.
    pub(super) fn of(view: &'a dyn View) -> Self {
        let mut replicas = Self::default();
        for workload in KEEPS_PODS.iter().flat_map(|kind| view.of_kind(kind)) {
            if !field::is_deleting(workload) {
                replicas.count(view, workload);
            }
        }
        replicas
    }

    fn count(&mut self, view: &'a dyn View, workload: &'a Value) {
        let is_own = |object: &&Value| field::kind(object) == "Pod" && field::is_controlled_by(object, workload);
        let own = view.dependents(field::uid(workload)).filter(is_own);
        let (mut ended, live): (Vec<&'a Value>, Vec<&'a Value>) =
            own.partition(|pod| is_over(pod) || field::is_deleting(pod));
        let lacking = wanted_pods(workload).saturating_sub(live.len());
        // The latest ones are those that have no replacement yet.
        ended.sort_by(|a, b| created(b).cmp(created(a)));
        self.replaced
            .extend(ended.iter().copied().skip(lacking).map(field::uid));
        // If a pod of a workload waits, the others may wait for it, for the same reason.
        let is_pending = |pod: &&Value| field::text(pod, "/status/phase") == "Pending";
        let is_waiting = live.iter().any(is_pending) || ended.iter().any(|pod| is_over(pod));
        let missing = lacking.saturating_sub(ended.len());
        if missing > 0 && !is_waiting {
            self.missing.push((workload, missing));
        }
    }

    /// Whether a pod has ended or is being deleted, and others have replaced it.
    pub(super) fn has_replaced(&self, pod: &Value) -> bool {
        self.replaced.contains(field::uid(pod))
    }
}

fn created(pod: &Value) -> &str {
    field::text(pod, "/metadata/creationTimestamp")
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
