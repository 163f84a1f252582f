//! Objects of the tests.

use serde_json::{Value, json};

/// The label that says which node it is.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The class of local volumes, bound when a pod needs them.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A node that is ready and has room for a hundred pods.
#[must_use]
pub fn node(name: &str) -> Value {
    let room = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A storage class.
#[must_use]
pub fn class(name: &str, provisioner: &str, delayed: bool) -> Value {
    let mode = if delayed { "WaitForFirstConsumer" } else { "Immediate" };
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode})
}

/// A volume that is a directory of one node.
#[must_use]
pub fn local_volume(name: &str, class: &str, node: &str, size: &str) -> Value {
    let on_node = json!({"key": HOSTNAME, "operator": "In", "values": [node]});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": format!("/mnt/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}}}})
}

/// A claim.
#[must_use]
pub fn claim(namespace: &str, name: &str, class: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": namespace, "name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}}}})
}

/// What pods of the tests are made of, with these claims.
#[must_use]
pub fn pod_spec(claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "volumes": volumes,
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]})
}

/// A pod with claims.
#[must_use]
pub fn pod(namespace: &str, name: &str, claims: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name},
        "spec": pod_spec(claims)})
}
