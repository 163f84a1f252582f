//! What a model reads of an object. Objects are large and rows are small: those who hear of many objects read each as it
//! comes, and let it go.

use crate::rows::{ClaimRow, ClassRow, NodeRow, PodRow, PoolRow, VolumeRow, WorkloadRow};
use berth_cluster::field;
use serde_json::Value;
use std::collections::BTreeMap;

/// The kinds that have rows.
pub(crate) const KINDS: [&str; 13] = [
    "Node",
    "CSINode",
    "Pod",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSIStorageCapacity",
    "CSIDriver",
    "CSIDriverCapacity",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
];

/// What a model reads of an object, or that it is gone.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key of its row.
    pub(crate) name: String,
    pub(crate) rows: Rows,
}

/// The rows of an object; nothing if it is gone.
#[derive(Clone, Debug)]
pub(crate) enum Rows {
    Node(Option<NodeRow>),
    /// How many volumes can be attached to the node, by driver.
    Limits(BTreeMap<String, i64>),
    Pod(Option<PodRow>),
    Claim(Option<ClaimRow>),
    Volume(Option<VolumeRow>),
    Class(Option<ClassRow>),
    /// By the names that the object gives them.
    Pools(Vec<(String, PoolRow)>),
    Workload(Option<WorkloadRow>),
    /// Objects of this kind are not shown.
    None,
}

impl Entry {
    /// Reads an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::read(object, true)
    }

    /// The entry of an object that is gone. Kind, namespace and name are all that is read of it.
    #[must_use]
    pub fn gone(object: &Value) -> Self {
        Self::read(object, false)
    }

    fn read(object: &Value, there: bool) -> Self {
        let kind = field::kind(object);
        let mut name = match field::namespace(object) {
            "" => field::name(object).to_owned(),
            namespace => format!("{namespace}/{}", field::name(object)),
        };
        let rows = match kind {
            "Node" => Rows::Node(there.then(|| NodeRow::of(object))),
            "CSINode" => Rows::Limits(if there { limits(object) } else { BTreeMap::new() }),
            "Pod" => Rows::Pod(there.then(|| PodRow::of(object))),
            "PersistentVolumeClaim" => Rows::Claim(there.then(|| ClaimRow::of(object))),
            "PersistentVolume" => Rows::Volume(there.then(|| VolumeRow::of(object))),
            "StorageClass" => Rows::Class(there.then(|| ClassRow::of(object))),
            "CSIStorageCapacity" => {
                let pool = there.then(|| (String::new(), PoolRow::of_capacity(object)));
                Rows::Pools(pool.into_iter().collect())
            }
            "CSIDriver" | "CSIDriverCapacity" => Rows::Pools(PoolRow::of_driver(object).filter(|_| there).collect()),
            "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => {
                Rows::Workload(WorkloadRow::of(object).filter(|_| there))
            }
            _ => Rows::None,
        };
        // Objects of several kinds share these tables.
        if matches!(rows, Rows::Pools(_) | Rows::Workload(_)) {
            name = format!("{kind}/{name}");
        }
        Self { name, rows }
    }
}

fn limits(csi_node: &Value) -> BTreeMap<String, i64> {
    let drivers = field::items(csi_node, "/spec/drivers").iter();
    let limits = drivers.filter_map(|driver| {
        let count = field::number(driver, "/allocatable/count")?;
        Some((field::text(driver, "/name").to_owned(), count))
    });
    limits.collect()
}

#[cfg(test)]
mod tests {
    use super::{Entry, KINDS, Rows};
    use serde_json::json;

    #[test]
    fn every_kind_that_is_listed_has_rows() {
        for kind in KINDS {
            let entry = Entry::of(&json!({"kind": kind, "metadata": {"name": "x"}}));
            assert!(!matches!(entry.rows, Rows::None), "{kind}");
        }
        let other = Entry::of(&json!({"kind": "Secret", "metadata": {"name": "x"}}));
        assert!(matches!(other.rows, Rows::None));
    }
}
