//! A scenario: what is done to a simulated cluster, and when.
//!
//! `at` counts from the start of the simulation, and steps stand in the order of time. Between two steps the cluster does
//! whatever it does. Files are read and checked elsewhere; `perform` turns what they say into effects.

pub mod copy;
mod perform;

pub use super::drain::Drains;
pub use perform::{PerformError, Plan};

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is done to a cluster, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file it was read from.
    pub file: Arc<str>,
    /// Its steps, in the order of time.
    pub steps: Vec<Step>,
}

/// What is done at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, from the start.
    pub at: SignedDuration,
    /// What to call it.
    pub name: String,
    /// What is done, in this order.
    pub actions: Vec<Action>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Add nodes.
    AddNodes(AddNodes),
    /// Delete nodes; their pods go with them.
    DeleteNodes(Nodes),
    /// Let no new pods come to nodes.
    Cordon(Nodes),
    /// Let new pods come again.
    Uncordon(Nodes),
    /// Cordon nodes and evict their pods, as far as disruption budgets allow.
    Drain(Drain),
    /// Nodes fall silent, as when they lose power or their network.
    StopNodes(Nodes),
    /// Silent and refusing nodes are well again.
    StartNodes(Nodes),
    /// The agents of nodes refuse pods that come.
    RefusePods(Nodes),
    /// Set the replicas of a workload.
    Scale(Scale),
    /// Delete an object.
    Delete(ObjectName),
    /// Create objects, or change those that are there.
    Apply(Apply),
    /// Set how much room storage pools have.
    SetCapacity(SetCapacity),
}

/// Nodes by name, zone or labels; those that meet all that is said.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Nodes {
    /// Their names.
    pub nodes: Vec<String>,
    /// Their zone.
    pub zone: Option<String>,
    /// Labels that they have.
    pub node_selector: BTreeMap<String, String>,
}

/// Nodes to drain.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Drain {
    nodes: Vec<String>,
    zone: Option<String>,
    node_selector: BTreeMap<String, String>,
    /// Evict pods whatever disruption budgets say.
    pub disable_eviction: bool,
}

impl Drain {
    /// Nodes by name, as far as disruption budgets allow.
    #[must_use]
    pub fn of(nodes: Vec<String>) -> Self {
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> Nodes {
        Nodes {
            nodes: self.nodes.clone(),
            zone: self.zone.clone(),
            node_selector: self.node_selector.clone(),
        }
    }
}

/// Nodes to add: copies of a node that is there, or made from a template.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddNodes {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// Their names begin so; a number follows.
    pub generate_name: String,
    /// The node to copy, with its local volumes.
    pub like: Option<String>,
    /// A Node without a name.
    pub template: Option<Value>,
    /// Labels that they have besides, or instead.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// A workload and how many pods it shall have.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scale {
    /// `Deployment`, `StatefulSet`, `ReplicaSet` or `ReplicationController`.
    pub kind: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How many pods.
    pub replicas: u32,
}

/// An object by its name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectName {
    /// Its kind.
    pub kind: String,
    /// Its namespace; without one `default`, for kinds that live in namespaces.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Objects to create or change.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Apply {
    /// A file or directory, relative to the scenario's.
    pub filename: Option<String>,
    /// The objects themselves. Those of the file are added when the scenario is read.
    pub objects: Vec<Value>,
}

/// Pools of a class and the room that they shall have.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetCapacity {
    /// The class.
    pub storage_class: String,
    /// Labels of the pools' node topology; without any, all pools of the class.
    #[serde(default)]
    pub node_topology: BTreeMap<String, String>,
    /// The room that is left, `"0"` for a full pool.
    pub capacity: String,
}

impl Scenario {
    /// The objects that its steps apply.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        let actions = self.steps.iter().flat_map(|step| &step.actions);
        actions.flat_map(|action| match action {
            Action::Apply(apply) => apply.objects.as_slice(),
            _ => &[],
        })
    }
}

impl Action {
    /// As it is written in a scenario.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::AddNodes(_) => "addNodes",
            Self::DeleteNodes(_) => "deleteNodes",
            Self::Cordon(_) => "cordon",
            Self::Uncordon(_) => "uncordon",
            Self::Drain(_) => "drain",
            Self::StopNodes(_) => "stopNodes",
            Self::StartNodes(_) => "startNodes",
            Self::RefusePods(_) => "refusePods",
            Self::Scale(_) => "scale",
            Self::Delete(_) => "delete",
            Self::Apply(_) => "apply",
            Self::SetCapacity(_) => "setCapacity",
        }
    }
}
