//! Runs node agents in a simulation, and handles nodes whose agent is silent.
//!
//! A pod that waits for a volume is processed again only when its claim, its volume or its node changes: processing
//! every waiting pod after every change would be quadratic.

use super::Simulation;
use crate::agent::{self, Mode};
use crate::names::NODE_LEASES;
use crate::objects::claims_of;
use crate::{View, eviction, field, key_for, key_of, lifecycle};
use berth_core::effect::ObjectKey;
use berth_core::time::micros;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A namespace and the name of a claim in it.
type ClaimName = (String, String);

/// What the agents have to process.
#[derive(Debug, Default)]
pub(super) struct Agents {
    /// Pods on a node that are new, changed, or may proceed now.
    pods: BTreeSet<ObjectKey>,
    /// Pods that cannot start, by the claims they use.
    waiting: BTreeMap<ClaimName, BTreeSet<ObjectKey>>,
    /// Nodes with a lease: those whose agent was stopped.
    silent: BTreeSet<String>,
    /// Nodes with taints that evict pods.
    tainted: BTreeSet<String>,
    /// Silent and tainted nodes to process.
    nodes: BTreeSet<String>,
    /// The mode of each node's agent.
    modes: BTreeMap<String, Mode>,
    /// New or changed nodes.
    changed: BTreeSet<String>,
}

impl Agents {
    /// Records that an object was created or changed.
    pub(super) fn upsert(&mut self, key: &ObjectKey, object: &Value, view: &dyn View) {
        match &*key.kind {
            "Pod" => {
                let node = field::text(object, "/spec/nodeName");
                if !node.is_empty() {
                    self.pods.insert(key.clone());
                    self.look_at_node(node);
                }
            }
            "PersistentVolumeClaim" => self.wake_claim(&key.namespace, &key.name),
            "PersistentVolume" => {
                let claim = |part: &str| field::text(object, &format!("/spec/claimRef/{part}"));
                self.wake_claim(claim("namespace"), claim("name"));
            }
            "Node" => {
                self.pods.extend(view.pods_on(&key.name).map(key_of));
                if eviction::sends_away(object) {
                    self.tainted.insert(key.name.clone());
                } else {
                    self.tainted.remove(&key.name);
                }
                self.changed.insert(key.name.clone());
                self.look_at_node(&key.name);
            }
            "Lease" if key.namespace == NODE_LEASES => {
                self.silent.insert(key.name.clone());
                self.nodes.insert(key.name.clone());
            }
            _ => {}
        }
    }

    /// Records that an object was deleted.
    pub(super) fn remove(&mut self, key: &ObjectKey, view: &dyn View) {
        match &*key.kind {
            "Pod" => {
                self.pods.remove(key);
            }
            "Lease" => {
                self.silent.remove(&key.name);
            }
            "Node" => {
                self.silent.remove(&key.name);
                self.tainted.remove(&key.name);
                self.nodes.remove(&key.name);
                self.changed.remove(&key.name);
                self.modes.remove(&key.name);
                self.pods.extend(view.pods_on(&key.name).map(key_of));
            }
            _ => {}
        }
    }

    /// Triggers a pod or a node.
    pub(super) fn wake(&mut self, key: ObjectKey) {
        if key.kind == "Node" {
            self.look_at_node(&key.name);
        } else {
            self.pods.insert(key);
        }
    }

    fn look_at_node(&mut self, node: &str) {
        if self.silent.contains(node) || self.tainted.contains(node) {
            self.nodes.insert(node.to_owned());
        }
    }

    fn wake_claim(&mut self, namespace: &str, name: &str) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(pods) = self.waiting.remove(&(namespace.to_owned(), name.to_owned())) {
            self.pods.extend(pods);
        }
    }

    fn wait(&mut self, key: ObjectKey, pod: &Value) {
        for claim in claims_of(pod) {
            let claim = (key.namespace.clone(), claim.into_owned());
            self.waiting.entry(claim).or_default().insert(key.clone());
        }
    }
}

