//! Persistent volume claims.

use berth_core::names;
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::columns::{AGE, NAME, UNSET, made, text};
use crate::error::{FieldError, Refusal};
use crate::fields;
use crate::go_form;
use crate::kind::{Kind, STATUS};
use crate::kinds::{limit_range, storage_class};
use crate::meta;
use crate::selector::check;
use crate::storage;

/// Persistent volume claims.
pub const KIND: Kind = Kind {
    short_names: &["pvc"],
    subresources: &[STATUS],
    columns: &[
        NAME,
        made("Status", |claim, _| json!(storage::phase(claim))),
        text("Volume", &["spec", "volumeName"], ""),
        made("Capacity", |claim, _| {
            json!(if_bound(claim, storage::size(&claim["status"]["capacity"])))
        }),
        made("Access Modes", |claim, _| {
            json!(if_bound(claim, storage::access_modes(&claim["status"])))
        }),
        made("StorageClass", |claim, _| json!(storage::class_name(claim))),
        text("VolumeAttributesClass", &["spec", "volumeAttributesClassName"], UNSET),
        AGE,
        text("VolumeMode", &["spec", "volumeMode"], UNSET).wide(),
    ],
    defaults,
    admit,
    admit_update,
    validate,
    validate_update,
    ..Kind::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
};

const FIXED: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

fn defaults(claim: &mut Value) {
    meta::default(claim, &["status", "phase"], "Pending");
    storage::default_claim_spec(claim);
}

/// Sets both data source fields of a claim to the same source.
fn mirror_data_source(claim: &mut Value) {
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

/// Sets the default class on a claim without a class.
fn set_default_class(admission: &Admission<'_>, claim: &mut Value) {
    if has_class(claim) {
        return;
    }
    if let Some(class) = storage_class::default_class(admission.objects) {
        meta::set(claim, &["spec", "storageClassName"], class.into());
    }
}

fn admit(admission: &Admission<'_>, claim: &mut Value) -> Result<(), Refusal> {
    mirror_data_source(claim);
    // A claim that was bound without a class keeps none.
    let was_bound = admission.restores && !meta::text(claim, &["spec", "volumeName"]).is_empty();
    if !was_bound {
        set_default_class(admission, claim);
    }
    // An admitted claim has its finalizer, and the limits may have been different then.
    let was_admitted = admission.restores && meta::finalizers(claim).contains(&names::CLAIM_PROTECTION);
    meta::add_finalizer(claim, names::CLAIM_PROTECTION);
    if was_admitted {
        return Ok(());
    }
    limit_range::check_claim(admission, claim)
}

fn admit_update(admission: &Admission<'_>, old: &Value, new: &mut Value) -> Result<(), Refusal> {
    if admission.is_whole() {
        set_default_class(admission, new);
        admit_growth(admission, old, new)?;
        if !meta::is_deleting(old) {
            limit_range::check_claim(admission, new)?;
        }
    }
    Ok(())
}

/// What is printed for a bound claim. An unbound one has no size yet, whatever its status still says.
fn if_bound(claim: &Value, value: String) -> String {
    if meta::text(claim, &["spec", "volumeName"]).is_empty() {
        String::new()
    } else {
        value
    }
}

fn request(claim: &Value) -> &Value {
    meta::at(claim, &["spec", "resources", "requests", "storage"])
}

/// A claim can be expanded only if it is bound and its class allows it.
fn admit_growth(admission: &Admission<'_>, old: &Value, new: &Value) -> Result<(), Refusal> {
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
    // For an unbound claim, validation reports that the field is immutable.
    if meta::text(old, &["status", "phase"]) != "Bound" {
        return Ok(());
    }
    let class = meta::text(old, &["spec", "storageClassName"]);
    let class = admission.objects.get(&storage_class::KIND, "", class);
    if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    Err(Refusal::NotExpandable)
}

fn validate(claim: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check::label_selector(&claim["spec"]["selector"], "spec.selector", &mut errors);
    fields::check_access_modes(claim, "at least 1 access mode is required", &mut errors);
    let (storage, field) = (request(claim), "spec.resources[storage]");
    if storage.is_null() {
        errors.push(FieldError::required(field, ""));
    } else if !fields::is_positive(storage) {
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

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let before = &old["spec"];
    let mut after = new["spec"].clone();
    if meta::text(old, &["status", "phase"]) == "Bound" && !meta::text(before, &["volumeName"]).is_empty() {
        for path in [&["resources", "requests"][..], &["volumeAttributesClassName"]] {
            meta::copy(before, &mut after, path);
        }
    }
    // The controller sets the volume name once, and a default class may be set later.
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
        // A failed expansion may be reduced to the capacity of the volume.
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
