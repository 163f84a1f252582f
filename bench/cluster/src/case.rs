//! The kinds of clusters and pods that decisions are measured on, beyond the plain one: each makes one part of a decision hard.

use crate::cluster::{CLASS, NAMESPACE, Size, application_of, class_named, node_name, zone_name};
use berth_core::api::{Node, NodeSelector, NodeSelectorTerm, Object, Pod, Requirement, VolumeNodeAffinity};
use berth_core::names;
use berth_core::quantity::Quantity;
use serde_json::{Value, json};

/// The number of storage classes of [`Case::Classes`].
const CLASSES: usize = 50;
/// The number of teams of [`Case::Taints`]: each has nodes of its own.
const TEAMS: usize = 100;
/// How many pods fill a node of [`Case::Preemption`], and the CPU of each.
const FILLERS: usize = 4;
const CPU_OF_FILLERS: &str = "2";
/// The driver of [`Case::Pools`].
const DRIVER: &str = "disk.example.com";

/// What the generated cluster and its pods make hard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Case {
    /// Nothing: local volumes, and pods that require nothing of nodes.
    #[default]
    Plain,
    /// No two pods of an application on one node.
    AntiAffinity,
    /// Pods of an application are spread over zones and nodes.
    Spread,
    /// A hundred teams, each with tainted nodes that only its pods tolerate, and nodes that are avoided.
    Taints,
    /// Fifty storage classes.
    Classes,
    /// Each volume can be reached by all nodes of a zone.
    Zonal,
    /// Each volume can be reached by all nodes.
    Regional,
    /// No volume exists: all are provisioned, and each node has a storage pool.
    Pools,
    /// All nodes are full of less important pods.
    Preemption,
    /// Each pod is deleted after the next ones were placed.
    Churn,
}

impl Case {
    /// All of them, with the words that select them.
    pub const ALL: [(&str, Self); 10] = [
        ("plain", Self::Plain),
        ("anti-affinity", Self::AntiAffinity),
        ("spread", Self::Spread),
        ("taints", Self::Taints),
        ("classes", Self::Classes),
        ("zonal", Self::Zonal),
        ("regional", Self::Regional),
        ("pools", Self::Pools),
        ("preemption", Self::Preemption),
        ("churn", Self::Churn),
    ];

