//! Pods: the defaults that clients read back, and the rules that scheduling and volumes depend on.

use serde_json::{Value, json};

use super::fields;
use super::metadata::is_dns_label;
use crate::error::FieldError;
use crate::meta;

/// How long a pod stays on a node that stopped answering.
const UNREACHABLE_SECONDS: i64 = 300;

pub(super) fn default_pod(pod: &mut Value) {
    default_pod_spec(pod, &["spec"]);
    meta::default(pod, &["status", "phase"], "Pending");
    let class = quality_of_service(pod);
    meta::default(pod, &["status", "qosClass"], class);
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
        ("enableServiceLinks", json!(true)),
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
    meta::default(
        container,
        &["terminationMessagePath"],
        "/dev/termination-log",
    );
    meta::default(container, &["terminationMessagePolicy"], "File");
    meta::default(container, &["resources"], json!({}));
    for port in meta::items_mut(container, &["ports"]) {
        meta::default(port, &["protocol"], "TCP");
    }
    // A limit without a request is the request, too.
    let limits = container["resources"]["limits"].clone();
    for (name, limit) in limits.as_object().into_iter().flatten() {
        meta::default(container, &["resources", "requests", name], limit.clone());
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
        meta::default(
            volume,
            &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"],
            "Filesystem",
        );
    }
}

/// What the server adds to a new pod beyond defaults.
pub(super) fn admit(pod: &mut Value) {
    let mut tolerations = meta::items(pod, &["spec", "tolerations"]).to_vec();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerates = |toleration: &Value| {
            let (found, effect) = (
                meta::text(toleration, &["key"]),
                meta::text(toleration, &["effect"]),
            );
            (found == key || found.is_empty()) && ["", "NoExecute"].contains(&effect)
        };
        if !tolerations.iter().any(tolerates) {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": UNREACHABLE_SECONDS}),
            );
        }
    }
    meta::set(pod, &["spec", "tolerations"], Value::Array(tolerations));
}

fn quality_of_service(pod: &Value) -> &'static str {
    let containers = || {
        let main = meta::items(pod, &["spec", "containers"]).iter();
        main.chain(meta::items(pod, &["spec", "initContainers"]))
    };
    let quantity = |container: &Value, list: &str, name: &str| {
        fields::parse_quantity(meta::at(container, &["resources", list, name]))
            .filter(|q| q.is_positive())
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
            limit.is_some()
                && quantity(container, "requests", name)
                    .is_none_or(|request| Some(request) == limit)
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

pub(super) fn validate(pod: &Value) -> Vec<FieldError> {
    validate_pod_spec(&pod["spec"], "spec")
}

/// The rules of a pod's spec, wherever it stands.
pub(super) fn validate_pod_spec(spec: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = validate_volumes(spec, field, &mut errors);
    let containers = meta::items(spec, &["containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{field}.containers"), ""));
    }
    let mut names = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in meta::items(spec, &[list]).iter().enumerate() {
            let path = format!("{field}.{list}[{index}]");
            validate_container(container, &path, &volumes, &mut errors);
            let name = meta::text(container, &["name"]);
            if names.contains(&name) && !name.is_empty() {
                errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
            }
            names.push(name);
        }
    }
    let policies = ["Always", "OnFailure", "Never"];
    let policy = meta::text(spec, &["restartPolicy"]);
    if !policies.contains(&policy) {
        errors.push(FieldError::not_supported(
            format!("{field}.restartPolicy"),
            policy,
            &policies,
        ));
    }
    errors
}

