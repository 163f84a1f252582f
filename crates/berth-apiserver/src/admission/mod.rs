//! What happens to an object between the request and the store: defaults, admission and validation.
//!
//! Defaults and rules are here where users and controllers of volumes and pods meet them. Kinds without an entry are
//! stored as they come, after the rules of metadata that hold for all.

mod budgets;
mod claims;
pub(crate) mod definitions;
mod events;
mod fields;
mod metadata;
mod nodes;
mod pods;
pub(crate) mod priority;
mod rbac;
mod schedules;
mod selectors;
mod services;
mod storage;
mod stored;
mod structural;
mod volumes;
mod workloads;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use berth_core::names;
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::schema;
use crate::types::Served;
use crate::write::Change;

/// Finalizer of a class of attributes, as a cluster puts it on.
const ATTRIBUTES_PROTECTION: &str = "kubernetes.io/vac-protection";

/// What the user should be told of an object that is otherwise fine.
pub(crate) fn warnings(served: &Served, object: &Value) -> Vec<String> {
    match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "PersistentVolume") => volumes::warnings(object),
        ("apiextensions.k8s.io", _) => structural::warnings(object),
        ("", "Endpoints") => {
            vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()]
        }
        _ => Vec::new(),
    }
}

/// Lets the server's own rules speak about a new object, and complete it.
pub(crate) fn admit_create(change: &Change<'_>, object: &mut Value) -> Result<(), ApiError> {
    let served = &change.served;
    if served.resource.namespaced && !change.restores {
        check_namespace(change)?;
    }
    match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "Pod") => {
            priority::admit_pod(change, object)?;
            pods::admit(object);
            if change.api.service_accounts {
                pods::default_account(object);
            }
            pods::note_gates(change, object);
        }
        ("", "PersistentVolumeClaim") => {
            claims::mirror_data_source(object);
            // A claim that was bound without a class has none.
            let was_bound = change.restores && !meta::text(object, &["spec", "volumeName"]).is_empty();
            if !was_bound {
                claims::set_default_class(change.api, object);
            }
            meta::add_finalizer(object, names::CLAIM_PROTECTION);
        }
        ("", "PersistentVolume") => {
            if !change.restores {
                volumes::note_phase(change, &Value::Null, object);
            }
            meta::add_finalizer(object, names::VOLUME_PROTECTION);
        }
        ("storage.k8s.io", "VolumeAttributesClass") => meta::add_finalizer(object, ATTRIBUTES_PROTECTION),
        ("", "Namespace") => admit_namespace(object),
        ("", "Service") => services::allocate(change, object)?,
        ("batch", "Job") => workloads::own_job_pods(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let time = clock::rfc3339(change.now);
            definitions::admit(object, &time);
        }
        _ => {}
    }
    Ok(())
}

/// Lets the server's own rules speak about a change, and complete it.
pub(crate) fn admit_update(change: &Change<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let served = &change.served;
    match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "PersistentVolumeClaim") if change.subresource.is_empty() => {
            claims::set_default_class(change.api, new);
            claims::admit_growth(change, old, new)?;
        }
        ("", "Pod") if change.subresource.is_empty() => pods::admit(new),
        ("", "PersistentVolume") => volumes::note_phase(change, old, new),
        ("", "Service") if change.subresource.is_empty() => {
            services::keep_allocations(old, new);
            services::allocate(change, new)?;
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") if change.subresource.is_empty() => {
            definitions::admit(new, &clock::rfc3339(change.now));
        }
        _ => {}
    }
    Ok(())
}

fn copy_if_absent(old: &Value, new: &mut Value, path: &[&str]) {
    if meta::at(new, path).is_null() {
        meta::copy(old, new, path);
    }
}

/// Fills in what the kind says of fields that are not set.
pub(crate) fn apply_defaults(served: &Served, object: &mut Value) {
    match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "Pod") => pods::default_pod(object),
        ("", "PersistentVolume") => volumes::default_volume(object),
        ("", "PersistentVolumeClaim") => claims::default_claim(object),
        ("", "Namespace") => default_namespace(object),
        ("", "Service") => services::default_service(object),
        ("", "Secret") => default_secret(object),
        ("", "Node") => nodes::default_node(object),
        ("", "ReplicationController") => workloads::default_workload(&served.resource.kind, object),
        ("", "Endpoints") => default_endpoints(object),
        ("", "Event") | ("events.k8s.io", _) => events::default_event(object),
        ("policy", _) => budgets::default_budget(object),
        (rbac::GROUP, "RoleBinding" | "ClusterRoleBinding") => rbac::default_binding(object),
        ("storage.k8s.io", _) => storage::default_storage(&served.resource.kind, object),
        ("apps" | "batch", _) => workloads::default_workload(&served.resource.kind, object),
        ("scheduling.k8s.io", "PriorityClass") => {
            meta::default(object, &["preemptionPolicy"], "PreemptLowerPriority");
        }
        ("apiextensions.k8s.io", _) => definitions::default_definition(object),
        ("", kind @ ("LimitRange" | "PodTemplate" | "ResourceQuota"))
        | ("autoscaling" | "discovery.k8s.io" | "networking.k8s.io", kind) => stored::default_stored(kind, object),
        _ => {
            if let Some(custom) = &served.custom {
                schema::apply_defaults(object, &custom.openapi);
            }
        }
    }
}

