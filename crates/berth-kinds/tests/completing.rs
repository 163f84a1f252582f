//! Completing a complete object changes nothing, whether it was completed before or stored by an API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::borrow::Cow;

use berth_kinds::admission::{Admission, Features, Lookup, complete};
use berth_kinds::{KINDS, Kind};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A cluster with classes that affect new objects.
struct Classes(Vec<Value>);

impl Classes {
    fn new() -> Self {
        Self(vec![
            json!({"kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 5, "globalDefault": true}),
            json!({"kind": "PriorityClass", "metadata": {"name": "meek"}, "value": 9, "preemptionPolicy": "Never"}),
            json!({"kind": "StorageClass", "metadata": {"name": "fast", "annotations":
                {"storageclass.kubernetes.io/is-default-class": "true"}}}),
            json!({"kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "sandbox",
                "overhead": {"podFixed": {"memory": "64Mi"}}, "scheduling": {"nodeSelector": {"sandbox": "yes"},
                "tolerations": [{"key": "sandbox", "operator": "Exists"}]}}),
            json!({"kind": "LimitRange", "metadata": {"name": "usual", "namespace": "shop"}, "spec": {"limits": [
                {"type": "Container", "default": {"cpu": "2", "memory": "1Gi"},
                    "defaultRequest": {"cpu": "100m", "memory": "1Gi"}}]}}),
        ])
    }
}

impl Lookup for Classes {
    fn get(&self, kind: &Kind, _: &str, name: &str) -> Option<Cow<'_, Value>> {
        self.all(kind).find(|object| object["metadata"]["name"] == name)
    }

    fn all<'a>(&'a self, kind: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        let name = kind.name;
        Box::new(
            self.0
                .iter()
                .filter(move |object| object["kind"] == name)
                .map(Cow::Borrowed),
        )
    }
}

fn completed(object: &Value, restores: bool) -> Option<Value> {
    let classes = Classes::new();
    let admission = Admission {
        restores,
        features: Features {
            service_accounts: true,
            service_addresses: true,
            zone_affinity: true,
            runtime_classes: false,
        },
        ..Admission::new(&classes, Timestamp::UNIX_EPOCH)
    };
    let mut object = object.clone();
    complete(&mut object, &admission).is_ok().then_some(object)
}

/// Removes fields at random: one bit per decision.
fn thinned(value: &Value, bits: &mut impl Iterator<Item = bool>) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, field) in fields {
                let is_identity = matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "name");
                if is_identity || bits.next().unwrap_or(true) {
                    kept.insert(name.clone(), thinned(field, bits));
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(|item| thinned(item, bits)).collect(),
        other => other.clone(),
    }
}

/// A pod spec with everything that defaults and admission read.
fn pod_spec() -> Value {
    json!({
        "restartPolicy": "Never", "dnsPolicy": "Default", "hostNetwork": true, "schedulerName": "mine",
        "serviceAccountName": "robot", "serviceAccount": "robot", "terminationGracePeriodSeconds": 5,
        "priorityClassName": "meek", "schedulingGates": [{"name": "wait.example.com/it"}], "overhead": {"cpu": "0.1"}, "runtimeClassName": "sandbox",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        "resources": {"limits": {"cpu": "4000m", "memory": "1024Mi", "hugepages-2Mi": "4Mi"}, "requests": {"cpu": "2"}},
        "containers": [{
            "name": "main", "image": "registry.example.com/team/app:1.0", "imagePullPolicy": "Never",
            "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "hostPort": 5353}],
            "env": [{"name": "A", "value": "b"}, {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "resources": {"limits": {"cpu": "1000m", "memory": "0.5Gi"}, "requests": {"memory": "512Mi"}},
            "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 3},
            "readinessProbe": {"grpc": {"port": 9}}, "startupProbe": {"exec": {"command": ["true"]}, "failureThreshold": 30},
            "lifecycle": {"preStop": {"httpGet": {"port": "http", "path": "/bye"}}},
        }],
        "initContainers": [{"name": "init", "image": "busybox", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}],
        "volumes": [
            {"name": "scratch"},
            {"name": "limited", "emptyDir": {"sizeLimit": "0.5Gi"}},
            {"name": "map", "configMap": {"name": "m"}}, {"name": "key", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "host", "hostPath": {"path": "/x"}},
            {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}},
                {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}},
            {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1024Mi"}}}}}},
        ],
    })
}

/// One full object of each kind that has defaults.
fn rich() -> Vec<Value> {
    let metadata = json!({"name": "x", "namespace": "shop", "uid": "u-1", "labels": {"app": "x"}});
    let template = json!({"metadata": {"labels": {"app": "x"}, "creationTimestamp": null}, "spec": pod_spec()});
    let object = |api_version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}},
        "dataSource": {"kind": "VolumeSnapshot", "name": "s"}});
    let selector = json!({"matchLabels": {"app": "x"}});
    vec![
        object(
            "v1",
            "Pod",
            json!({"spec": pod_spec(), "status": {"podIP": "10.0.0.1", "containerStatuses": [{"name": "main"}]}}),
        ),
        object(
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": claim, "status": {"phase": "Bound"}}),
        ),
        object(
            "v1",
            "PersistentVolume",
            json!({"spec": {"capacity": {"storage": "1024Gi"}, "hostPath": {"path": "/x"},
            "claimRef": {"name": "c", "uid": "u"}}, "status": {"phase": "Bound"}}),
        ),
        object(
            "v1",
            "Node",
            json!({"status": {"capacity": {"cpu": "4000m", "memory": "16384Mi"},
            "allocatable": {"cpu": "3900m"}, "nodeInfo": {"osImage": "o"}}}),
        ),
        object(
            "v1",
            "Service",
            json!({"spec": {"type": "NodePort", "ports": [{"port": 80}], "selector": {"app": "x"}}}),
        ),
        object("v1", "Secret", json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}})),
        object("v1", "Namespace", json!({})),
        object(
            "v1",
            "ReplicationController",
            json!({"spec": {"replicas": 2, "template": template}}),
        ),
        object(
            "apps/v1",
            "Deployment",
            json!({"spec": {"replicas": 2, "selector": selector, "template": template,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
        ),
        object(
            "apps/v1",
            "ReplicaSet",
            json!({"spec": {"replicas": 2, "selector": selector, "template": template}}),
        ),
        object(
            "apps/v1",
            "DaemonSet",
            json!({"spec": {"selector": selector, "template": template,
            "updateStrategy": {"type": "OnDelete"}}}),
        ),
        object(
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"replicas": 2, "selector": selector, "template": template,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}}),
        ),
        object(
            "apps/v1",
            "ControllerRevision",
            json!({"revision": 1, "data": {"spec": {"template": template}}}),
        ),
        object(
            "batch/v1",
            "Job",
            json!({"spec": {"completions": 2, "parallelism": 1, "template": template}}),
        ),
        object(
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}}),
        ),
        object(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"selector": selector, "maxUnavailable": 1}}),
        ),
        object(
            "storage.k8s.io/v1",
            "StorageClass",
            json!({"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}),
        ),
        object(
            "storage.k8s.io/v1",
            "CSIDriver",
            json!({"spec": {"attachRequired": false}}),
        ),
        object("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 3})),
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"egress": [{"ports": [{"port": 1}]}]}}),
        ),
    ]
}

