//! Builders of objects for tests.

use serde_json::{Value, json};

pub fn mk_class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
           "provisioner": provisioner, "volumeBindingMode": mode})
}

pub fn mk_volume(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "now",
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": format!("/disks/{name}")}}})
}

pub fn mk_claim(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "ns"},
           "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "now",
                    "resources": {"requests": {"storage": size}}}})
}

pub fn mk_pod(name: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"},
           "spec": {"containers": [], "volumes": volumes}})
}

pub fn mk_node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
           "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
}

/// Changes fields of an object.
pub trait With {
    fn with(self, pointer: &str, value: Value) -> Value;
    fn on_node(self, node: &str) -> Value;
}

impl With for Value {
    fn with(mut self, pointer: &str, value: Value) -> Value {
        let mut place = &mut self;
        for key in pointer.split('/').skip(1) {
            place = &mut place[key.replace("~1", "/")];
        }
        *place = value;
        self
    }

    fn on_node(self, node: &str) -> Value {
        self.with(
            "/spec/nodeAffinity/required/nodeSelectorTerms",
            json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]),
        )
    }
}
