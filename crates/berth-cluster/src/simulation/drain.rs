//! Drains nodes, as `kubectl drain` does: evicts their pods as far as disruption budgets allow, and tries again until
//! none is left.

use super::Simulation;
use crate::{View, disruption, field, key_of};
use berth_core::effect::ObjectKey;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How long after a refused eviction the next one is tried, as kubectl does.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Marks a pod that a kubelet runs from a file: nobody else can remove it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The nodes that are being drained.
#[derive(Debug, Default)]
pub(super) struct Drains {
    /// By node: whether budgets are passed over.
    nodes: BTreeMap<String, bool>,
    /// When to try again.
    due: Option<jiff::Timestamp>,
}

impl Drains {
    pub(super) fn start(&mut self, node: &str, disable_eviction: bool) {
        self.nodes.insert(node.to_owned(), disable_eviction);
        self.due = None;
    }

    pub(super) fn stop(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// The nodes that are not drained yet.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    pub(super) fn due(&self) -> Option<jiff::Timestamp> {
        self.due
    }
}

impl Simulation {
    /// Evicts what may be evicted now from the nodes that are being drained.
    pub(super) fn run_drains(&mut self) -> bool {
        if self.drains.nodes.is_empty() || self.drains.due.is_some_and(|due| due > self.now) {
            return false;
        }
        self.drains.due = None;
        let mut moved = false;
        for (node, disable_eviction) in self.drains.nodes.clone() {
            let pods: Vec<ObjectKey> = self
                .cluster
                .objects()
                .pods_on(&node)
                .filter(|pod| is_to_go(pod))
                .map(key_of)
                .collect();
            let mut blocked = false;
            for pod in &pods {
                match disable_eviction || self.spend_budget(pod) {
                    true => moved |= self.delete_object(pod),
                    false => blocked = true,
                }
            }
            if blocked {
                self.drains.due = Some(self.now + RETRY);
            } else {
                self.drains.nodes.remove(&node);
            }
        }
        moved
    }

    /// Whether every budget of a pod allows that it goes. If so, one less may go from now on.
    fn spend_budget(&mut self, pod: &ObjectKey) -> bool {
        let view = self.cluster.objects();
        let Some(found) = self.get(pod) else {
            return true;
        };
        let budgets = view.of_kind("PodDisruptionBudget");
        let covering: Vec<(ObjectKey, i64)> = budgets
            .filter(|budget| disruption::covers(budget, found))
            .map(|budget| {
                (
                    key_of(budget),
                    field::count(budget, "/status/disruptionsAllowed").unwrap_or(0),
                )
            })
            .collect();
        if covering.iter().any(|(_, allowed)| *allowed == 0) {
            return false;
        }
        for (budget, allowed) in covering {
            let spent = json!({"status": {"disruptionsAllowed": allowed - 1}});
            self.change(&budget, Some("status"), spent);
        }
        true
    }
}

/// Whether a drain evicts a pod. Pods of DaemonSets would come back, and mirror pods cannot be deleted.
fn is_to_go(pod: &Value) -> bool {
    let is_of_daemon_set = field::controller_of(pod).is_some_and(|owner| owner["kind"] == "DaemonSet");
    let is_over = matches!(field::text(pod, "/status/phase"), "Succeeded" | "Failed");
    !field::is_deleting(pod) && !is_over && !is_of_daemon_set && field::annotation(pod, MIRROR).is_none()
}
