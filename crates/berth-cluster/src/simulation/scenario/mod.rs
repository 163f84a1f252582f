//! A scenario: actions on a simulated cluster, and their times.
//!
//! `at` counts from the start of the simulation, and steps are ordered by time. Between two steps the cluster runs on its
//! own. Files are read and validated elsewhere; `perform` converts actions to effects.

pub mod copy;
mod perform;

pub use super::drain::Drains;
pub use perform::{PerformError, Plan};

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Actions on a cluster, and their times.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file it was read from.
    pub file: Arc<str>,
    /// Its steps, ordered by time.
    pub steps: Vec<Step>,
}

/// The actions at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The time from the start.
    pub at: SignedDuration,
    /// Its name.
    pub name: String,
    /// The actions, in order.
    pub actions: Vec<Action>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Add nodes.
    AddNodes(AddNodes),
    /// Delete nodes and their pods.
    DeleteNodes(Nodes),
    /// Make nodes unschedulable.
    Cordon(Nodes),
    /// Make nodes schedulable again.
    Uncordon(Nodes),
    /// Cordon nodes and evict their pods, as far as disruption budgets allow.
    Drain(Drain),
    /// Make nodes silent, as if they lost power or their network.
    StopNodes(Nodes),
    /// Recover silent and refusing nodes.
    StartNodes(Nodes),
    /// Make the agents of nodes refuse new pods.
    RefusePods(Nodes),
    /// Set the replicas of a workload.
    Scale(Scale),
    /// Delete an object.
    Delete(ObjectName),
    /// Create or change objects.
    Apply(Apply),
    /// Set the capacity of storage pools.
    SetCapacity(SetCapacity),
}

/// Nodes by name, zone or labels; all conditions must match.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Nodes {
    /// Their names.
    pub nodes: Vec<String>,
    /// Their zone.
    pub zone: Option<String>,
    /// Required labels.
    pub node_selector: BTreeMap<String, String>,
}

/// Nodes to drain.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Drain {
    nodes: Vec<String>,
    zone: Option<String>,
    node_selector: BTreeMap<String, String>,
    /// Evict pods regardless of disruption budgets.
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

/// Nodes to add: copies of an existing node, or created from a template.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddNodes {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// The prefix of their names; a number follows.
    pub generate_name: String,
    /// The node to copy, with its local volumes.
    pub like: Option<String>,
    /// A Node without a name.
    pub template: Option<Value>,
    /// Labels to add or override.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// A workload and its desired number of pods.
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
    /// Its namespace; `default` if not set, for namespaced kinds.
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

/// Pools of a class and their new capacity.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetCapacity {
    /// The class.
    pub storage_class: String,
    /// Labels of the pools' node topology; if empty, all pools of the class.
    #[serde(default)]
    pub node_topology: BTreeMap<String, String>,
    /// The remaining space, `"0"` for a full pool.
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
    /// As written in a scenario.
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
