//! What hostile users create: objects whose every name is new.

use berth_core::api::Object;
use serde_json::{Value, json};

/// Names that no other round has.
pub(crate) struct Names(u64);

impl Names {
    pub(crate) fn new(round: u64) -> Self {
        Self(round)
    }

    /// A name for a purpose.
    pub(crate) fn short(&self, purpose: &str) -> String {
        format!("{purpose}-{}", self.0)
    }

    /// A label value, as long as one may be.
    pub(crate) fn long(&self, purpose: &str) -> String {
        let name = format!("{purpose}-{}-", self.0);
        let filling = "x".repeat(62 - name.len().min(61));
        format!("{name}{filling}z")
    }
}

pub(crate) fn decoded(value: &Value) -> Object {
    Object::decode(value).unwrap().unwrap()
}

/// A pod that names things everywhere that a pod can.
pub(crate) fn pod(names: &Names) -> Value {
    let values: Vec<String> = (0..12).map(|at| names.long(&format!("v{at}"))).collect();
    let key = |purpose: &str| format!("example.com/{}", names.short(purpose));
    let expression = json!([{"key": key("key"), "operator": "NotIn", "values": values}]);
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": names.short("pod"), "namespace": names.short("ns"), "uid": names.short("uid"), "resourceVersion": "1",
            "labels": {key("label"): names.long("label")}},
        "spec": {"schedulerName": "default-scheduler",
            "nodeSelector": {key("selector"): names.long("selected")},
            "tolerations": [{"key": key("taint"), "operator": "Equal", "value": names.long("taint"), "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expression}]}},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key("topology"),
                    "namespaces": [names.short("other")], "labelSelector": {"matchLabels": {key("other"): names.long("other")}}}]}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key("spread"), "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {key("spread"): names.long("spread")}}}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": names.short("claim")}}],
            "containers": [{"name": names.short("c"), "image": names.long("image"),
                "ports": [{"containerPort": 80, "hostPort": 1 + names.0 % 60_000}],
                "resources": {"requests": {key("resource"): "1", "cpu": "1"}}}]}})
}

/// How many values a large pod names: about a megabyte, which an API server accepts.
const LARGE_VALUES: usize = 15_000;

/// A pod whose node affinity names as many values as an object has room for.
pub(crate) fn large_pod(names: &Names) -> Value {
    let values: Vec<String> = (0..LARGE_VALUES).map(|at| names.long(&format!("v{at}"))).collect();
    let mut pod = pod(names);
    let terms = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    *pod.pointer_mut(terms).unwrap() =
        json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]);
    pod
}

pub(crate) fn claim(names: &Names) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": names.short("claim"), "namespace": names.short("ns"), "uid": names.short("claim-uid"), "resourceVersion": "1",
            "labels": {names.short("label"): names.long("label")},
            "annotations": {"volume.kubernetes.io/selected-node": names.short("node"),
                "volume.kubernetes.io/storage-provisioner": "disk.example.com"}},
        "spec": {"storageClassName": names.short("class"), "accessModes": ["ReadWriteOnce"],
            "selector": {"matchLabels": {names.short("wanted"): names.long("wanted")}},
            "resources": {"requests": {"storage": format!("{}Mi", 1 + names.0 % 5000)}}}})
}

pub(crate) fn class(names: &Names) -> Value {
    let zones: Vec<String> = (0..8).map(|at| names.long(&format!("z{at}"))).collect();
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": names.short("class")},
        "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": names.short("zone"), "values": zones}]}]})
}

pub(crate) fn volume(names: &Names) -> Value {
    let values: Vec<String> = (0..8).map(|at| names.long(&format!("n{at}"))).collect();
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": names.short("volume"), "resourceVersion": "1", "labels": {names.short("wanted"): names.long("wanted")}},
        "spec": {"capacity": {"storage": format!("{}Mi", 1 + names.0 % 7000)}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": names.short("class"), "csi": {"driver": names.long("driver"), "volumeHandle": names.long("handle")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": names.short("host"), "operator": "In", "values": values}]}]}}}})
}

pub(crate) fn node(names: &Names) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": names.short("node"), "labels": {names.short("zone"): names.long("z0"), names.short("host"): names.long("n0")}},
        "spec": {"taints": [{"key": names.short("taint"), "value": names.long("taint"), "effect": "NoExecute"}]},
        "status": {"allocatable": {"cpu": "4", "pods": "10", names.short("example.com/r"): "1"},
            "images": [{"names": [names.long("image")], "sizeBytes": 5}]}})
}

pub(crate) fn csi_node(names: &Names) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": names.short("node")},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": names.long("node"), "topologyKeys": [names.short("zone")]},
            {"name": names.long("driver"), "nodeID": "x", "topologyKeys": [names.short("host")], "allocatable": {"count": 3}}]}})
}

pub(crate) fn service(names: &Names) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": names.short("service"), "namespace": names.short("ns")},
        "spec": {"selector": {names.short("label"): names.long("service")}}})
}

pub(crate) fn capacity(names: &Names) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": names.short("capacity"), "namespace": names.short("ns")}, "storageClassName": names.short("class"),
        "capacity": "1Gi", "nodeTopology": {"matchLabels": {names.short("zone"): names.long("z1")}}})
}
