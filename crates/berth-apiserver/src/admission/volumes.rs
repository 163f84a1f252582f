//! PersistentVolumes.

use berth_core::names;
use serde_json::{Value, json};

use super::fields;
use crate::error::FieldError;
use crate::meta;

/// Fields of a volume's spec that are not its source.
const NOT_A_SOURCE: [&str; 10] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "bindingMode",
];

pub(super) fn default_volume(volume: &mut Value) {
    meta::default(volume, &["status", "phase"], "Pending");
    meta::default(volume, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
    meta::default(volume, &["spec", "volumeMode"], "Filesystem");
    if volume["spec"]["hostPath"].is_object() {
        meta::default(volume, &["spec", "hostPath", "type"], "");
    }
    if volume["spec"]["claimRef"].is_object() {
        meta::default(
            volume,
            &["spec", "claimRef", "kind"],
            "PersistentVolumeClaim",
        );
        meta::default(volume, &["spec", "claimRef", "apiVersion"], "v1");
    }
}

fn sources(volume: &Value) -> Value {
    let spec = volume["spec"].as_object().cloned().unwrap_or_default();
    let sources = spec
        .into_iter()
        .filter(|(name, _)| !NOT_A_SOURCE.contains(&name.as_str()));
    Value::Object(sources.collect())
}

pub(super) fn validate(volume: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    fields::check_access_modes(volume, "", &mut errors);
    let capacity = &volume["spec"]["capacity"];
    if capacity
        .as_object()
        .is_none_or(|capacity| capacity.is_empty())
    {
        errors.push(FieldError::required("spec.capacity", ""));
    } else if capacity.get("storage").is_none() || capacity.as_object().is_some_and(|c| c.len() > 1)
    {
        errors.push(FieldError::not_supported(
            "spec.capacity",
            &capacity.to_string(),
            &["storage"],
        ));
    }
    for (name, value) in capacity.as_object().into_iter().flatten() {
        let field = format!("spec.capacity[{name}]");
        let before = errors.len();
        fields::check_quantity(value, &field, &mut errors);
        if errors.len() == before && !fields::parse_quantity(value).is_some_and(|q| q.is_positive())
        {
            errors.push(FieldError::invalid(
                field,
                value,
                "must be greater than zero",
            ));
        }
    }
    match sources(volume).as_object().map_or(0, serde_json::Map::len) {
        0 => errors.push(FieldError::required("spec", "must specify a volume type")),
        1 => {}
        _ => {
            let found = sources(volume);
            let extra = found
                .as_object()
                .and_then(|s| s.keys().nth(1).cloned())
                .unwrap_or_default();
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("spec.{extra}"), detail));
        }
    }
    validate_source(volume, &mut errors);
    let policies = ["Delete", "Recycle", "Retain"];
    fields::check_one_of(
        volume,
        &["spec", "persistentVolumeReclaimPolicy"],
        &policies,
        &mut errors,
    );
    fields::check_one_of(
        volume,
        &["spec", "volumeMode"],
        &["Block", "Filesystem"],
        &mut errors,
    );
    validate_affinity(volume, &mut errors);
    errors
}

fn validate_source(volume: &Value, errors: &mut Vec<FieldError>) {
    let spec = &volume["spec"];
    let mut require = |path: [&str; 2]| {
        if spec[path[0]].is_object() && meta::text(spec, &path).is_empty() {
            errors.push(FieldError::required(
                format!("spec.{}.{}", path[0], path[1]),
                "",
            ));
        }
    };
    for path in [
        ["local", "path"],
        ["hostPath", "path"],
        ["csi", "driver"],
        ["csi", "volumeHandle"],
    ] {
        require(path);
    }
    if spec["local"].is_object() && spec["nodeAffinity"]["required"].is_null() {
        errors.push(FieldError::required(
            "spec.nodeAffinity",
            "Local volume requires node affinity",
        ));
    }
}

fn validate_affinity(volume: &Value, errors: &mut Vec<FieldError>) {
    let affinity = &volume["spec"]["nodeAffinity"];
    if affinity.is_null() {
        return;
    }
    let required = &affinity["required"];
    if required.is_null() {
        let detail = "must specify required node constraints";
        errors.push(FieldError::required("spec.nodeAffinity.required", detail));
        return;
    }
    let terms = meta::items(required, &["nodeSelectorTerms"]);
    let field = "spec.nodeAffinity.required.nodeSelectorTerms";
    if terms.is_empty() {
        errors.push(FieldError::required(
            field,
            "must have at least one node selector term",
        ));
    }
    for (index, term) in terms.iter().enumerate() {
        for (number, expression) in meta::items(term, &["matchExpressions"]).iter().enumerate() {
            validate_expression(
                expression,
                &format!("{field}[{index}].matchExpressions[{number}]"),
                errors,
            );
        }
    }
}

fn validate_expression(expression: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let operator = meta::text(expression, &["operator"]);
    let values = meta::items(expression, &["values"]).len();
    let values_field = format!("{field}.values");
    match operator {
        "In" | "NotIn" if values == 0 => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(values_field, detail));
        }
        "Exists" | "DoesNotExist" if values > 0 => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(values_field, detail));
        }
        "Gt" | "Lt" if values != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(values_field, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid(
                format!("{field}.operator"),
                &other.into(),
                detail,
            ));
        }
    }
    if meta::text(expression, &["key"]).is_empty() {
        errors.push(FieldError::required(format!("{field}.key"), ""));
    }
}

pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if sources(old) != sources(new) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
    if old["spec"]["volumeMode"] != new["spec"]["volumeMode"] {
        let value = &new["spec"]["volumeMode"];
        errors.push(FieldError::invalid(
            "spec.volumeMode",
            value,
            "field is immutable",
        ));
    }
    let (before, after) = (&old["spec"]["nodeAffinity"], &new["spec"]["nodeAffinity"]);
    if !before.is_null() && with_stable_labels(before) != with_stable_labels(after) {
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::invalid("spec.nodeAffinity", after, detail));
    }
    errors
}

/// The older topology labels may be replaced by the ones of today.
fn with_stable_labels(affinity: &Value) -> Value {
    let mut affinity = affinity.clone();
    for term in meta::items_mut(&mut affinity, &["required", "nodeSelectorTerms"]) {
        for expression in meta::items_mut(term, &["matchExpressions"]) {
            let stable = match meta::text(expression, &["key"]) {
                names::ZONE_BETA => names::ZONE,
                names::REGION_BETA => names::REGION,
                _ => continue,
            };
            meta::set(expression, &["key"], json!(stable));
        }
    }
    affinity
}
