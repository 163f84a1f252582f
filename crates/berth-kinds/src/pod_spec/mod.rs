//! The spec of a pod, in a pod or in the template of a workload.

use serde_json::{Value, json};

use crate::fields;
use crate::meta;
use crate::storage;

mod validate;

pub(crate) use validate::validate;

/// The lists of containers in a manifest.
pub(crate) const CONTAINER_LISTS: [&str; 2] = ["containers", "initContainers"];

/// Fills in the defaults of the spec at a path.
pub(crate) fn apply_defaults(object: &mut Value, path: &[&str]) {
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
    name_account_twice(&mut owned);
    canonicalize_resources(&mut owned);
    fields::canonicalize(&mut owned, &["overhead"]);
    for list in CONTAINER_LISTS {
        meta::items_mut(&mut owned, &[list])
            .iter_mut()
            .for_each(default_container);
    }
    meta::items_mut(&mut owned, &["volumes"])
        .iter_mut()
        .for_each(default_volume);
    if let Value::Object(completed) = owned {
        *spec = completed;
    }
}

/// Sets the service account under both of its field names.
pub(crate) fn name_account_twice(spec: &mut Value) {
    let first = spec["serviceAccount"].clone();
    meta::default(spec, &["serviceAccountName"], first);
    let name = spec["serviceAccountName"].clone();
    if !meta::text(spec, &["serviceAccountName"]).is_empty() {
        meta::set(spec, &["serviceAccount"], name);
    }
}

/// Converts requests and limits to canonical form.
fn canonicalize_resources(owner: &mut Value) {
    for list in ["limits", "requests"] {
        fields::canonicalize(owner, &["resources", list]);
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
    canonicalize_resources(container);
    for port in meta::items_mut(container, &["ports"]) {
        meta::default(port, &["protocol"], "TCP");
    }
    for variable in meta::items_mut(container, &["env"]) {
        default_field_reference(variable, &["valueFrom", "fieldRef"]);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        default_probe(container, probe);
    }
    for hook in ["postStart", "preStop"] {
        default_request(container, &["lifecycle", hook, "httpGet"]);
    }
}

fn default_probe(container: &mut Value, probe: &str) {
    if !container[probe].is_object() {
        return;
    }
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        meta::default(container, &[probe, field], value);
    }
    default_request(container, &[probe, "httpGet"]);
    if container[probe]["grpc"].is_object() {
        meta::default(container, &[probe, "grpc", "service"], "");
    }
}

fn default_request(container: &mut Value, path: &[&str]) {
    if meta::at(container, path).is_object() {
        meta::default(container, &[path, &["path"]].concat(), "/");
        meta::default(container, &[path, &["scheme"]].concat(), "HTTP");
    }
}

fn default_field_reference(object: &mut Value, path: &[&str]) {
    if meta::at(object, path).is_object() {
        meta::default(object, &[path, &["apiVersion"]].concat(), "v1");
    }
}

fn default_volume(volume: &mut Value) {
    let only_name = volume.as_object().is_some_and(|fields| fields.len() == 1);
    if only_name {
        meta::set(volume, &["emptyDir"], json!({}));
    }
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if volume[source].is_object() {
            meta::default(volume, &[source, "defaultMode"], 420);
        }
    }
    for item in meta::items_mut(volume, &["downwardAPI", "items"]) {
        default_field_reference(item, &["fieldRef"]);
    }
    for source in meta::items_mut(volume, &["projected", "sources"]) {
        for item in meta::items_mut(source, &["downwardAPI", "items"]) {
            default_field_reference(item, &["fieldRef"]);
        }
        if source["serviceAccountToken"].is_object() {
            meta::default(source, &["serviceAccountToken", "expirationSeconds"], 3600);
        }
    }
    if volume["hostPath"].is_object() {
        meta::default(volume, &["hostPath", "type"], "");
    }
    if let Some(limit) = volume.pointer_mut("/emptyDir/sizeLimit") {
        fields::canonicalize_value(limit);
    }
    if let Some(template @ Value::Object(_)) = volume.pointer_mut("/ephemeral/volumeClaimTemplate") {
        meta::default(template, &["metadata"], json!({}));
        storage::default_claim_spec(template);
    }
}
