//! Performs the actions of a scenario: each becomes effects, which a simulation carries out on its objects, and other
//! callers on an API server.

use super::copy::{self, Storage};
use super::{Action, AddNodes, Apply, Nodes, ObjectName, Scale, SetCapacity, Step};
use crate::check;
use crate::names::AGENT_MODE;
use crate::simulation::Simulation;
use crate::simulation::drain::Drains;
use crate::simulation::location::zone_of;
use crate::{View, field, key_for, key_of, step};
use berth_core::api::Kind;
use berth_core::effect::{Effect, Guard, Merge, Patch, Target};
use berth_core::names::HOSTNAME;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;

/// Number of names that a line lists before it counts the rest.
const NAMES_TOLD: usize = 4;

/// Why an action of a scenario cannot be performed: the cluster is not in the expected state.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {field}: at {at:#}: {problem}")]
pub struct PerformError {
    /// The file of the scenario.
    pub file: Arc<str>,
    /// The action.
    pub field: String,
    /// Its time.
    pub at: SignedDuration,
    /// What prevents it.
    pub problem: String,
}

/// The plan for an action: effects for the player of the scenario, on objects in memory or on an API server.
#[derive(Debug, Default)]
pub struct Plan {
    /// What was done, in one line.
    pub told: String,
    /// What to write, in order. Valid for the objects that the plan was based on.
    pub effects: Vec<Effect>,
    /// Nodes to drain from now on, and whether budgets are ignored.
    pub drain: Vec<(String, bool)>,
    /// Nodes that should no longer be drained.
    pub keep: Vec<String>,
}

impl Simulation {
    /// Performs the actions of a step and returns what was done, one line per action.
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
        let plan = action.plan(self.objects())?;
        self.carry_out(&plan.effects)
            .done()
            .map_err(|refusal| refusal.to_string())?;
        self.drains.follow(&plan);
        Ok(plan.told)
    }
}

impl Drains {
    /// Starts and stops the drains of a plan.
    pub fn follow(&mut self, plan: &Plan) {
        plan.keep.iter().for_each(|node| self.stop(node));
        for (node, disable_eviction) in &plan.drain {
            self.start(node, *disable_eviction);
        }
    }
}

impl Action {
    /// The plan for it on these objects.
    ///
    /// # Errors
    /// A message, if the objects are not in the expected state.
    pub fn plan(&self, view: &dyn View) -> Result<Plan, String> {
        match self {
            Self::AddNodes(add) => add_nodes(view, add),
            Self::DeleteNodes(nodes) => delete_nodes(view, nodes),
            Self::Cordon(nodes) => each_node(view, nodes, "cordoned", cordon),
            Self::Uncordon(nodes) => {
                let uncordon = |node: &Value| change(node, json!({"spec": {"unschedulable": null}}));
                let mut plan = each_node(view, nodes, "uncordoned", uncordon)?;
                plan.keep = select(view, nodes)?.into_iter().map(name_of).collect();
                Ok(plan)
            }
            Self::Drain(drain) => {
                let nodes = drain.nodes();
                let mut plan = each_node(view, &nodes, "draining", cordon)?;
                let names = select(view, &nodes)?.into_iter().map(name_of);
                plan.drain = names.map(|name| (name, drain.disable_eviction)).collect();
                Ok(plan)
            }
            Self::StopNodes(nodes) => each_node(view, nodes, "stopped", |node| agent_mode(node, json!("stop"))),
            Self::StartNodes(nodes) => each_node(view, nodes, "started", |node| agent_mode(node, Value::Null)),
            Self::RefusePods(nodes) => {
                each_node(view, nodes, "refusing pods:", |node| agent_mode(node, json!("refuse")))
            }
            Self::Scale(scale) => plan_scale(view, scale),
            Self::Delete(name) => plan_delete(view, name),
            Self::Apply(apply) => plan_apply(view, apply),
            Self::SetCapacity(set) => set_capacity(view, set),
        }
    }
}

