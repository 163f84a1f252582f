//! Copies a node: the node itself, and the storage that only it reaches.

use crate::names::AGENT_MODE;
use crate::{View, field, key_of};
use berth_core::effect::ObjectKey;
use berth_core::names::{HOSTNAME, NO_PROVISIONER, NODE_TAINT_PREFIX};
use berth_core::quantity::Bytes;
use serde_json::{Value, json};

/// A copy of this node. Labels that contain the node's name, such as a driver's topology label, get the name of the
/// copy.
#[must_use]
pub fn node(node: &Value, name: &str) -> Value {
    let mut copy = json!({"metadata": {"labels": node["metadata"]["labels"]}});
    rename(&mut copy["metadata"]["labels"], names_of(node), name);
    if let Some(annotations) = node["metadata"]["annotations"].as_object() {
        let mut annotations = annotations.clone();
        annotations.remove(AGENT_MODE);
        field::set(&mut copy, &["metadata", "annotations"], Value::Object(annotations));
    }
    let is_lasting = |taint: &&Value| !field::text(taint, "/key").starts_with(NODE_TAINT_PREFIX);
    let taints: Vec<&Value> = field::items(node, "/spec/taints").iter().filter(is_lasting).collect();
    if !taints.is_empty() {
        field::set(&mut copy, &["spec", "taints"], json!(taints));
    }
    for part in ["capacity", "allocatable"] {
        if !node["status"][part].is_null() {
            field::set(&mut copy, &["status", part], node["status"][part].clone());
        }
    }
    copy
}

/// The `CSINode` of a copy of this node.
#[must_use]
pub fn drivers(node: &Value, csi_node: &Value, name: &str) -> Value {
    let mut drivers = csi_node["spec"]["drivers"].clone();
    rename(&mut drivers, names_of(node), name);
    drivers
}

