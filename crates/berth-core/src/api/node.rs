//! Nodes, and what CSI drivers report about them.

use super::{ObjectMeta, nullable};
use crate::quantity::Quantity;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Its desired state.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
    /// What it reports.
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

/// See [`Node`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Set by `kubectl cordon`.
    #[serde(deserialize_with = "nullable")]
    pub unschedulable: bool,
    /// Taints that pods must tolerate.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
}

/// A mark on a node that repels pods that do not tolerate it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Value, possibly empty.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
}

/// See [`Node`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Resources available to pods. Defaults to none, not to the capacity, as in kube-scheduler.
    #[serde(deserialize_with = "nullable")]
    pub allocatable: ResourceList,
    /// Images on the node.
    #[serde(deserialize_with = "nullable")]
    pub images: Vec<ContainerImage>,
}

/// An image on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerImage {
    /// All names of the image.
    #[serde(deserialize_with = "nullable")]
    pub names: Vec<String>,
    /// Its size.
    #[serde(deserialize_with = "nullable")]
    pub size_bytes: i64,
}

/// What the CSI drivers on a node report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNode {
    /// The name is the node's.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// The drivers.
    #[serde(deserialize_with = "nullable")]
    pub spec: CsiNodeSpec,
}

/// See [`CsiNode`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeSpec {
    /// One entry for each driver on the node.
    #[serde(deserialize_with = "nullable")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    /// The driver's name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The driver's ID for the node.
    #[serde(rename = "nodeID", deserialize_with = "nullable")]
    pub node_id: String,
    /// Node labels that make up the driver's topology.
    #[serde(deserialize_with = "nullable")]
    pub topology_keys: Vec<String>,
    /// Limits.
    pub allocatable: Option<VolumeNodeResources>,
}

/// How many volumes of a driver a node can hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeResources {
    /// The number; none means no limit.
    pub count: Option<i32>,
}
