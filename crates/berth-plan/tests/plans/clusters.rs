//! Small random clusters.

use proptest::prelude::*;
use serde_json::{Value, json};

/// A node of a zone with this many CPUs.
pub(crate) fn node(name: &str, zone: &str, cpus: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": {"cpu": cpus.to_string(), "memory": "8Gi", "pods": "20"}}})
}

/// A local disk of a node.
pub(crate) fn disk(name: &str, node: &str, gi: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": format!("{gi}Gi")}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "local": {"path": format!("/mnt/{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}})
}

/// The class of local disks.
pub(crate) fn local_class() -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
}

/// What a StatefulSet of a random cluster requests.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Number of pods.
    pub replicas: u32,
    /// CPU of each, in thousandths.
    pub milli: u32,
    /// Size of the claim of each; `None` without claims.
    pub gi: Option<u32>,
    /// Whether its pods have anti-affinity: by node, by zone.
    pub apart: Option<bool>,
    /// Whether its pods are created at once.
    pub parallel: bool,
}

/// A StatefulSet.
pub(crate) fn set(name: &str, ask: &Ask) -> Value {
    let mut set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {"serviceName": name, "replicas": ask.replicas, "selector": {"matchLabels": {"app": name}},
            "podManagementPolicy": if ask.parallel { "Parallel" } else { "OrderedReady" },
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": format!("{}m", ask.milli)}}}]}}}});
    if let Some(gi) = ask.gi {
        set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "resources": {"requests": {"storage": format!("{gi}Gi")}}}}]);
    }
    if let Some(by_zone) = ask.apart {
        let key = if by_zone {
            "topology.kubernetes.io/zone"
        } else {
            "kubernetes.io/hostname"
        };
        set["spec"]["template"]["spec"]["affinity"] = json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution":
                [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": name}}}]}});
    }
    set
}

fn ask() -> impl Strategy<Value = Ask> {
    let apart = prop_oneof![3 => Just(None), 1 => any::<bool>().prop_map(Some)];
    let gi = prop::option::of(prop::sample::select(vec![10_u32, 50, 100]));
    (0..4_u32, 1..5_u32, gi, apart, any::<bool>()).prop_map(|(replicas, quarters, gi, apart, parallel)| Ask {
        replicas,
        milli: quarters * 400,
        gi,
        apart,
        parallel,
    })
}

/// One to four nodes in two zones with disks, and two StatefulSets, `a` and `b`.
pub(crate) fn cluster() -> impl Strategy<Value = (Vec<Value>, [Ask; 2])> {
    let nodes = prop::collection::vec((any::<bool>(), 1..4_u32, prop::collection::vec(0..3_usize, 0..3)), 1..5);
    (nodes, ask(), ask()).prop_map(|(nodes, a, b)| {
        let mut objects = vec![local_class()];
        for (index, (in_second, cpus, disks)) in nodes.into_iter().enumerate() {
            let name = format!("n{index}");
            objects.push(node(&name, if in_second { "zone-b" } else { "zone-a" }, cpus));
            for (number, size) in disks.into_iter().enumerate() {
                objects.push(disk(&format!("{name}-disk{number}"), &name, [20, 60, 120][size]));
            }
        }
        objects.extend([set("a", &a), set("b", &b)]);
        (objects, [a, b])
    })
}
