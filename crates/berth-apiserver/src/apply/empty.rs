//! The empty object of a kind.
//!
//! Kubernetes writes required structures even if they are empty, so a manager never creates or owns them, only their
//! content.

use serde_json::{Map, Value};

use crate::meta;

/// The parts of a pod template that always exist.
const TEMPLATE: [&str; 2] = ["metadata", "spec.containers[]"];

/// Paths that always exist, by kind. Lists end in `[]`, texts in `=`.
fn always_there(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pod" => &["spec.containers[]"],
        "PersistentVolumeClaim" => &["spec.resources"],
        "Deployment" => &["spec.template", "spec.strategy"],
        "StatefulSet" | "DaemonSet" => &["spec.template", "spec.updateStrategy"],
        "ReplicaSet" | "Job" => &["spec.template"],
        "CronJob" => &["spec.jobTemplate.metadata", "spec.jobTemplate.spec.template"],
        "PodTemplate" => &["template"],
        "NetworkPolicy" => &["spec.podSelector"],
        "HorizontalPodAutoscaler" => &["spec.scaleTargetRef"],
        "CSINode" => &["spec.drivers[]"],
        "VolumeAttachment" => &["spec.source"],
        "Service" => &["status.loadBalancer"],
        "Node" => &["status.daemonEndpoints.kubeletEndpoint", "status.nodeInfo"],
        "Event" => &[
            "involvedObject",
            "source",
            "regarding",
            "deprecatedSource",
            "reportingComponent=",
            "reportingController=",
            "reportingInstance=",
        ],
        "RoleBinding" | "ClusterRoleBinding" => &["roleRef"],
        "CustomResourceDefinition" => &["spec.names", "status.acceptedNames"],
        _ => &[],
    }
}

/// The empty object of the kind of `object`.
pub(super) fn empty_object(object: &Value) -> Value {
    let mut empty = Value::Object(Map::new());
    let is_builtin =
        !meta::text(object, &["apiVersion"]).contains('.') || meta::text(object, &["apiVersion"]).contains("k8s.io/");
    add(&mut empty, "metadata");
    if !is_builtin {
        return empty;
    }
    for part in ["spec", "status"] {
        if object[part].is_object() {
            add(&mut empty, part);
        }
    }
    for path in always_there(meta::text(object, &["kind"])) {
        add(&mut empty, path);
        if path.ends_with("emplate") {
            for part in TEMPLATE {
                add(&mut empty, &format!("{path}.{part}"));
            }
        }
    }
    empty
}

fn add(object: &mut Value, path: &str) {
    let (path, value) = if let Some(list) = path.strip_suffix("[]") {
        (list, Value::Array(Vec::new()))
    } else if let Some(text) = path.strip_suffix('=') {
        (text, "".into())
    } else {
        (path, Value::Object(Map::new()))
    };
    let steps: Vec<&str> = path.split('.').filter(|step| !step.is_empty()).collect();
    meta::default(object, &steps, value);
}
