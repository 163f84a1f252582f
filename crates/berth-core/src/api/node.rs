//! Nodes and what drivers say about them.

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
    /// What the administrator asked of it.
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
    /// Pods must tolerate these.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
}

/// A mark on a node that keeps pods away which do not tolerate it.
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
    /// What pods may use. Falls back to nothing, not to the capacity, as in kube-scheduler.
    #[serde(deserialize_with = "nullable")]
    pub allocatable: ResourceList,
    /// Images that the node holds.
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

/// What the CSI drivers on a node say about it.
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
    /// The node's name in the driver's words.
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
