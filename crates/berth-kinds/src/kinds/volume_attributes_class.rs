//! Volume attributes classes.

use serde_json::Value;

use crate::columns::{AGE, NAME, text};
use crate::error::FieldError;
use crate::fields;
use crate::kind::Kind;
use crate::meta;

/// Volume attributes classes.
pub const KIND: Kind = Kind {
    short_names: &["vac"],
    columns: &[NAME, text("DriverName", &["driverName"], ""), AGE],
    admit: |_, class| {
        meta::add_finalizer(class, PROTECTION);
        Ok(())
    },
    validate,
    validate_update,
    ..Kind::cluster(
        "storage.k8s.io",
        "v1",
        "VolumeAttributesClass",
        "volumeattributesclasses",
    )
};

/// Finalizer of a class, as set in a cluster.
pub const PROTECTION: &str = "kubernetes.io/vac-protection";

fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    fields::check_set(class, &["driverName"], &mut errors);
    if class["parameters"]
        .as_object()
        .is_none_or(|parameters| parameters.is_empty())
    {
        let detail = "must contain at least one key/value pair";
        errors.push(FieldError::required("parameters", detail));
    }
    errors
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let changed = ["driverName", "parameters"]
        .into_iter()
        .filter(|field| old[*field] != new[*field]);
    changed
        .map(|field| FieldError::forbidden(field, &format!("updates to {field} are forbidden.")))
        .collect()
}
