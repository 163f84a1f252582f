//! Small rules that several kinds share.

use serde_json::Value;

use super::metadata::{self, DNS_LABEL, LABEL_BYTES_MAX, SUBDOMAIN};
use crate::error::FieldError;
use crate::meta;
use crate::quantity::{NOT_A_QUANTITY, Quantity};

/// A name as DNS has them, with dots.
pub(super) fn check_subdomain(name: &str, field: &str, errors: &mut Vec<FieldError>) {
    if !metadata::is_subdomain(name) {
        errors.push(FieldError::invalid(field, &name.into(), SUBDOMAIN));
    }
}

/// A name as DNS has them, without dots.
pub(super) fn check_dns_label(name: &str, field: &str, errors: &mut Vec<FieldError>) {
    if name.len() > LABEL_BYTES_MAX {
        let detail = format!("must be no more than {LABEL_BYTES_MAX} bytes");
        errors.push(FieldError::invalid(field, &name.into(), &detail));
    } else if !metadata::is_dns_label(name) {
        errors.push(FieldError::invalid(field, &name.into(), DNS_LABEL));
    }
}

/// The name of a CSI driver. Upper case is allowed where drivers name themselves, but not in objects.
pub(super) fn check_driver_name(name: &str, field: &str, errors: &mut Vec<FieldError>) {
    if name.len() > LABEL_BYTES_MAX {
        errors.push(FieldError::too_long(field, LABEL_BYTES_MAX));
    } else if !metadata::is_subdomain(&name.to_lowercase()) {
        errors.push(FieldError::invalid(field, &name.into(), SUBDOMAIN));
    }
}

/// Keys and values of labels, wherever they stand.
pub(super) fn check_labels(labels: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        metadata::check_qualified_name(key, field, errors);
        metadata::check_label_value(value, field, errors);
    }
}

/// A number must not be negative.
pub(super) fn check_count(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if value.as_i64().is_some_and(|number| number < 0) {
        errors.push(FieldError::invalid(field, value, "must be greater than or equal to 0"));
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

pub(super) const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Access modes of volumes and claims.
pub(super) fn check_access_modes(object: &Value, detail: &str, errors: &mut Vec<FieldError>) {
    let modes = meta::items(object, &["spec", "accessModes"]);
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", detail));
    }
    for mode in modes {
        if !ACCESS_MODES.contains(&mode.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported("spec.accessModes", mode, &ACCESS_MODES));
        }
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes", detail));
    }
}

/// A text that must be one of a few, if it is there.
pub(super) fn check_one_of(object: &Value, path: &[&str], allowed: &[&str], errors: &mut Vec<FieldError>) {
    let value = meta::at(object, path);
    let text = value.as_str().unwrap_or_default();
    if !value.is_null() && !allowed.contains(&text) {
        errors.push(FieldError::not_supported(path.join("."), value, allowed));
    }
}

/// The keys of a ConfigMap's data.
pub(super) fn check_data_keys(map: &Value) -> Vec<FieldError> {
    let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let is_valid = |key: &str| {
        let mut letters = key.bytes();
        !key.is_empty() && letters.all(|letter| letter.is_ascii_alphanumeric() || b"-._".contains(&letter))
    };
    let mut errors = Vec::new();
    for part in ["data", "binaryData"] {
        for key in map[part].as_object().into_iter().flat_map(|data| data.keys()) {
            if !is_valid(key) {
                let value = Value::from(key.as_str());
                errors.push(FieldError::invalid(format!("{part}[{key}]"), &value, detail));
            }
        }
    }
    errors
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
