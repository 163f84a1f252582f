//! Constructors: one for each kind of object.

use crate::Manifest;
use berth_core::names;
use serde_json::{Value, json};

/// An object of a kind without a constructor here.
#[must_use]
pub fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

/// A node with 4 CPUs, 16Gi of memory and room for 110 pods.
#[must_use]
pub fn node(name: &str) -> Value {
    let resources = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    object("v1", "Node", name)
        .label(names::HOSTNAME, name)
        .with("/status", json!({"allocatable": resources, "capacity": resources}))
}

/// A class whose claims wait for their first consumer.
#[must_use]
pub fn class(name: &str, provisioner: &str) -> Value {
    object("storage.k8s.io/v1", "StorageClass", name)
        .with("/provisioner", provisioner)
        .with("/volumeBindingMode", "WaitForFirstConsumer")
}

/// The class `local`: claims wait for their first consumer, and there is no provisioner.
#[must_use]
pub fn local_class() -> Value {
    class("local", names::NO_PROVISIONER)
}

/// A volume that is available on every node.
#[must_use]
pub fn volume(name: &str, class: &str, gi: u32) -> Value {
    object("v1", "PersistentVolume", name)
        .with(
            "/spec",
            json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class, "persistentVolumeReclaimPolicy": "Retain",
                   "hostPath": {"path": format!("/disks/{name}")}}),
        )
        .gi(gi)
        .phase("Available")
}

/// A claim.
#[must_use]
pub fn claim(name: &str, class: &str, gi: u32) -> Value {
    object("v1", "PersistentVolumeClaim", name)
        .namespace("default")
        .with(
            "/spec",
            json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class}),
        )
        .gi(gi)
}

/// The volumes of a pod with claims, each named after its claim.
#[must_use]
pub fn volumes(claims: &[&str]) -> Value {
    let volumes = claims.iter();
    volumes
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect()
}

/// A pod of one container, with claims.
#[must_use]
pub fn pod(name: &str, claims: &[&str]) -> Value {
    object("v1", "Pod", name).namespace("default").with(
        "/spec",
        json!({"containers": [{"name": "main", "image": "app"}], "volumes": volumes(claims)}),
    )
}

/// A workload (`Deployment`, `ReplicaSet`, `StatefulSet`, `DaemonSet`) whose pods have one container and the label `app`.
#[must_use]
pub fn workload(kind: &str, name: &str) -> Value {
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app"}]}});
    object("apps/v1", kind, name).namespace("default").with(
        "/spec",
        json!({"selector": {"matchLabels": labels}, "template": template}),
    )
}

/// The drivers of a node, each with the labels that it reports.
#[must_use]
pub fn csi_node(name: &str, drivers: &[(&str, &[&str])]) -> Value {
    let drivers = drivers.iter();
    let drivers: Value = drivers
        .map(|(driver, keys)| json!({"name": driver, "nodeID": name, "topologyKeys": keys}))
        .collect();
    object("storage.k8s.io/v1", "CSINode", name).with("/spec/drivers", drivers)
}

/// Capacity for volumes of a class, on every node.
#[must_use]
pub fn capacity(name: &str, class: &str, gi: u32) -> Value {
    object("storage.k8s.io/v1", "CSIStorageCapacity", name)
        .namespace("default")
        .with("/storageClassName", class)
        .with("/nodeTopology", json!({}))
        .gi(gi)
}

/// A pod that requests CPUs.
#[must_use]
pub fn sized(name: &str, cpu: u32) -> Value {
    pod(name, &[]).requests("cpu", cpu.to_string())
}

/// The claim and the pod `web-INDEX` that a StatefulSet would create, near similar pods (`podAffinity`) or away from
/// them (`podAntiAffinity`).
#[must_use]
pub fn member(index: usize, affinity: &str) -> [Value; 2] {
    let data = format!("data-web-{index}");
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names::HOSTNAME});
    let pod = pod(&format!("web-{index}"), &[&data]).label("app", "web").with(
        &format!("/spec/affinity/{affinity}/requiredDuringSchedulingIgnoredDuringExecution"),
        json!([term]),
    );
    [claim(&data, "local", 5), pod]
}
