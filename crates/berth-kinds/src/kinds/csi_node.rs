//! CSI nodes: the drivers on a node.

use serde_json::Value;

use crate::columns::{AGE, NAME, length};
use crate::error::FieldError;
use crate::fields;
use crate::go_form;
use crate::kind::Kind;
use crate::meta;

/// CSI nodes.
pub const KIND: Kind = Kind {
    columns: &[NAME, length("Drivers", &["spec", "drivers"]).of_type("integer"), AGE],
    validate,
    validate_update,
    ..Kind::cluster("storage.k8s.io", "v1", "CSINode", "csinodes")
};

fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (index, driver) in meta::items(object, &["spec", "drivers"]).iter().enumerate() {
        let field = |name: &str| format!("spec.drivers[{index}].{name}");
        for name in ["name", "nodeID"] {
            if meta::text(driver, &[name]).is_empty() {
                errors.push(FieldError::required(field(name), ""));
            }
        }
        if seen.contains(&&driver["name"]) {
            errors.push(FieldError::duplicate(field("name"), &driver["name"]));
        }
        let count = &driver["allocatable"]["count"];
        fields::check_count(count, &field("allocatable.count"), &mut errors);
        let keys = meta::items(driver, &["topologyKeys"]);
        for (place, key) in keys.iter().enumerate() {
            if keys.iter().take(place).any(|other| other == key) {
                errors.push(FieldError::duplicate(format!("spec.drivers[{index}]"), key));
            }
        }
        seen.push(&driver["name"]);
    }
    errors
}

/// A driver may be added or removed, but its entry is immutable.
fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for driver in meta::items(new, &["spec", "drivers"]) {
        let before = meta::items(old, &["spec", "drivers"]).iter();
        let same_name = |other: &&Value| other["name"] == driver["name"];
        // The attach limit of a driver may be set later.
        let without_count = |driver: &Value| {
            let mut driver = driver.clone();
            meta::set(&mut driver, &["allocatable"], Value::Null);
            driver
        };
        if before
            .clone()
            .find(same_name)
            .is_some_and(|before| without_count(before) != without_count(driver))
        {
            let value = go_form::compact("CSINodeDriver", &without_count(driver));
            errors.push(FieldError::invalid_text("spec.drivers", &value, "field is immutable"));
        }
    }
    errors
}
