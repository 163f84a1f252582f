//! PersistentVolumeClaims.

use berth_core::names;
use serde_json::Value;

use super::fields;
use crate::api::Api;
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::store::PageQuery;
use crate::write::Change;

const CLASSES: &str = "storageclasses.storage.k8s.io";

pub(super) fn default_claim(claim: &mut Value) {
    meta::default(claim, &["status", "phase"], "Pending");
    meta::default(claim, &["spec", "volumeMode"], "Filesystem");
    for source in ["dataSource", "dataSourceRef"] {
        let other = if source == "dataSource" {
            "dataSourceRef"
        } else {
            "dataSource"
        };
        let given = claim["spec"][source].clone();
        if !given.is_null() && given["namespace"].is_null() {
            meta::default(claim, &["spec", other], given);
        }
    }
}

fn has_class(claim: &Value) -> bool {
    !claim["spec"]["storageClassName"].is_null()
        || !meta::at(
            claim,
            &["metadata", "annotations", names::STORAGE_CLASS_BETA],
        )
        .is_null()
}

/// A claim that names no class gets the default one: of several, the newest, then the first by name.
pub(super) fn set_default_class(api: &Api, claim: &mut Value) {
    if has_class(claim) {
        return;
    }
    let all = PageQuery {
        prefix: "",
        after: None,
        limit: usize::MAX,
        at: None,
    };
    let Ok(page) = api.store.list(CLASSES, &all) else {
        return;
    };
    let classes = page
        .objects
        .iter()
        .map(|object| object.value())
        .filter(|class| {
            [names::IS_DEFAULT_CLASS, names::IS_DEFAULT_CLASS_BETA]
                .iter()
                .any(|key| meta::annotation(class, key) == "true")
        });
    let created = |class: &Value| meta::text(class, &["metadata", "creationTimestamp"]).to_owned();
    let newest = classes.reduce(|best, class| {
        if created(&class) > created(&best) {
            class
        } else {
            best
        }
    });
    if let Some(class) = newest {
        meta::set(
            claim,
            &["spec", "storageClassName"],
            meta::name(&class).into(),
        );
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
    let refuse = |why: &str| {
        Err(ApiError::forbidden(
            &change.served.resource,
            &change.name,
            why,
        ))
    };
    if meta::text(old, &["status", "phase"]) != "Bound" {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let class = meta::text(old, &["spec", "storageClassName"]);
    let class = change
        .api
        .store
        .latest(CLASSES, class)
        .map(|object| object.value());
    if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

pub(super) fn validate(claim: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    fields::check_access_modes(claim, "at least 1 access mode is required", &mut errors);
    let storage = request(claim);
    if storage.is_null() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    } else {
        let before = errors.len();
        fields::check_quantity(storage, "spec.resources[storage]", &mut errors);
        if errors.len() == before
            && !fields::parse_quantity(storage).is_some_and(|q| q.is_positive())
        {
            let detail = "must be greater than zero";
            errors.push(FieldError::invalid(
                "spec.resources[storage]",
                storage,
                detail,
            ));
        }
    }
    fields::check_one_of(
        claim,
        &["spec", "volumeMode"],
        &["Block", "Filesystem"],
        &mut errors,
    );
    errors
}

/// The parts of a claim's spec that can never change.
fn fixed_part(claim: &Value) -> Value {
    let mut spec = claim["spec"].clone();
    meta::set(
        &mut spec,
        &["resources", "requests", "storage"],
        Value::Null,
    );
    meta::set(&mut spec, &["volumeAttributesClassName"], Value::Null);
    spec
}

pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (mut before, mut after) = (fixed_part(old), fixed_part(new));
    // The controller sets the volume's name once, and a default class may come later.
    for field in ["volumeName", "storageClassName"] {
        let is_unset = meta::text(&before, &[field]).is_empty();
        let may_be_set = field == "volumeName" || (before[field].is_null() && !has_class(old));
        if is_unset && may_be_set {
            meta::set(&mut before, &[field], Value::Null);
            meta::set(&mut after, &[field], Value::Null);
        }
    }
    if before != after {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let (was, is) = (
        fields::parse_quantity(request(old)),
        fields::parse_quantity(request(new)),
    );
    if let (Some(was), Some(is)) = (was, is)
        && is < was
    {
        let capacity = fields::parse_quantity(meta::at(old, &["status", "capacity", "storage"]));
        // What a failed growth asked for may be taken back, down to what the volume has.
        if capacity.is_none_or(|capacity| is <= capacity) {
            let detail = "field can not be less than status.capacity";
            errors.push(FieldError::forbidden(
                "spec.resources.requests.storage",
                detail,
            ));
        }
    }
    errors
}