/// Changes an object as a user does, in any version.
fn change(object: &Value, body: Value) -> Effect {
    Effect::Patch(Patch {
        target: Target::of_value(object),
        guard: Guard::Uid,
        subresource: None,
        merge: Merge::Strategic,
        body,
        name: "change",
    })
}

/// Changes the status of an object, which other changes do not touch.
fn change_status(object: &Value, status: Value) -> Effect {
    let has_part =
        berth_kinds::kind_of(object).is_some_and(|kind| kind.subresources.iter().any(|one| one.name == "status"));
    Effect::Patch(Patch {
        target: Target::of_value(object),
        guard: Guard::Uid,
        subresource: has_part.then_some("status"),
        merge: Merge::Strategic,
        body: json!({ "status": status }),
        name: "change",
    })
}

fn name_of(object: &Value) -> String {
    field::name(object).to_owned()
}

fn each_node(view: &dyn View, nodes: &Nodes, did: &str, act: impl Fn(&Value) -> Effect) -> Result<Plan, String> {
    let nodes = select(view, nodes)?;
    let names: Vec<String> = nodes.iter().map(|node| name_of(node)).collect();
    Ok(Plan {
        told: format!("{did} {}", listed("node", &names)),
        effects: nodes.into_iter().map(act).collect(),
        ..Plan::default()
    })
}

/// The selected nodes: at least one.
fn select<'a>(view: &'a dyn View, wanted: &Nodes) -> Result<Vec<&'a Value>, String> {
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
    let found: Vec<&Value> = view.of_kind("Node").filter(is_meant).collect();
    match found.as_slice() {
        [] => Err("no node is in this zone or has these labels".to_owned()),
        _ => Ok(found),
    }
}

fn cordon(node: &Value) -> Effect {
    change(node, json!({"spec": {"unschedulable": true}}))
}

/// Sets the mode of a node's agent.
fn agent_mode(node: &Value, mode: Value) -> Effect {
    change(node, json!({"metadata": {"annotations": {AGENT_MODE: mode}}}))
}

fn delete_nodes(view: &dyn View, nodes: &Nodes) -> Result<Plan, String> {
    let mut plan = each_node(view, nodes, "deleted", step::delete)?;
    // What a node's own plugins publish is deleted with it.
    let own = select(view, nodes)?.into_iter().map(field::name);
    let own = own.filter_map(|name| view.get("CSINode", "", name));
    plan.effects.extend(own.map(step::delete));
    Ok(plan)
}

fn add_nodes(view: &dyn View, add: &AddNodes) -> Result<Plan, String> {
    let model = match &add.like {
        Some(name) => {
            let node = view.get("Node", "", name);
            Some(node.ok_or_else(|| format!("there is no node {name:?} to copy"))?)
        }
        None => None,
    };
    let csi_node = model.and_then(|model| view.get("CSINode", "", field::name(model)));
    let storage = model.map(|model| Storage::of(view, model));
    let mut plan = Plan::default();
    let (mut names, mut volumes, mut pools) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = 0_u64;
    while names.len() < add.count as usize {
        number += 1;
        let name = format!("{}{number}", add.generate_name);
        if view.get("Node", "", &name).is_some() {
            continue;
        }
        let mut node = match model {
            Some(model) => copy::node(model, &name),
            None => add.template.clone().unwrap_or_default(),
        };
        field::set(&mut node, &["apiVersion"], json!("v1"));
        field::set(&mut node, &["kind"], json!("Node"));
        field::set(&mut node, &["metadata", "name"], json!(name));
        field::set(&mut node, &["metadata", "labels", HOSTNAME], json!(name));
        for (key, value) in &add.labels {
            field::set(&mut node, &["metadata", "labels", key], json!(value));
        }
        plan.effects.push(create_checked(node)?);
        if let Some((model, csi_node)) = model.zip(csi_node) {
            let own = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": name}, "spec": {"drivers": copy::drivers(model, csi_node, &name)}});
            plan.effects.push(create_checked(own)?);
        }
        if let Some(storage) = &storage {
            for (copies, told) in [
                (storage.disks_on(&name), &mut volumes),
                (storage.pools_on(&name), &mut pools),
            ] {
                for copy in copies {
                    told.push(field::name(&copy).to_owned());
                    plan.effects.push(create_checked(copy)?);
                }
            }
        }
        names.push(name);
    }
    let with: Vec<String> = [("local volume", volumes), ("pool", pools)]
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| listed(what, names))
        .collect();
    plan.told = format!("added {}", listed("node", &names));
    if !with.is_empty() {
        plan.told = format!("{} with {}", plan.told, with.join(" and "));
    }
    Ok(plan)
}