fn validate_volumes<'s>(
    spec: &'s Value,
    field: &str,
    errors: &mut Vec<FieldError>,
) -> Vec<&'s str> {
    let mut names = Vec::new();
    for (index, volume) in meta::items(spec, &["volumes"]).iter().enumerate() {
        let path = format!("{field}.volumes[{index}]");
        let name = meta::text(volume, &["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        names.push(name);
        let claim = &volume["persistentVolumeClaim"];
        if claim.is_object() && meta::text(claim, &["claimName"]).is_empty() {
            let path = format!("{path}.persistentVolumeClaim.claimName");
            errors.push(FieldError::required(path, ""));
        }
        if volume["csi"].is_object() && meta::text(volume, &["csi", "driver"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.csi.driver"), ""));
        }
        if !volume["csi"]["fsSize"].is_null() {
            fields::check_quantity(
                &volume["csi"]["fsSize"],
                &format!("{path}.csi.fsSize"),
                errors,
            );
        }
        let sources = volume
            .as_object()
            .map_or(0, |fields| fields.keys().filter(|k| *k != "name").count());
        if sources > 1 {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    names
}

fn validate_container(
    container: &Value,
    path: &str,
    volumes: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let name = meta::text(container, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if !is_dns_label(name) || name.len() > 63 {
        let detail = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        errors.push(FieldError::invalid(
            format!("{path}.name"),
            &name.into(),
            detail,
        ));
    }
    if meta::text(container, &["image"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    for list in ["limits", "requests"] {
        fields::check_quantities(
            &container["resources"][list],
            &format!("{path}.resources.{list}"),
            errors,
        );
    }
    let limits = container["resources"]["limits"]
        .as_object()
        .into_iter()
        .flatten();
    for (name, limit) in limits {
        let request = meta::at(container, &["resources", "requests", name]);
        let (asked, most) = (
            fields::parse_quantity(request),
            fields::parse_quantity(limit),
        );
        if asked.zip(most).is_some_and(|(asked, most)| asked > most) {
            let detail = format!(
                "must be less than or equal to {name} limit of {}",
                limit.as_str().unwrap_or_default()
            );
            errors.push(FieldError::invalid(
                format!("{path}.resources.requests"),
                request,
                &detail,
            ));
        }
    }
    for (index, mount) in meta::items(container, &["volumeMounts"]).iter().enumerate() {
        let mount_name = meta::text(mount, &["name"]);
        let mount_path = format!("{path}.volumeMounts[{index}]");
        if mount_name.is_empty() {
            errors.push(FieldError::required(format!("{mount_path}.name"), ""));
        } else if !volumes.contains(&mount_name) {
            errors.push(FieldError::not_found(
                format!("{mount_path}.name"),
                &mount_name.into(),
            ));
        }
        if meta::text(mount, &["mountPath"]).is_empty() {
            errors.push(FieldError::required(format!("{mount_path}.mountPath"), ""));
        }
    }
}

/// A pod's spec is fixed but for a few fields.
pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let gated = !meta::items(old, &["spec", "schedulingGates"]).is_empty();
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for list in ["containers", "initContainers"] {
            for container in meta::items_mut(&mut spec, &[list]) {
                meta::set(container, &["image"], Value::Null);
            }
        }
        for field in [
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
            "schedulingGates",
        ] {
            meta::set(&mut spec, &[field], Value::Null);
        }
        if gated {
            // A pod that is held back may still be told where it must go.
            for field in ["nodeSelector", "affinity"] {
                meta::set(&mut spec, &[field], Value::Null);
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let after = meta::items(new, &["spec", "tolerations"]);
    let removed = meta::items(old, &["spec", "tolerations"])
        .iter()
        .any(|found| !after.iter().any(|new| same_toleration(found, new)));
    if removed {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
    let before = meta::items(old, &["spec", "schedulingGates"]);
    for (index, gate) in meta::items(new, &["spec", "schedulingGates"])
        .iter()
        .enumerate()
    {
        if !before.contains(gate) {
            let detail = "only deletion is allowed, but found new scheduling gate";
            errors.push(FieldError::forbidden(
                format!("spec.schedulingGates[{index}]"),
                detail,
            ));
        }
    }
    errors
}

fn same_toleration(one: &Value, other: &Value) -> bool {
    ["key", "operator", "value", "effect"]
        .iter()
        .all(|field| one[*field] == other[*field])
}
