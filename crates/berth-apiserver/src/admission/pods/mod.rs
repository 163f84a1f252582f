//! Pods: the defaults that clients read back, and the rules that scheduling and volumes depend on.

use serde_json::{Value, json};

use super::fields;
use crate::clock;
use crate::meta;
use crate::server::DEFAULT_ACCOUNT;
use crate::write::Change;

mod validate;

pub(super) use validate::{validate, validate_pod_spec, validate_update};

/// How long a pod stays on a node that stopped answering.
const UNREACHABLE_SECONDS: i64 = 300;

pub(super) fn default_pod(pod: &mut Value) {
    default_pod_spec(pod, &["spec"]);
    meta::default(pod, &["spec", "enableServiceLinks"], true);
    let is_on_host_network = pod["spec"]["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in meta::items_mut(pod, &["spec", list]) {
            if is_on_host_network {
                default_host_ports(container);
            }
            // A limit without a request is the request, too.
            let limits = container["resources"]["limits"].clone();
            for (name, limit) in limits.as_object().into_iter().flatten() {
                meta::default(container, &["resources", "requests", name], limit.clone());
            }
        }
    }
    default_status(pod);
}

/// On the network of its node, a port of a container is a port of the node. Only of pods: in a template it is left open.
fn default_host_ports(container: &mut Value) {
    for port in meta::items_mut(container, &["ports"]) {
        let number = port["containerPort"].clone();
        meta::default(port, &["hostPort"], number);
    }
}

fn default_status(pod: &mut Value) {
    meta::default(pod, &["status", "phase"], "Pending");
    let class = quality_of_service(pod);
    meta::default(pod, &["status", "qosClass"], class);
    let address = pod["status"]["podIP"].clone();
    if address.is_string() {
        meta::default(pod, &["status", "podIPs"], json!([{"ip": address}]));
    }
    for container in meta::items_mut(pod, &["status", "containerStatuses"]) {
        meta::default(container, &["lastState"], json!({}));
    }
}

/// A pod that is held back says so.
pub(super) fn note_gates(change: &Change<'_>, pod: &mut Value) {
    if meta::items(pod, &["spec", "schedulingGates"]).is_empty() {
        return;
    }
    let condition = json!({"type": "PodScheduled", "status": "False", "lastProbeTime": null,
        "lastTransitionTime": clock::rfc3339(change.now), "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates"});
    meta::default(pod, &["status", "conditions"], json!([condition]));
}

/// The defaults of a pod's spec, wherever it stands.
pub(super) fn default_pod_spec(object: &mut Value, path: &[&str]) {
    let Some(spec) = meta::map_mut(object, path) else {
        return;
    };
    let mut owned = Value::Object(std::mem::take(spec));
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
    ] {
        meta::default(&mut owned, &[field], value);
    }
    for list in ["containers", "initContainers"] {
        meta::items_mut(&mut owned, &[list])
            .iter_mut()
            .for_each(default_container);
    }
    meta::items_mut(&mut owned, &["volumes"])
        .iter_mut()
        .for_each(default_pod_volume);
    if let Value::Object(completed) = owned {
        *spec = completed;
    }
}

fn default_container(container: &mut Value) {
    let image = meta::text(container, &["image"]);
    let tag = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!tag.contains(':') || tag.ends_with(":latest"));
    let pull_policy = if latest { "Always" } else { "IfNotPresent" };
    meta::default(container, &["imagePullPolicy"], pull_policy);
    meta::default(container, &["terminationMessagePath"], "/dev/termination-log");
    meta::default(container, &["terminationMessagePolicy"], "File");
    meta::default(container, &["resources"], json!({}));
    for port in meta::items_mut(container, &["ports"]) {
        meta::default(port, &["protocol"], "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[probe].is_object() {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                meta::default(container, &[probe, field], value);
            }
            if container[probe]["httpGet"].is_object() {
                meta::default(container, &[probe, "httpGet", "path"], "/");
                meta::default(container, &[probe, "httpGet", "scheme"], "HTTP");
            }
        }
    }
}

fn default_pod_volume(volume: &mut Value) {
    let only_name = volume.as_object().is_some_and(|fields| fields.len() == 1);
    if only_name {
        meta::set(volume, &["emptyDir"], json!({}));
    }
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if volume[source].is_object() {
            meta::default(volume, &[source, "defaultMode"], 420);
        }
    }
    if volume["hostPath"].is_object() {
        meta::default(volume, &["hostPath", "type"], "");
    }
    if volume["ephemeral"]["volumeClaimTemplate"].is_object() {
        meta::default(volume, &["ephemeral", "volumeClaimTemplate", "metadata"], json!({}));
        meta::default(
            volume,
            &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"],
            "Filesystem",
        );
    }
}

/// What the server adds to a pod beyond defaults.
pub(super) fn admit(pod: &mut Value) {
    let mut tolerations = meta::items(pod, &["spec", "tolerations"]).to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = |toleration: &Value| {
            let (found, effect) = (meta::text(toleration, &["key"]), meta::text(toleration, &["effect"]));
            (found == key || found.is_empty()) && ["", "NoExecute"].contains(&effect)
        };
        if !tolerations.iter().any(tolerates) {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": UNREACHABLE_SECONDS}));
        }
    }
    meta::set(pod, &["spec", "tolerations"], Value::Array(tolerations));
}

/// The service account, under its name and under the one that it had first.
pub(super) fn default_account(pod: &mut Value) {
    let old = pod["spec"]["serviceAccount"].clone();
    meta::default(pod, &["spec", "serviceAccountName"], old);
    meta::default(pod, &["spec", "serviceAccountName"], DEFAULT_ACCOUNT);
    let name = pod["spec"]["serviceAccountName"].clone();
    meta::set(pod, &["spec", "serviceAccount"], name);
}

fn quality_of_service(pod: &Value) -> &'static str {
    let containers = || {
        let main = meta::items(pod, &["spec", "containers"]).iter();
        main.chain(meta::items(pod, &["spec", "initContainers"]))
    };
    let quantity = |container: &Value, list: &str, name: &str| {
        fields::parse_quantity(meta::at(container, &["resources", list, name])).filter(|q| q.is_positive())
    };
    let asks = |container: &Value| {
        ["cpu", "memory"].iter().any(|name| {
            quantity(container, "requests", name)
                .or(quantity(container, "limits", name))
                .is_some()
        })
    };
    let guaranteed = |container: &Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = quantity(container, "limits", name);
            limit.is_some() && quantity(container, "requests", name).is_none_or(|request| Some(request) == limit)
        })
    };
    if !containers().any(asks) {
        "BestEffort"
    } else if containers().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
