//! Config maps.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, made};
use crate::error::FieldError;
use crate::fields;
use crate::kind::Kind;

/// Config maps.
pub const KIND: Kind = Kind {
    short_names: &["cm"],
    columns: &[
        NAME,
        made("Data", |map, _| {
            json!(entries(&map["data"]) + entries(&map["binaryData"]))
        }),
        AGE,
    ],
    validate,
    validate_update: fields::check_fixed_content,
    ..Kind::namespaced("", "v1", "ConfigMap", "configmaps")
};

/// How many entries a map has.
pub(super) fn entries(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

/// The keys of a ConfigMap's data.
fn validate(map: &Value) -> Vec<FieldError> {
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
