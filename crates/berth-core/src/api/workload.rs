//! Services and workloads, with the fields that show which pods belong together, and disruption budgets.

use super::{LabelSelector, ObjectMeta, StringMap, nullable};
use serde::Deserialize;
use std::collections::BTreeMap;

macro_rules! selecting {
    ($($(#[$doc:meta])* $kind:ident, $spec:ident, $selector:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            pub struct $kind {
                /// Metadata.
                #[serde(deserialize_with = "nullable")]
                pub metadata: ObjectMeta,
                /// What it selects.
                #[serde(deserialize_with = "nullable")]
                pub spec: $spec,
            }

            #[doc = concat!("See [`", stringify!($kind), "`].")]
            #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            pub struct $spec {
                /// Its pods; none if it selects none.
                pub selector: Option<$selector>,
            }
        )*
    };
}

selecting! {
    /// A service.
    Service, ServiceSpec, StringMap;
    /// A replication controller.
    ReplicationController, ReplicationControllerSpec, StringMap;
    /// A replica set.
    ReplicaSet, ReplicaSetSpec, LabelSelector;
}

/// A stateful set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSet {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What it selects and makes.
    #[serde(deserialize_with = "nullable")]
    pub spec: StatefulSetSpec,
}

/// See [`StatefulSet`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// Its pods; none if it selects none.
    pub selector: Option<LabelSelector>,
    /// The claims that it makes for each of its pods.
    #[serde(deserialize_with = "nullable")]
    pub volume_claim_templates: Vec<NamedTemplate>,
}

/// A claim that is made for each pod of a stateful set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedTemplate {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
}

/// How many pods of a set may be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudget {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What it selects.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodDisruptionBudgetSpec,
    /// How many may be evicted now.
    #[serde(deserialize_with = "nullable")]
    pub status: PodDisruptionBudgetStatus,
}

/// See [`PodDisruptionBudget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// Its pods; none if it selects none.
    pub selector: Option<LabelSelector>,
}

/// See [`PodDisruptionBudget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// How many more pods may be evicted.
    #[serde(deserialize_with = "nullable")]
    pub disruptions_allowed: i32,
    /// Pods whose eviction was granted and that have not been observed to terminate, with the time.
    #[serde(deserialize_with = "nullable")]
    pub disrupted_pods: BTreeMap<String, Option<String>>,
}