fn check_twice(object: &Value) -> Result<(), TestCaseError> {
    for restores in [false, true] {
        let Some(once) = completed(object, restores) else {
            continue;
        };
        let twice = completed(&once, restores);
        prop_assert_eq!(twice.as_ref(), Some(&once), "of {}", object);
        // Dumps contain objects after creation. A server leaves revisions of other writers alone; only those of a dump
        // are completed, with their sets.
        if object["kind"] != "ControllerRevision" {
            prop_assert_eq!(completed(&once, true), Some(once), "restored, of {}", object);
        }
    }
    Ok(())
}

#[test]
fn rich_objects_are_taken() {
    for object in rich() {
        assert!(completed(&object, false).is_some(), "{object}");
        check_twice(&object).unwrap();
    }
}

proptest! {
    #[test]
    fn completing_twice_is_completing_once(which in 0..20_usize, bits in proptest::collection::vec(any::<bool>(), 0..150)) {
        let objects = rich();
        let mut bits = bits.into_iter();
        check_twice(&thinned(&objects[which % objects.len()], &mut bits))?;
    }

    #[test]
    fn no_shape_is_too_odd(kind in 0..KINDS.len(), path in "(spec|status|metadata|data)", inner in "[a-z]{1,8}", odd in 0..5_usize) {
        let odd = [json!(null), json!(7), json!("x"), json!([1, null, {"name": null}]), json!({"a": [[]]})][odd].clone();
        let kind = KINDS[kind];
        let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.name, "metadata": {"name": "x"}});
        object[&path] = odd.clone();
        if path == "spec" {
            object["spec"] = json!({"containers": odd, "template": odd, "volumes": odd, "ports": odd, "limits": odd, inner: odd});
        }
        let _ = completed(&object, true);
        let _ = (kind.validate)(&object);
        let _ = (kind.validate_update)(&object, &json!({}));
        let _: Vec<Value> = kind.columns.iter().map(|column| column.cell(&object, Timestamp::UNIX_EPOCH)).collect();
    }
}

/// A deployment as `kubectl get -o json` shows it, without server-generated fields.
#[test]
fn what_an_api_server_stored_stays_as_it_is() {
    let container = json!({"name": "web", "image": "nginx:1.27", "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
        "livenessProbe": {"failureThreshold": 3, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 10,
            "successThreshold": 1, "timeoutSeconds": 1},
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"});
    let spec = json!({"containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
        "serviceAccount": "web", "serviceAccountName": "web",
        "volumes": [{"name": "config", "configMap": {"defaultMode": 420, "name": "web"}}, {"name": "tmp", "emptyDir": {}}]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "a", "generation": 1, "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"deployment.kubernetes.io/revision": "1"}},
        "spec": {"progressDeadlineSeconds": 600, "replicas": 3, "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec}},
        "status": {"availableReplicas": 3, "observedGeneration": 1, "readyReplicas": 3, "replicas": 3, "updatedReplicas": 3}});
    let tolerations = json!([
        {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
        {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}]);
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-7c5d-x", "namespace": "shop", "uid": "b"},
        "spec": spec, "status": {"phase": "Running", "qosClass": "Burstable", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "containerStatuses": [{"name": "web", "lastState": {}, "ready": true}]}});
    for (field, value) in [
        ("enableServiceLinks", json!(true)),
        ("nodeName", json!("n1")),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
        ("tolerations", tolerations),
    ] {
        pod["spec"][field] = value;
    }
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop",
            "uid": "c", "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}, "storageClassName": "fast",
            "volumeMode": "Filesystem", "volumeName": "pv-1"},
        "status": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "phase": "Bound"}});
    for object in [deployment, pod, claim] {
        assert_eq!(completed(&object, true), Some(object));
    }
}
