//! Metadata that every Kubernetes object has, and label selectors.

use super::nullable;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Labels or annotations as written in an object.
pub type StringMap = BTreeMap<String, String>;

/// The metadata that decisions read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Unique within its namespace and kind. The oldest examples spell the key `Name`.
    #[serde(alias = "Name", deserialize_with = "nullable")]
    pub name: String,
    /// Empty for cluster-scoped objects.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    /// Distinguishes successive objects with the same name.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// The resource version of this state of the object.
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
    /// Counts the changes of what the object asks for.
    pub generation: Option<i64>,
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: StringMap,
    /// Annotations.
    #[serde(deserialize_with = "nullable")]
    pub annotations: StringMap,
    /// When it was created, in RFC 3339.
    pub creation_timestamp: Option<String>,
    /// Set while the object is being deleted.
    pub deletion_timestamp: Option<String>,
    /// How long the object may take to stop once it is being deleted.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Finalizers: cleanup that must finish before the object is removed.
    #[serde(deserialize_with = "nullable")]
    pub finalizers: Vec<String>,
    /// The objects that own this one.
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
}

impl ObjectMeta {
    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether it is being deleted and its grace period is zero, even if finalizers still keep the object. For a pod, its node
    /// has stopped it.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.is_deleting() && self.deletion_grace_period_seconds == Some(0)
    }

    /// `namespace/name`, or only the name for a cluster-scoped object.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }
}

/// A reference from an object to its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// API version of the owner.
    #[serde(deserialize_with = "nullable")]
    pub api_version: String,
    /// Kind of the owner.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    /// Name of the owner.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Uid of the owner.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// Whether this owner is the managing controller.
    pub controller: Option<bool>,
}

/// A label selector: all of its parts must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Each label must have this value.
    #[serde(deserialize_with = "nullable")]
    pub match_labels: StringMap,
    /// Each requirement must hold.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<Requirement>,
}

/// One requirement on a label (or, in a node selector term, on a field).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirement {
    /// The label's key.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, and for nodes `Gt` and `Lt`.
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    /// The operator's operands.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

/// A node selector: one of its terms must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms, ORed. An empty list matches no node.
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements on one node, ANDed. An empty term matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<Requirement>,
    /// Requirements on fields: `metadata.name`.
    #[serde(deserialize_with = "nullable")]
    pub match_fields: Vec<Requirement>,
}