fn create_checked(object: Value) -> Result<Effect, String> {
    berth_core::api::Object::decode(&object).map_err(|error| error.to_string())?;
    Ok(Effect::Create(Box::new(object)))
}

fn plan_scale(view: &dyn View, scale: &Scale) -> Result<Plan, String> {
    let key = key_for(&scale.kind, &scale.namespace, &scale.name);
    let found = view.get(&key.kind, &key.namespace, &key.name);
    let found = found.ok_or_else(|| format!("there is no {key}"))?;
    let before = field::count(found, "/spec/replicas").unwrap_or(1);
    Ok(Plan {
        told: format!("scaled {key} from {before} to {}", scale.replicas),
        effects: vec![change(found, json!({"spec": {"replicas": scale.replicas}}))],
        ..Plan::default()
    })
}

fn plan_delete(view: &dyn View, name: &ObjectName) -> Result<Plan, String> {
    let is_namespaced = !Kind::ALL
        .iter()
        .any(|kind| kind.name() == name.kind && !kind.is_namespaced());
    let namespace = match &name.namespace {
        Some(namespace) => namespace,
        None if is_namespaced => "default",
        None => "",
    };
    let key = key_for(&name.kind, namespace, &name.name);
    let found = view.get(&key.kind, &key.namespace, &key.name);
    let found = found.ok_or_else(|| format!("there is no {key}"))?;
    Ok(Plan {
        told: format!("deleted {key}"),
        effects: vec![step::delete(found)],
        ..Plan::default()
    })
}

fn plan_apply(view: &dyn View, apply: &Apply) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut names = Vec::new();
    for object in crate::simulation::fill::in_order(apply.objects.clone()) {
        let key = key_of(&object);
        names.push(key.to_string());
        let known = view.get(&key.kind, &key.namespace, &key.name);
        let mut whole = known.cloned().unwrap_or_default();
        field::merge(&mut whole, &object);
        check::workload(&whole).map_err(|wrong| format!("{}: {}: {}", key, wrong.field, wrong.problem))?;
        let Some(known) = known else {
            plan.effects.push(Effect::Create(Box::new(object)));
            continue;
        };
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
        let status = patch.as_object_mut().and_then(|fields| fields.remove("status"));
        plan.effects.push(change(known, patch));
        plan.effects.extend(status.map(|status| change_status(known, status)));
    }
    plan.told = format!("applied {}", listed("object", &names));
    Ok(plan)
}

fn set_capacity(view: &dyn View, set: &SetCapacity) -> Result<Plan, String> {
    let is_meant = |pool: &&Value| {
        field::text(pool, "/storageClassName") == set.storage_class
            && set
                .node_topology
                .iter()
                .all(|(key, value)| pool["nodeTopology"]["matchLabels"][key] == **value)
    };
    let pools: Vec<&Value> = view.of_kind("CSIStorageCapacity").filter(is_meant).collect();
    if pools.is_empty() {
        return Err(format!(
            "there is no CSIStorageCapacity of class {:?} with this topology",
            set.storage_class
        ));
    }
    let names: Vec<String> = pools.iter().map(|pool| name_of(pool)).collect();
    let to = |pool: &Value| change(pool, json!({"capacity": set.capacity}));
    Ok(Plan {
        told: format!("set to {} the capacity of {}", set.capacity, listed("pool", &names)),
        effects: pools.into_iter().map(to).collect(),
        ..Plan::default()
    })
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
