//! Does what a scenario says, on the objects of a simulation.

use super::{Action, AddNodes, Apply, Drain, Nodes, ObjectName, Scale, SetCapacity, Step};
use crate::check;
use crate::names::AGENT_MODE;
use crate::simulation::Simulation;
use crate::simulation::place::zone_of;
use crate::{field, key_for, key_of};
use berth_core::api::Kind;
use berth_core::effect::ObjectKey;
use berth_core::names::HOSTNAME;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;

/// How many names a line tells before it counts the rest.
const NAMES_TOLD: usize = 4;

/// Why an action of a scenario cannot be done: the cluster is not what the scenario takes it for.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {field}: at {at:#}: {problem}")]
pub struct PerformError {
    /// The file of the scenario.
    pub file: Arc<str>,
    /// The action.
    pub field: String,
    /// When it was to be done.
    pub at: SignedDuration,
    /// What is in the way.
    pub problem: String,
}

impl Simulation {
    /// Does the actions of a step and says what was done, a line for each.
    pub(in crate::simulation) fn perform(
        &mut self,
        file: &Arc<str>,
        index: usize,
        step: &Step,
    ) -> Result<Vec<String>, PerformError> {
        let mut did = Vec::new();
        for (number, action) in step.actions.iter().enumerate() {
            let told = self.act(action).map_err(|problem| PerformError {
                file: Arc::clone(file),
                field: format!("steps[{index}].do[{number}].{}", action.verb()),
                at: step.at,
                problem,
            })?;
            did.push(told);
        }
        Ok(did)
    }

    fn act(&mut self, action: &Action) -> Result<String, String> {
        match action {
            Action::AddNodes(add) => self.add_nodes(add),
            Action::DeleteNodes(nodes) => self.each_node(nodes, "deleted", |simulation, node| {
                simulation.delete_object(&key_for("Node", "", node));
                // What a node's own plugins publish goes with it.
                simulation.delete_object(&key_for("CSINode", "", node));
            }),
            Action::Cordon(nodes) => self.each_node(nodes, "cordoned", Self::cordon),
            Action::Uncordon(nodes) => self.each_node(nodes, "uncordoned", Self::uncordon),
            Action::Drain(drain) => self.drain(drain),
            Action::StopNodes(nodes) => self.each_node(nodes, "stopped", Self::stop_agent),
            Action::StartNodes(nodes) => self.each_node(nodes, "started", Self::start_agent),
            Action::RefusePods(nodes) => self.each_node(nodes, "refusing pods:", Self::refuse_pods),
            Action::Scale(scale) => self.scale(scale),
            Action::Delete(name) => self.delete(name),
            Action::Apply(apply) => self.apply(apply),
            Action::SetCapacity(set) => self.set_capacity(set),
        }
    }

    fn each_node(&mut self, nodes: &Nodes, did: &str, act: impl Fn(&mut Self, &str)) -> Result<String, String> {
        let names = self.select(nodes)?;
        names.iter().for_each(|name| act(self, name));
        Ok(format!("{did} {}", listed("node", &names)))
    }

    /// The names of the nodes that are meant: at least one.
    fn select(&self, wanted: &Nodes) -> Result<Vec<String>, String> {
        let view = self.objects();
        if let Some(missing) = wanted.nodes.iter().find(|name| view.get("Node", "", name).is_none()) {
            return Err(format!("there is no node {missing:?}"));
        }
        let is_meant = |node: &&Value| {
            (wanted.nodes.is_empty() || wanted.nodes.iter().any(|name| name == field::name(node)))
                && wanted.zone.as_ref().is_none_or(|zone| zone_of(node) == zone)
                && wanted
                    .node_selector
                    .iter()
                    .all(|(key, value)| field::label(node, key) == value)
        };
        let found = view.of_kind("Node").filter(is_meant).map(field::name);
        let found: Vec<String> = found.map(str::to_owned).collect();
        match found.as_slice() {
            [] => Err("no node is in this zone or has these labels".to_owned()),
            _ => Ok(found),
        }
    }

    fn cordon(&mut self, node: &str) {
        let patch = json!({"spec": {"unschedulable": true}});
        self.change(&key_for("Node", "", node), None, patch);
    }

    fn uncordon(&mut self, node: &str) {
        self.drains.stop(node);
        let patch = json!({"spec": {"unschedulable": null}});
        self.change(&key_for("Node", "", node), None, patch);
    }

    fn drain(&mut self, drain: &Drain) -> Result<String, String> {
        let names = self.select(&drain.nodes())?;
        for name in &names {
            self.cordon(name);
            self.drains.start(name, drain.disable_eviction);
        }
        Ok(format!("draining {}", listed("node", &names)))
    }

