//! Objects of the tests.

pub use berth_core::names::{HOSTNAME, NO_PROVISIONER};
use berth_testing::Manifest;
use serde_json::{Value, json};

/// A node that is ready and has room for a hundred pods.
#[must_use]
pub fn node(name: &str) -> Value {
    let room = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    berth_testing::node(name).with(
        "/status",
        json!({"capacity": room, "allocatable": room, "conditions": ready}),
    )
}

/// A storage class.
#[must_use]
pub fn class(name: &str, provisioner: &str, delayed: bool) -> Value {
    let class = berth_testing::class(name, provisioner);
    if delayed { class } else { class.immediate() }
}

/// A volume that is a directory of one node.
#[must_use]
pub fn local_volume(name: &str, class: &str, node: &str, size: &str) -> Value {
    let volume = berth_testing::volume(name, class, 1).on(node);
    volume.with("/spec/capacity/storage", size)
}

/// A claim.
#[must_use]
pub fn claim(namespace: &str, name: &str, class: &str, size: &str) -> Value {
    let claim = berth_testing::claim(name, class, 1).namespace(namespace);
    claim.with("/spec/resources/requests/storage", size)
}

/// The pod spec of the tests, with these claims.
#[must_use]
pub fn pod_spec(claims: &[&str]) -> Value {
    json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "volumes": berth_testing::volumes(claims),
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]})
}

/// A pod with claims.
#[must_use]
pub fn pod(namespace: &str, name: &str, claims: &[&str]) -> Value {
    let pod = berth_testing::pod(name, claims).namespace(namespace);
    pod.with("/spec", pod_spec(claims))
}
