//! Published capacity, with the time at which it was published.

use super::{LabelSelector, ObjectMeta, OwnerReference, StringMap, nullable};
use crate::quantity::Quantity;
use serde::Deserialize;

/// Free space of one class in one topology segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WrittenCapacity")]
pub struct CsiStorageCapacity {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// When it was last written, in RFC 3339.
    pub written: Option<String>,
    /// The class.
    pub storage_class_name: String,
    /// The nodes that can reach it. None means that no node can.
    pub node_topology: Option<LabelSelector>,
    /// Free space.
    pub capacity: Option<Quantity>,
    /// The largest volume that can be created.
    pub maximum_volume_size: Option<Quantity>,
}

/// [`CsiStorageCapacity`] as it is written, with the time that is nowhere but in `managedFields`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenCapacity {
    #[serde(deserialize_with = "nullable")]
    metadata: WrittenMeta,
    #[serde(deserialize_with = "nullable")]
    storage_class_name: String,
    node_topology: Option<LabelSelector>,
    capacity: Option<Quantity>,
    maximum_volume_size: Option<Quantity>,
}

/// [`ObjectMeta`] with the times of writes. For kinds of which there are few objects, and whose times are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenMeta {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    uid: String,
    #[serde(deserialize_with = "nullable")]
    resource_version: String,
    generation: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    labels: StringMap,
    #[serde(deserialize_with = "nullable")]
    annotations: StringMap,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    finalizers: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "nullable")]
    managed_fields: Vec<ManagedFields>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    time: Option<String>,
}

impl From<WrittenCapacity> for CsiStorageCapacity {
    fn from(written: WrittenCapacity) -> Self {
        let WrittenMeta {
            name,
            namespace,
            uid,
            resource_version,
            generation,
            labels,
            annotations,
            creation_timestamp,
            deletion_timestamp,
            deletion_grace_period_seconds,
            finalizers,
            owner_references,
            managed_fields,
        } = written.metadata;
        Self {
            metadata: ObjectMeta {
                name,
                namespace,
                uid,
                resource_version,
                generation,
                labels,
                annotations,
                creation_timestamp,
                deletion_timestamp,
                deletion_grace_period_seconds,
                finalizers,
                owner_references,
            },
            // API servers write all times in the same form, so the latest is the largest.
            written: managed_fields.into_iter().filter_map(|fields| fields.time).max(),
            storage_class_name: written.storage_class_name,
            node_topology: written.node_topology,
            capacity: written.capacity,
            maximum_volume_size: written.maximum_volume_size,
        }
    }
}
