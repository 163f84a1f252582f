//! Drains nodes as `kubectl drain` does: evicts their pods as far as disruption budgets allow, and retries until none
//! is left.

use super::Simulation;
use crate::{Objects, View, field, key_of, step};
use berth_core::effect::{Effect, Guard, Merge, ObjectKey, Patch, Target};
use berth_core::names::MIRROR_POD;
use berth_kinds::eviction;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Delay before a refused eviction is retried, as in kubectl.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// The nodes that are being drained.
#[derive(Debug, Default)]
pub struct Drains {
    /// By node: whether budgets are ignored.
    nodes: BTreeMap<String, bool>,
    /// When to retry.
    due: Option<Timestamp>,
    /// The pods left to evict in this round, with their nodes; `None` between rounds.
    round: Option<VecDeque<(String, ObjectKey)>>,
    /// Nodes that a budget prevents from being empty in this round.
    blocked: BTreeSet<String>,
}

impl Drains {
    /// Starts draining a node.
    pub fn start(&mut self, node: &str, disable_eviction: bool) {
        self.nodes.insert(node.to_owned(), disable_eviction);
        self.due = None;
    }

    /// Stops draining a node.
    pub fn stop(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// The nodes that are not drained yet.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// When the next round starts, if it does on its own.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// Evicts the next pod that may be evicted now. Carry this out before the next call: it may use up a budget. `None`
    /// when nothing can be done before [`Self::due`].
    pub fn evict_next(&mut self, view: &Objects, now: Timestamp) -> Option<Vec<Effect>> {
        if self.nodes.is_empty() || self.due.is_some_and(|due| due > now) {
            return None;
        }
        let mut round = self.round.take().unwrap_or_else(|| self.pods_to_go(view));
        while let Some((node, key)) = round.pop_front() {
            let Some((disable_eviction, pod)) = self.nodes.get(&node).copied().zip(view.find(&key)) else {
                continue;
            };
            match evict(view, pod, disable_eviction, now) {
                Some(effects) => {
                    self.round = Some(round);
                    return Some(effects);
                }
                None => {
                    self.blocked.insert(node);
                }
            }
        }
        let blocked = std::mem::take(&mut self.blocked);
        self.nodes.retain(|node, _| blocked.contains(node));
        self.due = (!self.nodes.is_empty()).then(|| now + RETRY);
        None
    }

    fn pods_to_go(&self, view: &dyn View) -> VecDeque<(String, ObjectKey)> {
        let pods = self.nodes.keys().flat_map(|node| {
            let pods = view.pods_on(node).filter(|pod| is_to_go(pod));
            pods.map(|pod| (node.clone(), key_of(pod)))
        });
        pods.collect()
    }
}

/// Deletes a pod and charges its budget. `None` if that is refused.
fn evict(view: &dyn View, pod: &Value, disable_eviction: bool, now: Timestamp) -> Option<Vec<Effect>> {
    if disable_eviction {
        return Some(vec![step::delete(pod)]);
    }
    let mut effects = Vec::new();
    if let Some(budget) = eviction::guard(pod, view.of_kind("PodDisruptionBudget")).ok()? {
        let new = eviction::disrupted(budget, field::name(pod), &field::seconds(now)).ok()?;
        effects.push(Effect::Patch(Patch {
            target: Target::of_value(budget),
            guard: Guard::Version,
            subresource: Some("status"),
            merge: Merge::Json,
            body: json!({"status": new["status"]}),
            name: "spend_budget",
        }));
    }
    effects.push(step::delete(pod));
    Some(effects)
}

impl Simulation {
    /// Evicts what can be evicted now from the nodes being drained.
    pub(super) fn run_drains(&mut self) -> bool {
        let mut moved = false;
        while let Some(effects) = self.drains.evict_next(self.cluster.objects(), self.now) {
            moved |= self.carry_out(&effects).refused.is_none();
        }
        moved
    }
}

/// Whether a drain evicts a pod. Pods of DaemonSets would come back, and mirror pods cannot be deleted.
fn is_to_go(pod: &Value) -> bool {
    let is_of_daemon_set = field::controller_of(pod).is_some_and(|owner| owner["kind"] == "DaemonSet");
    let is_over = matches!(field::text(pod, "/status/phase"), "Succeeded" | "Failed");
    !field::is_deleting(pod) && !is_over && !is_of_daemon_set && field::annotation(pod, MIRROR_POD).is_none()
}
