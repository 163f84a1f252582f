//! Small rules that several kinds share.

use serde_json::Value;

use super::quantity::{NOT_A_QUANTITY, Quantity};
use crate::error::FieldError;
use crate::meta;

/// Each quantity of a map (`limits`, `requests`, `capacity`) must be one, and not negative.
pub(super) fn check_quantities(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (name, value) in object.as_object().into_iter().flatten() {
        check_quantity(value, &format!("{field}[{name}]"), errors);
    }
}

/// A quantity must be one, and not negative.
pub(super) fn check_quantity(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    match parse_quantity(value) {
        None => errors.push(FieldError::invalid(field, value, NOT_A_QUANTITY)),
        Some(found) if found.is_negative() => {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(field, value, detail));
        }
        Some(_) => {}
    }
}

/// Quantities may be written as numbers, too.
pub(super) fn parse_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    }
}

pub(super) const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// Access modes of volumes and claims.
pub(super) fn check_access_modes(object: &Value, detail: &str, errors: &mut Vec<FieldError>) {
    let modes = meta::items(object, &["spec", "accessModes"]);
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", detail));
    }
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !ACCESS_MODES.contains(&mode) {
            errors.push(FieldError::not_supported(
                "spec.accessModes",
                mode,
                &ACCESS_MODES,
            ));
        }
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes", detail));
    }
}

/// A text that must be one of a few, if it is there.
pub(super) fn check_one_of(
    object: &Value,
    path: &[&str],
    allowed: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let value = meta::at(object, path);
    let text = value.as_str().unwrap_or_default();
    if !value.is_null() && !allowed.contains(&text) {
        errors.push(FieldError::not_supported(path.join("."), text, allowed));
    }
}

/// `immutable: true` on a ConfigMap or a Secret.
pub(super) fn validate_immutable_content(old: &Value, new: &Value) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if new["immutable"] != true {
        let detail = "field is immutable when `immutable` is set";
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for field in ["data", "binaryData", "stringData"] {
        if old[field] != new[field] {
            let detail = "field is immutable when `immutable` is set";
            errors.push(FieldError::forbidden(field, detail));
        }
    }
    errors
}
