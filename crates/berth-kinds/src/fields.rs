//! Validation rules that several kinds share.

use berth_core::api::{DecodeError, Object};
use berth_core::quantity::{self, Quantity};
use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::meta;
use crate::metadata::{self, DNS_LABEL, LABEL_BYTES_MAX, SUBDOMAIN};

/// The Kubernetes message for a text that is not a quantity.
const NOT_A_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Requires a DNS subdomain name.
pub(crate) fn check_subdomain(name: &str, field: &str, errors: &mut Vec<FieldError>) {
    if !metadata::is_subdomain(name) {
        errors.push(FieldError::invalid(field, &name.into(), SUBDOMAIN));
    }
}

/// Requires a DNS label.
pub(crate) fn check_dns_label(name: &str, field: &str, errors: &mut Vec<FieldError>) {
    if name.len() > LABEL_BYTES_MAX {
        let detail = format!("must be no more than {LABEL_BYTES_MAX} bytes");
        errors.push(FieldError::invalid(field, &name.into(), &detail));
    } else if !metadata::is_dns_label(name) {
        errors.push(FieldError::invalid(field, &name.into(), DNS_LABEL));
    }
}

/// Requires the name of a CSI driver. Upper case is allowed where drivers report their name, but not in objects.
pub(crate) fn check_driver_name(name: &str, field: &str, errors: &mut Vec<FieldError>) {
    if name.len() > LABEL_BYTES_MAX {
        errors.push(FieldError::too_long(field, LABEL_BYTES_MAX));
    } else if !metadata::is_subdomain(&name.to_lowercase()) {
        errors.push(FieldError::invalid(field, &name.into(), SUBDOMAIN));
    }
}

/// Checks keys and values of labels.
pub(crate) fn check_labels(labels: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        metadata::check_qualified_name(key, field, errors);
        metadata::check_label_value(value, field, errors);
    }
}

/// Requires a non-negative number.
pub(crate) fn check_count(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if value.as_i64().is_some_and(|number| number < 0) {
        errors.push(FieldError::invalid(field, value, "must be greater than or equal to 0"));
    }
}

/// Requires a non-negative quantity.
pub(crate) fn check_quantity(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    match parse_quantity(value) {
        None => errors.push(FieldError::invalid(field, value, NOT_A_QUANTITY)),
        Some(found) if found.is_negative() => {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(field, value, detail));
        }
        Some(_) => {}
    }
}

/// Parses a quantity, which may also be written as a number.
pub(crate) fn parse_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

pub(crate) const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Checks the access modes of volumes and claims.
pub(crate) fn check_access_modes(object: &Value, detail: &str, errors: &mut Vec<FieldError>) {
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

/// Requires one of several texts, if the field is set.
pub(crate) fn check_one_of(object: &Value, path: &[&str], allowed: &[&str], errors: &mut Vec<FieldError>) {
    let value = meta::at(object, path);
    let text = value.as_str().unwrap_or_default();
    if !value.is_null() && !allowed.contains(&text) {
        errors.push(FieldError::not_supported(path.join("."), value, allowed));
    }
}

/// Enforces `immutable: true` on a ConfigMap or a Secret.
pub(crate) fn check_fixed_content(old: &Value, new: &Value) -> Vec<FieldError> {
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

/// Converts the quantities in the map at a path to canonical form, so that equal quantities are written alike.
pub(crate) fn canonicalize(object: &mut Value, path: &[&str]) {
    let found = path.iter().try_fold(object, |value, key| value.get_mut(*key));
    for value in found
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(Map::values_mut)
    {
        canonicalize_value(value);
    }
}

/// Converts one quantity to canonical form.
pub(crate) fn canonicalize_value(value: &mut Value) {
    let canonical = match &*value {
        Value::String(text) => quantity::canonical(text).filter(|canonical| canonical != text),
        Value::Number(number) => quantity::canonical(&number.to_string()),
        _ => None,
    };
    if let Some(canonical) = canonical {
        *value = canonical.into();
    }
}

/// Checks the fields that decisions read. Called last: if a rule of Kubernetes already reports an error, only that one
/// is reported.
pub(crate) fn check_readable(object: &Value, errors: &mut Vec<FieldError>) {
    if !errors.is_empty() {
        return;
    }
    if let Err(DecodeError::Field { field, problem, .. }) = Object::decode(object) {
        errors.push(FieldError::unreadable(field, &problem));
    }
}

/// Whether a value is a positive quantity.
pub(crate) fn is_positive(value: &Value) -> bool {
    parse_quantity(value).is_some_and(|quantity| quantity > Quantity::default())
}

/// Requires that top-level fields do not change.
pub(crate) fn check_fixed(old: &Value, new: &Value, fixed: &[&str]) -> Vec<FieldError> {
    let changed = fixed.iter().filter(|field| old[**field] != new[**field]);
    changed
        .map(|field| FieldError::invalid(*field, &new[*field], "field is immutable"))
        .collect()
}

/// Requires a text to be set.
pub(crate) fn check_set(object: &Value, path: &[&str], errors: &mut Vec<FieldError>) {
    if meta::text(object, path).is_empty() {
        errors.push(FieldError::required(path.join("."), ""));
    }
}
