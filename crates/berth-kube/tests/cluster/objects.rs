//! The objects of the stories.

use berth_core::names;
use serde_json::{Value, json};

pub(crate) fn node(name: &str) -> Value {
    let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {names::HOSTNAME: name}},
           "status": {"allocatable": amounts, "capacity": amounts}})
}

pub(crate) fn class(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
           "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
}

/// Delayed, and nobody makes volumes.
pub(crate) fn local_class() -> Value {
    class("local", names::NO_PROVISIONER)
}

/// Delayed, with volumes that the built-in provisioner makes on the chosen node.
pub(crate) fn made_class() -> Value {
    class("made", "berth.dev/local")
}

pub(crate) fn volume(name: &str, class: &str, node: &str, gi: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
           "spec": {"capacity": {"storage": format!("{gi}Gi")}, "accessModes": ["ReadWriteOnce"],
                    "storageClassName": class, "local": {"path": "/mnt"}, "persistentVolumeReclaimPolicy": "Retain",
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": names::HOSTNAME, "operator": "In", "values": [node]}]}]}}}})
}

pub(crate) fn claim(name: &str, class: &str, gi: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
           "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": {"requests": {"storage": format!("{gi}Gi")}}}})
}

pub(crate) fn pod(name: &str, claims: &[&str]) -> Value {
    let volumes = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
           "spec": {"containers": [{"name": "main", "image": "app"}], "volumes": volumes.collect::<Vec<_>>()}})
}

/// A pod that asks for processors.
pub(crate) fn sized(name: &str, cpu: u32) -> Value {
    let mut pod = pod(name, &[]);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu.to_string()}});
    pod
}

/// The claim and the pod that a StatefulSet would make, near its likes or away from them.
pub(crate) fn member(index: usize, affinity: &str) -> [Value; 2] {
    let data = format!("data-web-{index}");
    let mut pod = pod(&format!("web-{index}"), &[&data]);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["affinity"][affinity] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names::HOSTNAME}]});
    [claim(&data, "local", 5), pod]
}