    fn add_nodes(&mut self, add: &AddNodes) -> Result<String, String> {
        let view = self.objects();
        let (template, csi_node) = match (&add.like, &add.template) {
            (Some(name), _) => {
                let node = view.get("Node", "", name);
                let node = node.ok_or_else(|| format!("there is no node {name:?} to copy"))?;
                (copy_of(node), view.get("CSINode", "", name).cloned())
            }
            (None, template) => (template.clone().unwrap_or_default(), None),
        };
        let mut names = Vec::new();
        let mut number = 0_u64;
        while names.len() < add.count as usize {
            number += 1;
            let name = format!("{}{number}", add.generate_name);
            if self.get(&key_for("Node", "", &name)).is_some() {
                continue;
            }
            let mut node = template.clone();
            field::set(&mut node, &["apiVersion"], json!("v1"));
            field::set(&mut node, &["kind"], json!("Node"));
            field::set(&mut node, &["metadata", "name"], json!(name));
            field::set(&mut node, &["metadata", "labels", HOSTNAME], json!(name));
            for (key, value) in &add.labels {
                field::set(&mut node, &["metadata", "labels", key], json!(value));
            }
            self.create_checked(node)?;
            if let Some(drivers) = csi_node.as_ref().and_then(|found| field::at(found, "/spec/drivers")) {
                let own = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                    "metadata": {"name": name}, "spec": {"drivers": drivers}});
                self.create_checked(own)?;
            }
            names.push(name);
        }
        Ok(format!("added {}", listed("node", &names)))
    }

    fn create_checked(&mut self, object: Value) -> Result<(), String> {
        berth_core::api::Object::decode(object.clone()).map_err(|error| error.to_string())?;
        self.create(object).map_err(|error| error.to_string())
    }

    fn scale(&mut self, scale: &Scale) -> Result<String, String> {
        let key = key_for(&scale.kind, &scale.namespace, &scale.name);
        let before = self
            .get(&key)
            .map(|found| field::count(found, "/spec/replicas").unwrap_or(1));
        let before = before.ok_or_else(|| format!("there is no {}", key))?;
        self.change(&key, None, json!({"spec": {"replicas": scale.replicas}}));
        Ok(format!("scaled {} from {before} to {}", key, scale.replicas))
    }

    fn delete(&mut self, name: &ObjectName) -> Result<String, String> {
        let is_namespaced = !Kind::ALL
            .iter()
            .any(|kind| kind.name() == name.kind && !kind.is_namespaced());
        let namespace = match &name.namespace {
            Some(namespace) => namespace,
            None if is_namespaced => "default",
            None => "",
        };
        let key = key_for(&name.kind, namespace, &name.name);
        if !self.delete_object(&key) {
            return Err(format!("there is no {}", key));
        }
        Ok(format!("deleted {}", key))
    }

    fn apply(&mut self, apply: &Apply) -> Result<String, String> {
        let mut names = Vec::new();
        for object in crate::simulation::fill::in_order(apply.objects.clone()) {
            let key = key_of(&object);
            names.push(key.to_string());
            let mut whole = self.get(&key).cloned().unwrap_or_default();
            field::merge(&mut whole, &object);
            check::workload(&whole).map_err(|wrong| format!("{}: {}: {}", key, wrong.field, wrong.problem))?;
            if self.get(&key).is_none() {
                self.create(object).map_err(|error| error.to_string())?;
                continue;
            }
            let mut patch = object;
            for own in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "generation",
                "managedFields",
            ] {
                field::unset(&mut patch, &["metadata", own]);
            }
            self.change(&key, None, patch);
        }
        Ok(format!("applied {}", listed("object", &names)))
    }

    fn set_capacity(&mut self, set: &SetCapacity) -> Result<String, String> {
        let is_meant = |pool: &&Value| {
            field::text(pool, "/storageClassName") == set.storage_class
                && set
                    .node_topology
                    .iter()
                    .all(|(key, value)| pool["nodeTopology"]["matchLabels"][key] == **value)
        };
        let pools: Vec<ObjectKey> = self
            .objects()
            .of_kind("CSIStorageCapacity")
            .filter(is_meant)
            .map(key_of)
            .collect();
        if pools.is_empty() {
            return Err(format!(
                "there is no CSIStorageCapacity of class {:?} with this topology",
                set.storage_class
            ));
        }
        for pool in &pools {
            self.change(pool, None, json!({"capacity": set.capacity}));
        }
        let names: Vec<String> = pools.iter().map(|pool| pool.name.clone()).collect();
        Ok(format!(
            "set to {} the capacity of {}",
            set.capacity,
            listed("pool", &names)
        ))
    }
}

/// What of a node makes another one like it.
fn copy_of(node: &Value) -> Value {
    let mut copy = json!({"metadata": {"labels": node["metadata"]["labels"]}});
    if let Some(annotations) = node["metadata"]["annotations"].as_object() {
        let mut annotations = annotations.clone();
        annotations.remove(AGENT_MODE);
        field::set(&mut copy, &["metadata", "annotations"], Value::Object(annotations));
    }
    let is_lasting = |taint: &&Value| !field::text(taint, "/key").starts_with("node.kubernetes.io/");
    let taints: Vec<&Value> = field::items(node, "/spec/taints").iter().filter(is_lasting).collect();
    if !taints.is_empty() {
        field::set(&mut copy, &["spec", "taints"], json!(taints));
    }
    for part in ["capacity", "allocatable"] {
        if !node["status"][part].is_null() {
            field::set(&mut copy, &["status", part], node["status"][part].clone());
        }
    }
    copy
}

/// `node n1`, or `12 nodes: n1, n2, n3, n4 and 8 more`.
fn listed(what: &str, names: &[String]) -> String {
    match names {
        [name] if what == "object" => name.clone(),
        [name] => format!("{what} {name}"),
        names => {
            let told = names.iter().take(NAMES_TOLD).map(String::as_str).collect::<Vec<_>>();
            let more = match names.len() - told.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{} {what}s: {}{more}", names.len(), told.join(", "))
        }
    }
}
