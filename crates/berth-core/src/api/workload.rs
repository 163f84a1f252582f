//! Services and workloads, as far as they tell which pods belong together.

use super::{LabelSelector, ObjectMeta, StringMap, nullable};
use serde::Deserialize;

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
    /// A stateful set.
    StatefulSet, StatefulSetSpec, LabelSelector;
}
