//! Lines of a watch, as an API server sends them: with managed fields, conditions and everything else that decisions skip.

use berth_bench::decide::Size;
use berth_core::api::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

/// Decodes a pod, a claim, a volume and a node for each pod of the size.
pub(crate) fn decode(size: &Size) -> String {
    let lines: Vec<[String; 4]> = (0..size.pods)
        .map(|number| [pod, claim, volume, node].map(|of| of(number)))
        .collect();
    let decoded: usize = lines.iter().map(decoded).sum();
    format!("decoded {decoded} of {} objects\n", 4 * lines.len())
}

/// It keeps its name in the binary: `bench/instructions` counts the instructions inside.
#[inline(never)]
fn decoded([pod, claim, volume, node]: &[String; 4]) -> usize {
    let results = [
        serde_json::from_str::<Pod>(pod).is_ok(),
        serde_json::from_str::<PersistentVolumeClaim>(claim).is_ok(),
        serde_json::from_str::<PersistentVolume>(volume).is_ok(),
        serde_json::from_str::<Node>(node).is_ok(),
    ];
    results.into_iter().filter(|decoded| *decoded).count()
}

fn object(kind: &str, name: &str, spec: Value, status: Value) -> String {
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"main\"}":
        {".": {}, "f:image": {}, "f:name": {}, "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}}}}}});
    let mut object = json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("2f1c3f0e-{name}"), "resourceVersion": "184467",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web", "tier": "front"},
            "annotations": {"example.com/checksum": "5f1b9e6c2d", "example.com/owner": "a team with \"quotes\""},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}],
        },
    });
    (object["spec"], object["status"]) = (spec, status);
    object.to_string()
}

fn pod(number: usize) -> String {
    let container = json!({"name": "main", "image": "registry.example/main:1", "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "terminationMessagePath": "/dev/termination-log",
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "token", "mountPath": "/var/run/secrets"}]});
    let spec = json!({"containers": [container], "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "priority": 0,
        "nodeName": format!("node-{number}"), "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {}, "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{number}")}},
            {"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "token"}}]}}]});
    let status = json!({"phase": "Running", "podIP": "10.0.0.1", "qosClass": "Burstable", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "image": "registry.example/main:1",
            "imageID": "registry.example/main@sha256:0", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]});
    object("Pod", &format!("web-{number}"), spec, status)
}

fn claim(number: usize) -> String {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "local", "volumeMode": "Filesystem", "volumeName": format!("local-{number}")});
    let status = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}});
    object("PersistentVolumeClaim", &format!("data-{number}"), spec, status)
}

fn volume(number: usize) -> String {
    let term = json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [format!("node-{number}")]}]});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "local": {"path": "/mnt/disks/1"},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": format!("data-{number}"),
            "namespace": "default", "uid": "2f1c3f0e"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "local", "volumeMode": "Filesystem"});
    object(
        "PersistentVolume",
        &format!("local-{number}"),
        spec,
        json!({"phase": "Bound"}),
    )
}

fn node(number: usize) -> String {
    let resources =
        json!({"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110", "hugepages-2Mi": "0"});
    let condition = |kind: &str| {
        json!({"type": kind, "status": "False", "reason": "KubeletHasSufficient", "message": "kubelet has enough",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let images: Vec<Value> = (0..20)
        .map(|image| json!({"names": [format!("registry.example/image-{image}:1")], "sizeBytes": 100_000_000}))
        .collect();
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    let status = json!({"allocatable": resources, "capacity": resources, "images": images,
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": format!("node-{number}")}],
        "conditions": conditions,
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.37.0"}});
    object(
        "Node",
        &format!("node-{number}"),
        json!({"podCIDR": "10.0.0.0/24"}),
        status,
    )
}