/// The storage of a node that no other node reaches: disks, and the capacity that drivers publish only for it.
#[derive(Debug)]
pub struct Storage<'a> {
    node: &'a str,
    /// The names by which volumes and pools may refer to the node.
    names: [&'a str; 2],
    /// Statically provisioned volumes whose affinity selects only this node.
    disks: Vec<&'a Value>,
    /// `CSIStorageCapacity` objects whose topology selects only this node, with the bytes that its volumes take.
    pools: Vec<(&'a Value, i64)>,
}

impl<'a> Storage<'a> {
    /// Finds the storage of a node.
    #[must_use]
    pub fn of(view: &'a dyn View, node: &'a Value) -> Self {
        let name = field::name(node);
        let names = names_of(node);
        let volumes: Vec<&Value> = view
            .of_kind("PersistentVolume")
            .filter(|volume| is_named_alone(volume, names))
            .collect();
        let class = |volume: &&Value| field::text(volume, "/spec/storageClassName").to_owned();
        let is_made = |volume: &&&Value| {
            let class = view.get("StorageClass", "", &class(volume));
            class.is_some_and(|class| !matches!(field::text(class, "/provisioner"), "" | NO_PROVISIONER))
        };
        let taken_from = |pool: &Value| {
            let made = volumes.iter().filter(is_made);
            let from = made.filter(|volume| class(volume) == field::text(pool, "/storageClassName"));
            from.filter_map(|volume| field::bytes(volume, "/spec/capacity/storage"))
                .sum()
        };
        let pools = view.of_kind("CSIStorageCapacity");
        let own = pools.filter(|pool| is_selected_alone(&pool["nodeTopology"], names));
        Self {
            node: name,
            names,
            pools: own.map(|pool| (pool, taken_from(pool))).collect(),
            disks: volumes.iter().filter(|volume| !is_made(volume)).copied().collect(),
        }
    }

    /// The keys of its objects.
    pub fn keys(&self) -> impl Iterator<Item = ObjectKey> + '_ {
        let pools = self.pools.iter().map(|(pool, _)| *pool);
        self.disks.iter().copied().chain(pools).map(key_of)
    }

    /// The disks of a copy of this node, all of them free.
    #[must_use]
    pub fn disks_on(&self, node: &str) -> Vec<Value> {
        let disks = self.disks.iter();
        disks
            .map(|volume| {
                let mut spec = volume["spec"].clone();
                field::unset(&mut spec, &["claimRef"]);
                let mut copy = self.copy(volume, node);
                rename(&mut spec["nodeAffinity"], self.names, node);
                field::set(&mut copy, &["spec"], spec);
                copy
            })
            .collect()
    }

    /// What a driver would publish for a copy of this node, on which it has not created a volume yet.
    #[must_use]
    pub fn pools_on(&self, node: &str) -> Vec<Value> {
        let pools = self.pools.iter();
        pools
            .map(|(pool, taken)| {
                let mut copy = self.copy(pool, node);
                for part in ["nodeTopology", "storageClassName", "capacity", "maximumVolumeSize"] {
                    if !pool[part].is_null() {
                        field::set(&mut copy, &[part], pool[part].clone());
                    }
                }
                rename(&mut copy["nodeTopology"], self.names, node);
                let capacity = field::bytes(pool, "/capacity");
                for part in ["capacity", "maximumVolumeSize"] {
                    let published = field::bytes(pool, &format!("/{part}"));
                    // A limit below the remaining space is the driver's own, and does not grow.
                    if let Some(bytes) = published.filter(|_| published >= capacity) {
                        let all = Bytes(bytes.saturating_add(*taken)).to_string();
                        field::set(&mut copy, &[part], json!(all));
                    }
                }
                copy
            })
            .collect()
    }

    /// A copy of an object for another node, with its name and labels.
    fn copy(&self, object: &Value, node: &str) -> Value {
        let name = field::name(object);
        let name = match name.contains(self.node) {
            true => name.replace(self.node, node),
            false => format!("{node}-{name}"),
        };
        let mut metadata = json!({ "name": name });
        for part in ["namespace", "labels"] {
            if !object["metadata"][part].is_null() {
                field::set(&mut metadata, &[part], object["metadata"][part].clone());
            }
        }
        if let Some(labels) = metadata.get_mut("labels") {
            rename(labels, self.names, node);
        }
        json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata})
    }
}

/// The names by which objects may refer to a node: its name, and its host name.
fn names_of(node: &Value) -> [&str; 2] {
    let name = field::name(node);
    [name, node["metadata"]["labels"][HOSTNAME].as_str().unwrap_or(name)]
}

/// Whether a node label selector selects only the node with these names.
fn is_selected_alone(selector: &Value, names: [&str; 2]) -> bool {
    let is_named = |value: &Value| value.as_str().is_some_and(|value| names.contains(&value));
    let labels = selector["matchLabels"].as_object();
    let by_label = labels.is_some_and(|labels| labels.values().any(is_named));
    by_label || asks_for(field::items(selector, "/matchExpressions").iter(), names)
}

/// Whether every term of a volume's affinity selects only the node with these names.
fn is_named_alone(volume: &Value, names: [&str; 2]) -> bool {
    let terms = field::items(volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
    let asks = |term: &Value| {
        let parts = ["/matchExpressions", "/matchFields"];
        asks_for(parts.iter().flat_map(|part| field::items(term, part)), names)
    };
    !terms.is_empty() && terms.iter().all(asks)
}

/// Whether one of these requirements selects only the node with these names.
fn asks_for<'v>(mut requirements: impl Iterator<Item = &'v Value>, names: [&str; 2]) -> bool {
    requirements.any(|requirement| {
        let values = field::items(requirement, "/values");
        let named = |value: &Value| value.as_str().is_some_and(|value| names.contains(&value));
        requirement["operator"] == "In" && !values.is_empty() && values.iter().all(named)
    })
}

/// Replaces these names wherever one is a whole value.
fn rename(value: &mut Value, names: [&str; 2], node: &str) {
    match value {
        Value::String(text) if names.contains(&text.as_str()) => node.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names, node)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, names, node)),
        _ => {}
    }
}
