//! PersistentVolumeClaims.

use berth_core::names;
use serde_json::Value;

use super::{fields, selectors};
use crate::api::Api;
use crate::error::{ApiError, FieldError};
use crate::go_form;
use crate::meta;
use crate::store::PageQuery;
use crate::write::Change;

const FIXED: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
const CLASSES: &str = "storageclasses.storage.k8s.io";

pub(super) fn default_claim(claim: &mut Value) {
    meta::default(claim, &["status", "phase"], "Pending");
    meta::default(claim, &["spec", "volumeMode"], "Filesystem");
}

/// A claim names its source in both of the fields that there are for it.
pub(super) fn mirror_data_source(claim: &mut Value) {
    for (source, other) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        let given = claim["spec"][source].clone();
        if !given.is_null() && given["namespace"].is_null() {
            meta::default(claim, &["spec", other], given);
        }
    }
}

fn has_class(claim: &Value) -> bool {
    !claim["spec"]["storageClassName"].is_null()
        || !meta::at(claim, &["metadata", "annotations", names::STORAGE_CLASS_BETA]).is_null()
}

/// A claim that names no class gets the default one: of several, the newest, then the first by name.
pub(super) fn set_default_class(api: &Api, claim: &mut Value) {
    if has_class(claim) {
        return;
    }
    let all = PageQuery::all("");
    let Ok(page) = api.store.list(CLASSES, &all) else {
        return;
    };
    let classes = page.objects.iter().map(|object| object.value()).filter(|class| {
        [names::IS_DEFAULT_CLASS, names::IS_DEFAULT_CLASS_BETA]
            .iter()
            .any(|key| meta::annotation(class, key) == "true")
    });
    let created = |class: &Value| meta::text(class, &["metadata", "creationTimestamp"]).to_owned();
    let newest = classes.reduce(
        |best, class| {
            if created(&class) > created(&best) { class } else { best }
        },
    );
    if let Some(class) = newest {
        meta::set(claim, &["spec", "storageClassName"], meta::name(&class).into());
    }
}

fn request(claim: &Value) -> &Value {
    meta::at(claim, &["spec", "resources", "requests", "storage"])
}

/// A claim grows only if it is bound, and its class says that it may.
pub(super) fn admit_growth(change: &Change<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    let (before, after) = (
        fields::parse_quantity(request(old)),
        fields::parse_quantity(request(new)),
    );
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(());
    };
    if after <= before {
        return Ok(());
    }
    // Of a claim that is not bound, validation says that it is fixed.
    if meta::text(old, &["status", "phase"]) != "Bound" {
        return Ok(());
    }
    let class = meta::text(old, &["spec", "storageClassName"]);
    let class = change.api.store.latest(CLASSES, class).map(|object| object.value());
    if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(ApiError::forbidden(&change.served.resource, &change.name, why))
}

pub(super) fn validate(claim: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    selectors::check_label_selector(&claim["spec"]["selector"], "spec.selector", &mut errors);
    fields::check_access_modes(claim, "at least 1 access mode is required", &mut errors);
    let (storage, field) = (request(claim), "spec.resources[storage]");
    if storage.is_null() {
        errors.push(FieldError::required(field, ""));
    } else if !fields::parse_quantity(storage).is_some_and(|quantity| quantity.is_positive()) {
        errors.push(FieldError::invalid(field, storage, "must be greater than zero"));
    }
    if let Some(class) = claim["spec"]["storageClassName"]
        .as_str()
        .filter(|class| !class.is_empty())
    {
        fields::check_subdomain(class, "spec.storageClassName", &mut errors);
    }
    fields::check_one_of(claim, &["spec", "volumeMode"], &["Block", "Filesystem"], &mut errors);
    for source in ["dataSource", "dataSourceRef"] {
        let found = &claim["spec"][source];
        for part in ["name", "kind"] {
            if found.is_object() && meta::text(found, &[part]).is_empty() {
                errors.push(FieldError::required(format!("spec.{source}.{part}"), ""));
            }
        }
    }
    errors
}

pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let before = &old["spec"];
    let mut after = new["spec"].clone();
    if meta::text(old, &["status", "phase"]) == "Bound" && !meta::text(before, &["volumeName"]).is_empty() {
        for path in [&["resources", "requests"][..], &["volumeAttributesClassName"]] {
            meta::copy(before, &mut after, path);
        }
    }
    // The controller sets the volume's name once, and a default class may come later.
    for field in ["volumeName", "storageClassName"] {
        let is_unset = meta::text(before, &[field]).is_empty();
        let may_be_set = field == "volumeName" || (before[field].is_null() && !has_class(old));
        if is_unset && may_be_set {
            meta::copy(before, &mut after, &[field]);
        }
    }
    if *before != after {
        let difference = go_form::difference("PersistentVolumeClaimSpec", before, &after);
        let detail = format!("{FIXED}\n{difference}");
        errors.push(FieldError::forbidden("spec", &detail));
    }
    let (was, is) = (
        fields::parse_quantity(request(old)),
        fields::parse_quantity(request(new)),
    );
    if let (Some(was), Some(is)) = (was, is)
        && is < was
        && errors.is_empty()
    {
        let capacity = fields::parse_quantity(meta::at(old, &["status", "capacity", "storage"]));
        // What a failed growth asked for may be taken back, down to what the volume has.
        if capacity.is_none_or(|capacity| is <= capacity) {
            let detail = "field can not be less than status.capacity";
            errors.push(FieldError::forbidden("spec.resources.requests.storage", detail));
        }
    }
    if old["spec"]["volumeMode"] != new["spec"]["volumeMode"] {
        let value = &new["spec"]["volumeMode"];
        errors.push(FieldError::invalid("volumeMode", value, "field is immutable"));
    }
    errors
}