/// Whether the agent of a node does nothing at all.
pub(super) fn is_silent(view: &dyn View, node: &str) -> bool {
    view.get("Node", "", node).and_then(Mode::of_node) == Some(Mode::Stop)
}

impl Simulation {
    /// Runs agents for the pods that may proceed, and handles silent nodes.
    pub(super) fn run_agents(&mut self) -> bool {
        let mut moved = false;
        for key in std::mem::take(&mut self.agents.pods) {
            moved |= self.look_after_pod(&key);
        }
        for name in std::mem::take(&mut self.agents.nodes) {
            let step = lifecycle::step(self.cluster.objects(), &name, self.now);
            moved |= !step.effects.is_empty();
            self.carry_out_step(&key_for("Node", "", &name), step);
        }
        moved
    }

    fn look_after_pod(&mut self, key: &ObjectKey) -> bool {
        let view = self.cluster.objects();
        let Some(pod) = view.get(&key.kind, &key.namespace, &key.name) else {
            return false;
        };
        let node = view.get("Node", "", field::text(pod, "/spec/nodeName"));
        let mode = node.and_then(Mode::of_node).unwrap_or_default();
        let step = agent::pod_step(view, pod, mode, &agent::Settings::default(), self.now);
        if step.effects.is_empty() && step.wake.is_none() && field::text(pod, "/status/phase") == "Pending" {
            self.agents.wait(key.clone(), pod);
            return false;
        }
        let moved = !step.effects.is_empty();
        self.carry_out_step(key, step);
        moved
    }

    /// Runs agents for new and changed nodes.
    pub(super) fn run_nodes(&mut self) -> bool {
        let mut moved = false;
        for name in std::mem::take(&mut self.agents.changed) {
            let Some(node) = self.cluster.objects().get("Node", "", &name) else {
                continue;
            };
            let mode = Mode::of_node(node).unwrap_or_default();
            let mut step = agent::announce(node, mode, self.now);
            let before = self.agents.modes.insert(name.clone(), mode);
            if before == Some(Mode::Cordon) && mode != Mode::Cordon {
                step.effects.push(agent::uncordon(node));
            }
            moved |= !step.effects.is_empty();
            self.carry_out_step(&key_for("Node", "", &name), step);
            match (before, mode) {
                (None | Some(Mode::Stop), Mode::Stop) => {}
                (Some(_), Mode::Stop) => self.fall_silent(&name),
                (Some(Mode::Stop), _) => self.come_back(&name),
                (_, Mode::Run | Mode::Cordon | Mode::Refuse) => {}
            }
        }
        moved
    }

    /// The last heartbeat of a node is now.
    fn fall_silent(&mut self, node: &str) {
        let Some(owner) = self.cluster.objects().get("Node", "", node).map(field::owner_reference) else {
            return;
        };
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "namespace": NODE_LEASES, "ownerReferences": [owner]},
            "spec": {"holderIdentity": node, "renewTime": micros(self.now)},
        });
        // An existing lease has been silent for longer.
        let _ = self.cluster.create(lease, self.now);
    }

    /// A node reports again that it is healthy.
    fn come_back(&mut self, node: &str) {
        let lease = key_for("Lease", NODE_LEASES, node);
        if self.get(&lease).is_none() {
            return;
        }
        // One heartbeat reports that the node is ready. Renewals would keep the simulation going forever, so the lease
        // is removed once the node controller has seen it: a node without one counts as healthy.
        let settings = agent::Settings {
            heartbeats: true,
            ..agent::Settings::default()
        };
        self.change(&lease, None, json!({"spec": {"renewTime": micros(self.now)}}));
        let beat = agent::step(self.cluster.objects(), node, Mode::Run, &settings, self.now);
        // If anything is refused, the following steps do it.
        let _ = self.carry_out(&beat.effects);
        let seen = lifecycle::step(self.cluster.objects(), node, self.now);
        let _ = self.carry_out(&seen.effects);
        self.delete_object(&lease);
    }
}
