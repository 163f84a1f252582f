//! What of a node makes another one like it: the node itself, and the disks that only it can reach.

use crate::names::AGENT_MODE;
use crate::{View, field};
use berth_core::names::{HOSTNAME, NO_PROVISIONER};
use serde_json::{Value, json};

/// A node without what is its own.
pub(super) fn node(node: &Value) -> Value {
    let mut copy = json!({"metadata": {"labels": node["metadata"]["labels"]}});
    if let Some(annotations) = node["metadata"]["annotations"].as_object() {
        let mut annotations = annotations.clone();
        annotations.remove(AGENT_MODE);
        field::set(&mut copy, &["metadata", "annotations"], Value::Object(annotations));
    }
    let is_lasting = |taint: &&Value| !field::text(taint, "/key").starts_with("node.kubernetes.io/");
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

/// The disks of a node: volumes that nothing makes on demand and whose affinity names it alone.
pub(super) struct Disks<'a> {
    node: &'a str,
    /// What volumes may call the node.
    names: [&'a str; 2],
    volumes: Vec<&'a Value>,
}

impl<'a> Disks<'a> {
    pub(super) fn of(view: &'a dyn View, node: &'a Value) -> Self {
        let name = field::name(node);
        let labels = &node["metadata"]["labels"];
        let names = [name, labels[HOSTNAME].as_str().unwrap_or(name)];
        let volumes = view.of_kind("PersistentVolume");
        let own = volumes.filter(|volume| {
            let class = view.get("StorageClass", "", field::text(volume, "/spec/storageClassName"));
            let is_made = |class: &Value| !matches!(field::text(class, "/provisioner"), "" | NO_PROVISIONER);
            !class.is_some_and(is_made) && is_named_alone(volume, names)
        });
        Self {
            node: name,
            names,
            volumes: own.collect(),
        }
    }

    /// The disks of another node like this one, all of them free.
    pub(super) fn on(&self, node: &str) -> Vec<Value> {
        self.volumes.iter().map(|volume| self.copy(volume, node)).collect()
    }

    fn copy(&self, volume: &Value, node: &str) -> Value {
        let name = field::name(volume);
        let name = match name.contains(self.node) {
            true => name.replace(self.node, node),
            false => format!("{node}-{name}"),
        };
        let mut spec = volume["spec"].clone();
        field::unset(&mut spec, &["claimRef"]);
        let mut metadata = json!({ "name": name });
        if volume["metadata"]["labels"].is_object() {
            field::set(&mut metadata, &["labels"], volume["metadata"]["labels"].clone());
        }
        let mut copy = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec});
        rename(&mut copy["spec"]["nodeAffinity"], self.names, node);
        rename(&mut copy["metadata"]["labels"], self.names, node);
        copy
    }
}

/// Whether every term of a volume's affinity asks for one node of these names.
fn is_named_alone(volume: &Value, names: [&str; 2]) -> bool {
    let terms = field::items(volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
    let is_named = |requirement: &Value| {
        let values = field::items(requirement, "/values");
        let named = |value: &Value| value.as_str().is_some_and(|value| names.contains(&value));
        requirement["operator"] == "In" && !values.is_empty() && values.iter().all(named)
    };
    let asks = |term: &Value| {
        let parts = ["/matchExpressions", "/matchFields"];
        let mut requirements = parts.iter().flat_map(|part| field::items(term, part));
        requirements.any(is_named)
    };
    !terms.is_empty() && terms.iter().all(asks)
}

/// Puts another name in the place of these, wherever one is a whole value.
fn rename(value: &mut Value, names: [&str; 2], node: &str) {
    match value {
        Value::String(text) if names.contains(&text.as_str()) => node.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names, node)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, names, node)),
        _ => {}
    }
}