    /// The word that selects it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(_, case)| *case == self).map_or("", |(name, _)| name)
    }

    /// The storage class of a volume or claim.
    pub(crate) fn class_of(self, number: usize) -> String {
        match self {
            Self::Classes => format!("{CLASS}-{}", number % CLASSES),
            _ => CLASS.to_owned(),
        }
    }

    /// The storage classes, and the driver that provisions.
    pub(crate) fn classes(self) -> Vec<Object> {
        match self {
            Self::Classes => (0..CLASSES)
                .map(|number| class_named(&self.class_of(number), names::NO_PROVISIONER))
                .collect(),
            Self::Pools => {
                let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
                    "spec": {"storageCapacity": true}});
                let mut objects = vec![class_named(CLASS, DRIVER)];
                objects.extend(decoded(&driver));
                objects
            }
            _ => vec![class_named(CLASS, names::NO_PROVISIONER)],
        }
    }

    /// Whether nodes have volumes.
    pub(crate) fn has_volumes(self) -> bool {
        self != Self::Pools
    }

    /// Which nodes reach a volume of a node.
    pub(crate) fn volume_affinity(self, node: usize, zone: usize) -> VolumeNodeAffinity {
        let (key, value) = match self {
            Self::Zonal => (names::ZONE, zone_name(zone)),
            Self::Regional => (names::REGION, "region-0".to_owned()),
            _ => (names::HOSTNAME, node_name(node)),
        };
        let there = Requirement {
            key: key.to_owned(),
            operator: "In".to_owned(),
            values: vec![value],
        };
        VolumeNodeAffinity {
            required: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: vec![there],
                    match_fields: Vec::new(),
                }],
            }),
        }
    }

    /// Changes a node.
    pub(crate) fn adapt_node(self, index: usize, node: &mut Node) {
        if self == Self::Taints {
            let mut taints = vec![json!({"key": "team", "value": team(index), "effect": "NoSchedule"})];
            if index.is_multiple_of(7) {
                taints.push(json!({"key": "spot", "value": "", "effect": "PreferNoSchedule"}));
            }
            node.spec.taints = serde_json::from_value(Value::Array(taints)).unwrap_or_default();
        }
        if self == Self::Preemption {
            let cpu = Quantity::from_units(2 * FILLERS as i64);
            node.status.allocatable.insert("cpu".to_owned(), cpu);
        }
    }

    /// The objects that belong to a node, except for its volumes.
    pub(crate) fn beside_node(self, index: usize) -> Vec<Object> {
        let name = node_name(index);
        match self {
            Self::Pools => {
                let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
                    "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": [names::HOSTNAME]}]}});
                let pool = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                    "metadata": {"name": format!("pool-{index}"), "namespace": NAMESPACE}, "storageClassName": CLASS,
                    "nodeTopology": {"matchLabels": {names::HOSTNAME: name}},
                    "capacity": format!("{}Gi", 200 + index % 13 * 100)});
                [csi_node, pool].iter().filter_map(decoded).collect()
            }
            Self::Preemption => {
                // Evicting one of them makes room for one pod.
                let filler = |number: usize| {
                    let pod = json!({"apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": format!("filler-{index}-{number}"), "namespace": NAMESPACE,
                            "uid": format!("uid-filler-{index}-{number}"), "labels": {"app": application_of(index)}},
                        "spec": {"nodeName": name, "priority": number as i64 % 3, "containers": [{"name": "main",
                            "resources": {"requests": {"cpu": CPU_OF_FILLERS, "memory": "1Gi"}}}]},
                        "status": {"phase": "Running"}});
                    decoded(&pod)
                };
                (0..FILLERS).filter_map(filler).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Changes a pod.
    pub(crate) fn adapt_pod(self, index: usize, pod: &mut Pod) {
        let app = pod.metadata.labels.get("app").cloned().unwrap_or_default();
        let alike = json!({"matchLabels": {"app": app}});
        let spec = &mut pod.spec;
        match self {
            Self::AntiAffinity => {
                let term = json!({"labelSelector": alike, "topologyKey": names::HOSTNAME});
                let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
                spec.affinity = serde_json::from_value(affinity).ok();
            }
            Self::Spread => {
                let constraint = |key: &str, action: &str| {
                    json!({"maxSkew": 1, "topologyKey": key,
                    "whenUnsatisfiable": action, "labelSelector": alike})
                };
                let constraints = json!([
                    constraint(names::ZONE, "DoNotSchedule"),
                    constraint(names::HOSTNAME, "ScheduleAnyway")
                ]);
                spec.topology_spread_constraints = serde_json::from_value(constraints).unwrap_or_default();
            }
            Self::Taints => {
                let tolerations =
                    json!([{"key": "team", "operator": "Equal", "value": team(index), "effect": "NoSchedule"}]);
                spec.tolerations = serde_json::from_value(tolerations).unwrap_or_default();
            }
            Self::Preemption => {
                spec.priority = Some(10);
                let cpu = CPU_OF_FILLERS.parse().unwrap_or_default();
                let requests = spec
                    .containers
                    .iter_mut()
                    .map(|container| &mut container.resources.requests);
                for requests in requests {
                    requests.insert("cpu".to_owned(), cpu);
                }
            }
            Self::Plain | Self::Classes | Self::Zonal | Self::Regional | Self::Pools | Self::Churn => {}
        }
    }
}

impl Size {
    /// Whether the pods of this size can be deleted while others are placed.
    pub(crate) fn deletes(&self) -> bool {
        self.case == Case::Churn
    }
}

fn team(number: usize) -> String {
    format!("team-{}", number % TEAMS)
}

/// The object; generated ones are always valid.
fn decoded(value: &Value) -> Option<Object> {
    Object::decode(value).ok().flatten()
}
