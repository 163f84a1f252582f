//! The objects of the small cluster for stories.

use crate::components::{BUILTIN, DRIVER};
use crate::story::{CLASSES, NODES, VOLUMES};
use berth_core::names::{HOSTNAME, NO_PROVISIONER, ROLLBACK, ZONE};
use serde_json::{Value, json};

/// The namespace of all objects that users create.
pub(crate) const NAMESPACE: &str = "default";

/// The initial objects.
pub(crate) fn initial() -> Vec<Value> {
    let mut objects = vec![priority("high", 1000), priority("low", 0), csi_driver()];
    objects.extend(CLASSES.into_iter().map(class));
    for node_name in NODES {
        objects.push(node(node_name));
        objects.push(csi_node(node_name));
        objects.push(capacity(node_name, PLENTY_GI));
    }
    objects.extend((0..VOLUMES.len() - 1).map(volume));
    objects
}

fn priority(name: &str, value: i64) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
}

fn csi_driver() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"storageCapacity": true}})
}

/// A storage class.
pub(crate) fn class(name: &str) -> Value {
    let (provisioner, mode) = match name {
        "local" => (NO_PROVISIONER, "WaitForFirstConsumer"),
        "disk" => (DRIVER, "WaitForFirstConsumer"),
        "now" => (DRIVER, "Immediate"),
        _ => (BUILTIN, "WaitForFirstConsumer"),
    };
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": mode})
}

/// A node with four cores.
pub(crate) fn node(name: &str) -> Value {
    let zone = if name == "n1" { "a" } else { "b" };
    let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// The attach limit of the driver on a node.
pub(crate) const ATTACH_LIMIT: usize = 2;

/// The driver's registration on a node.
pub(crate) fn csi_node(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": [
        {"name": DRIVER, "nodeID": name, "topologyKeys": [HOSTNAME], "allocatable": {"count": ATTACH_LIMIT}}]}})
}

/// More capacity than all claims take.
pub(crate) const PLENTY_GI: u64 = 1_000;

/// The capacity that the driver reports on a node.
pub(crate) fn capacity(node: &str, gi: u64) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": format!("disk-{node}"), "namespace": NAMESPACE},
        "storageClassName": "disk", "capacity": format!("{gi}Gi"),
        "nodeTopology": {"matchLabels": {HOSTNAME: node}}})
}

/// A local volume: `pv1` on `n1`, and the others on `n2`. The last one has the class of the driver.
pub(crate) fn volume(index: usize) -> Value {
    let (node, gi) = match index {
        0 => ("n1", 10),
        1 | 3 => ("n2", 10),
        _ => ("n2", 20),
    };
    let class = if index == 3 { "disk" } else { "local" };
    let name = VOLUMES.get(index).copied().unwrap_or("pv1");
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": format!("{gi}Gi")}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": format!("/mnt/{name}")},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": HOSTNAME, "operator": "In", "values": [node]}]}]}}}})
}

/// A claim: two for local volumes, one each for the driver, for the driver with immediate binding, for the built-in
/// provisioner, and one that only one pod may use.
pub(crate) fn claim(index: usize) -> Value {
    let (class, mode) = match index {
        0 | 4 => ("local", "ReadWriteOnce"),
        1 => ("disk", "ReadWriteOnce"),
        2 => ("now", "ReadWriteOnce"),
        3 => ("node-local", "ReadWriteOnce"),
        _ => ("disk", "ReadWriteOncePod"),
    };
    let name = crate::story::claim(index);
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"storageClassName": class, "accessModes": [mode], "resources": {"requests": {"storage": "5Gi"}}}})
}

/// A pod: see the table inside.
pub(crate) fn pod(index: usize) -> Value {
    // The claims, the cores, the priority, and the node of a pod that bypasses the scheduler.
    let (claims, cpu, priority, node): (&[usize], u64, &str, Option<&str>) = match index {
        0 => (&[0, 1], 2, "low", None),
        1 => (&[0], 1, "high", None),
        2 => (&[2], 2, "low", None),
        3 => (&[3, 4], 1, "low", None),
        4 => (&[], 3, "high", None),
        5 => (&[1], 1, "low", Some("n2")),
        6 => (&[5], 2, "high", None),
        _ => (&[], 1, "low", None),
    };
    let name = crate::story::pod(index);
    let mut volumes: Vec<Value> = claims
        .iter()
        .map(|claim| crate::story::claim(*claim))
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    if index == 7 {
        for (name, class) in [("scratch", "disk"), ("cache", "local")] {
            let template = json!({"metadata": {"annotations": {ROLLBACK: "true"}}, "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}});
            volumes.push(json!({"name": name, "ephemeral": {"volumeClaimTemplate": template}}));
        }
    }
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"priorityClassName": priority, "terminationGracePeriodSeconds": 2, "containers": [
            {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu.to_string()}}}], "volumes": volumes}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// A StatefulSet with a claim of the driver and one of the built-in provisioner for each pod, which may be rolled back.
pub(crate) fn stateful_set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": NAMESPACE}, "spec": {
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [
                {"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": []}},
        "volumeClaimTemplates": [
            {"metadata": {"name": "data", "annotations": {ROLLBACK: "true"}}, "spec": {"storageClassName": "disk",
                "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}}},
            {"metadata": {"name": "log", "annotations": {ROLLBACK: "true"}}, "spec": {"storageClassName": "node-local",
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}})
}

/// A Deployment without volumes.
pub(crate) fn deployment(replicas: u64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [
                {"name": "main", "image": "app", "resources": {"requests": {"cpu": "2"}}}]}}}})
}
