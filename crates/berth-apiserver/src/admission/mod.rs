//! What happens to an object between the request and the store: defaults, admission and validation.
//!
//! Defaults and rules are here where users and controllers of volumes and pods meet them. Kinds without an entry are
//! stored as they come, after the rules of metadata that hold for all.

mod claims;
pub(crate) mod definitions;
mod fields;
mod metadata;
mod pods;
mod priority;
mod quantity;
mod services;
mod storage;
mod volumes;
mod workloads;

use berth_core::names;
use serde_json::{Value, json};

use crate::clock;
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::schema;
use crate::types::Served;
use crate::write::Change;

/// Lets the server's own rules speak about a new object, and complete it.
pub(crate) fn admit_create(change: &Change<'_>, object: &mut Value) -> Result<(), ApiError> {
    let served = &change.served;
    if served.resource.namespaced {
        check_namespace(change)?;
    }
    match (
        served.resource.group.as_str(),
        served.resource.kind.as_str(),
    ) {
        ("", "Pod") => {
            priority::admit_pod(change, object)?;
            pods::admit(object);
        }
        ("", "PersistentVolumeClaim") => {
            claims::set_default_class(change.api, object);
            meta::add_finalizer(object, names::CLAIM_PROTECTION);
        }
        ("", "PersistentVolume") => meta::add_finalizer(object, names::VOLUME_PROTECTION),
        ("", "Namespace") => admit_namespace(object),
        ("", "Service") => services::allocate_address(change.api, object),
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
pub(crate) fn admit_update(
    change: &Change<'_>,
    old: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    let served = &change.served;
    match (
        served.resource.group.as_str(),
        served.resource.kind.as_str(),
    ) {
        ("", "PersistentVolumeClaim") if change.subresource.is_empty() => {
            claims::set_default_class(change.api, new);
            claims::admit_growth(change, old, new)?;
        }
        ("", "Service") => meta_copy_if_absent(old, new, &["spec", "clusterIP"]),
        ("apiextensions.k8s.io", "CustomResourceDefinition") if change.subresource.is_empty() => {
            definitions::admit(new, &clock::rfc3339(change.now));
        }
        _ => {}
    }
    Ok(())
}

fn meta_copy_if_absent(old: &Value, new: &mut Value, path: &[&str]) {
    if meta::at(new, path).is_null() {
        meta::copy(old, new, path);
    }
}

/// Fills in what the kind says of fields that are not set.
pub(crate) fn apply_defaults(served: &Served, object: &mut Value) {
    match (
        served.resource.group.as_str(),
        served.resource.kind.as_str(),
    ) {
        ("", "Pod") => pods::default_pod(object),
        ("", "PersistentVolume") => volumes::default_volume(object),
        ("", "PersistentVolumeClaim") => claims::default_claim(object),
        ("", "Namespace") => default_namespace(object),
        ("", "Service") => services::default_service(object),
        ("", "Secret") => meta::default(object, &["type"], "Opaque"),
        ("storage.k8s.io", _) => storage::default_storage(&served.resource.kind, object),
        ("apps" | "batch", _) => workloads::default_workload(&served.resource.kind, object),
        ("scheduling.k8s.io", "PriorityClass") => {
            meta::default(object, &["preemptionPolicy"], "PreemptLowerPriority");
        }
        ("apiextensions.k8s.io", _) => definitions::default_definition(object),
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
pub(crate) fn validate_update(
    served: &Served,
    subresource: &str,
    old: &Value,
    new: &Value,
) -> Vec<FieldError> {
    let mut errors = metadata::validate(served, new);
    errors.extend(metadata::validate_update(old, new));
    if !subresource.is_empty() {
        return errors;
    }
    errors.extend(validate_kind(served, new));
    match (
        served.resource.group.as_str(),
        served.resource.kind.as_str(),
    ) {
        ("", "Pod") => errors.extend(pods::validate_update(old, new)),
        ("", "PersistentVolume") => errors.extend(volumes::validate_update(old, new)),
        ("", "PersistentVolumeClaim") => errors.extend(claims::validate_update(old, new)),
        ("storage.k8s.io", kind) => errors.extend(storage::validate_update(kind, old, new)),
        ("apps" | "batch", kind) => errors.extend(workloads::validate_update(kind, old, new)),
        ("", "ConfigMap" | "Secret") => errors.extend(fields::validate_immutable_content(old, new)),
        _ => {}
    }
    errors
}

fn validate_kind(served: &Served, object: &Value) -> Vec<FieldError> {
    match (
        served.resource.group.as_str(),
        served.resource.kind.as_str(),
    ) {
        ("", "Pod") => pods::validate(object),
        ("", "PersistentVolume") => volumes::validate(object),
        ("", "PersistentVolumeClaim") => claims::validate(object),
        ("storage.k8s.io", kind) => storage::validate(kind, object),
        ("apps" | "batch", kind) => workloads::validate(kind, object),
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
    if namespace
        .field(&["metadata", "deletionTimestamp"])
        .is_some()
    {
        let resource = &change.served.resource;
        return Err(ApiError::namespace_terminating(
            resource,
            &change.name,
            &change.namespace,
        ));
    }
    Ok(())
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