/// What is wrong with a new object.
pub(crate) fn validate_create(served: &Served, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate(served, object);
    errors.extend(validate_kind(served, object));
    errors
}

/// What is wrong with a change of an object.
pub(crate) fn validate_update(served: &Served, subresource: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate(served, new);
    errors.extend(metadata::validate_update(old, new));
    if !subresource.is_empty() {
        return errors;
    }
    errors.extend(validate_kind(served, new));
    match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "Pod") => errors.extend(pods::validate_update(old, new)),
        ("", "PersistentVolume") => errors.extend(volumes::validate_update(old, new)),
        ("", "PersistentVolumeClaim") => errors.extend(claims::validate_update(old, new)),
        ("storage.k8s.io", kind) => errors.extend(storage::validate_update(kind, old, new)),
        ("apps" | "batch", kind) => errors.extend(workloads::validate_update(kind, old, new)),
        ("", "ReplicationController") => errors.extend(workloads::validate_update(&served.resource.kind, old, new)),
        ("", "Service") => errors.extend(services::validate_update(old, new)),
        (rbac::GROUP, "RoleBinding" | "ClusterRoleBinding") => errors.extend(rbac::validate_update(old, new)),
        ("scheduling.k8s.io", "PriorityClass") => errors.extend(priority::validate_class_update(old, new)),
        ("", "ConfigMap" | "Secret") => errors.extend(fields::validate_immutable_content(old, new)),
        _ => {}
    }
    errors
}

fn validate_kind(served: &Served, object: &Value) -> Vec<FieldError> {
    match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "Pod") => pods::validate(object),
        ("", "PersistentVolume") => volumes::validate(object),
        ("", "PersistentVolumeClaim") => claims::validate(object),
        ("", "Node") => nodes::validate(object),
        ("", "Service") => services::validate(object),
        ("", "Event") | ("events.k8s.io", _) => events::validate(object),
        ("", "ConfigMap") => fields::check_data_keys(object),
        ("policy", _) => budgets::validate(object),
        (rbac::GROUP, kind) => rbac::validate(kind, object),
        ("coordination.k8s.io", _) => validate_lease(object),
        ("storage.k8s.io", kind) => storage::validate(kind, object),
        ("", kind @ "ReplicationController") | ("apps" | "batch", kind) => workloads::validate(kind, object),
        ("scheduling.k8s.io", "PriorityClass") => priority::validate_class(object),
        ("apiextensions.k8s.io", _) => definitions::validate(object),
        _ => validate_custom(served, object),
    }
}

/// Custom resources are checked by the schema of their definition.
fn validate_custom(served: &Served, object: &Value) -> Vec<FieldError> {
    let Some(custom) = &served.custom else {
        return Vec::new();
    };
    schema::validate(object, &custom.openapi)
        .into_iter()
        .map(FieldError::from)
        .collect()
}

/// Objects go only into a namespace that exists and stays.
fn check_namespace(change: &Change<'_>) -> Result<(), ApiError> {
    let Some(served) = change.api.core_type("Namespace") else {
        return Ok(());
    };
    let Some(namespace) = change.api.store.latest(&served.table, &change.namespace) else {
        return Err(ApiError::not_found(&served.resource, &change.namespace));
    };
    if namespace.field(&["metadata", "deletionTimestamp"]).is_some() {
        let resource = &change.served.resource;
        return Err(ApiError::namespace_terminating(
            resource,
            &change.name,
            &change.namespace,
        ));
    }
    Ok(())
}

fn default_endpoints(endpoints: &mut Value) {
    for subset in meta::items_mut(endpoints, &["subsets"]) {
        for port in meta::items_mut(subset, &["ports"]) {
            meta::default(port, &["protocol"], "TCP");
        }
    }
}

/// Texts that are sent in the clear are kept with the others.
fn default_secret(secret: &mut Value) {
    meta::default(secret, &["type"], "Opaque");
    let texts = secret["stringData"].clone();
    for (name, text) in texts.as_object().into_iter().flatten() {
        let encoded = BASE64.encode(text.as_str().unwrap_or_default());
        meta::set(secret, &["data", name], encoded.into());
    }
    meta::set(secret, &["stringData"], Value::Null);
}

fn validate_lease(lease: &Value) -> Vec<FieldError> {
    let seconds = &lease["spec"]["leaseDurationSeconds"];
    if seconds.as_i64().is_none_or(|seconds| seconds > 0) {
        return Vec::new();
    }
    vec![FieldError::invalid(
        "spec.leaseDurationSeconds",
        seconds,
        "must be greater than 0",
    )]
}

fn default_namespace(object: &mut Value) {
    let name = meta::name(object).to_owned();
    if !name.is_empty() {
        meta::set(
            object,
            &["metadata", "labels", "kubernetes.io/metadata.name"],
            name.into(),
        );
    }
    meta::default(object, &["status", "phase"], "Active");
}

fn admit_namespace(object: &mut Value) {
    meta::set(object, &["spec", "finalizers"], json!(["kubernetes"]));
}
