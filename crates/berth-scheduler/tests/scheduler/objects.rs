//! The objects of the stories.

use berth_core::names;
use serde_json::{Value, json};

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {names::HOSTNAME: name}},
           "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}}})
}

pub(crate) fn class(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
           "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
}

/// Delayed, and nobody makes volumes.
pub(crate) fn local_class() -> Value {
    class("local", names::NO_PROVISIONER)
}

pub(crate) fn volume(name: &str, class: &str, node: &str, gi: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
           "spec": {"capacity": {"storage": format!("{gi}Gi")}, "accessModes": ["ReadWriteOnce"],
                    "storageClassName": class, "local": {"path": "/mnt"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": names::HOSTNAME, "operator": "In", "values": [node]}]}]}}},
           "status": {"phase": "Available"}})
}

pub(crate) fn claim(name: &str, class: &str, gi: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
           "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": {"requests": {"storage": format!("{gi}Gi")}}}})
}

/// Space for volumes of a class on `n1`.
pub(crate) fn capacity(class: &str, gi: u32) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
           "metadata": {"name": format!("capacity-{class}"), "namespace": "default"}, "storageClassName": class,
           "capacity": format!("{gi}Gi"), "nodeTopology": {"matchLabels": {names::HOSTNAME: "n1"}}})
}

pub(crate) fn pod(name: &str, claims: &[&str]) -> Value {
    let volumes = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
           "spec": {"containers": [{"name": "main", "image": "app"}], "volumes": volumes.collect::<Vec<_>>()}})
}

/// A pod that asks for processors, with a priority.
pub(crate) fn sized(name: &str, cpu: u32, priority: i32) -> Value {
    let mut pod = pod(name, &[]);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod["spec"]["priority"] = json!(priority);
    pod
}

pub(crate) fn on(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// The pod that a StatefulSet would make, with its claim, near its likes or away from them.
pub(crate) fn member(index: usize, affinity: &str) -> [Value; 2] {
    let data = format!("data-web-{index}");
    let mut pod = pod(&format!("web-{index}"), &[&data]);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["affinity"][affinity] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names::HOSTNAME}]});
    [claim(&data, "local", 5), pod]
}
