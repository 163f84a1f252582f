//! The kinds of storage.k8s.io.

use serde_json::{Value, json};

use super::fields;
use super::metadata::check_qualified_name;
use crate::error::FieldError;
use crate::go_form;
use crate::meta;

pub(super) fn default_storage(kind: &str, object: &mut Value) {
    match kind {
        "StorageClass" => {
            meta::default(object, &["reclaimPolicy"], "Delete");
            meta::default(object, &["volumeBindingMode"], "Immediate");
        }
        "CSIDriver" => {
            for (field, value) in [
                ("attachRequired", json!(true)),
                ("podInfoOnMount", json!(false)),
                ("storageCapacity", json!(false)),
                ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
                ("volumeLifecycleModes", json!(["Persistent"])),
                ("requiresRepublish", json!(false)),
                ("seLinuxMount", json!(false)),
            ] {
                meta::default(object, &["spec", field], value);
            }
        }
        "VolumeAttachment" => meta::default(object, &["status", "attached"], json!(false)),
        _ => {}
    }
}

pub(super) fn validate(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match kind {
        "StorageClass" => {
            match meta::text(object, &["provisioner"]) {
                "" => errors.push(FieldError::required("provisioner", "")),
                name => check_qualified_name(&name.to_lowercase(), "provisioner", &mut errors),
            }
            if object["parameters"].get("").is_some() {
                let detail = "field can not be empty.";
                errors.push(FieldError::invalid("parameters", &"".into(), detail));
            }
            let policies = ["Delete", "Retain"];
            fields::check_one_of(object, &["reclaimPolicy"], &policies, &mut errors);
            let modes = ["Immediate", "WaitForFirstConsumer"];
            fields::check_one_of(object, &["volumeBindingMode"], &modes, &mut errors);
            validate_topologies(object, &mut errors);
        }
        "CSIDriver" => validate_driver(object, &mut errors),
        "VolumeAttributesClass" => {
            if meta::text(object, &["driverName"]).is_empty() {
                errors.push(FieldError::required("driverName", ""));
            }
            if object["parameters"]
                .as_object()
                .is_none_or(|parameters| parameters.is_empty())
            {
                let detail = "must contain at least one key/value pair";
                errors.push(FieldError::required("parameters", detail));
            }
        }
        "CSIStorageCapacity" => {
            fields::check_subdomain(
                meta::text(object, &["storageClassName"]),
                "storageClassName",
                &mut errors,
            );
            for field in ["capacity", "maximumVolumeSize"] {
                if !object[field].is_null() {
                    fields::check_quantity(&object[field], field, &mut errors);
                }
            }
        }
        "CSINode" => validate_node_drivers(object, &mut errors),
        "VolumeAttachment" => {
            if meta::text(object, &["spec", "attacher"]).is_empty() {
                errors.push(FieldError::required("spec.attacher", ""));
            }
            let source = &object["spec"]["source"];
            if source["persistentVolumeName"].is_null() && source["inlineVolumeSpec"].is_null() {
                let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(FieldError::required("spec.source", detail));
            }
            fields::check_subdomain(meta::text(object, &["spec", "nodeName"]), "spec.nodeName", &mut errors);
        }
        _ => {}
    }
    errors
}

fn validate_topologies(class: &Value, errors: &mut Vec<FieldError>) {
    for (number, term) in meta::items(class, &["allowedTopologies"]).iter().enumerate() {
        let mut keys = Vec::new();
        for (index, expression) in meta::items(term, &["matchLabelExpressions"]).iter().enumerate() {
            let field = format!("allowedTopologies[{number}].matchLabelExpressions[{index}]");
            let values = meta::items(expression, &["values"]);
            if values.is_empty() {
                errors.push(FieldError::required(format!("{field}.values"), ""));
            }
            for (place, value) in values.iter().enumerate() {
                if values.iter().take(place).any(|other| other == value) {
                    errors.push(FieldError::duplicate(format!("{field}.values[{place}]"), value));
                }
            }
            let key = &expression["key"];
            check_qualified_name(key.as_str().unwrap_or_default(), &format!("{field}.key"), errors);
            if keys.contains(&key) {
                errors.push(FieldError::duplicate(format!("{field}.key"), key));
            }
            keys.push(key);
        }
    }
}

fn validate_driver(driver: &Value, errors: &mut Vec<FieldError>) {
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    fields::check_one_of(driver, &["spec", "fsGroupPolicy"], &policies, errors);
    let modes = ["Persistent", "Ephemeral"];
    for mode in meta::items(driver, &["spec", "volumeLifecycleModes"]) {
        if !modes.contains(&mode.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, &modes));
        }
    }
}

fn validate_node_drivers(object: &Value, errors: &mut Vec<FieldError>) {
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
        fields::check_count(count, &field("allocatable.count"), errors);
        let keys = meta::items(driver, &["topologyKeys"]);
        for (place, key) in keys.iter().enumerate() {
            if keys.iter().take(place).any(|other| other == key) {
                errors.push(FieldError::duplicate(format!("spec.drivers[{index}]"), key));
            }
        }
        seen.push(&driver["name"]);
    }
}

pub(super) fn validate_update(kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match kind {
        "StorageClass" => {
            check_fixed(
                old,
                new,
                &["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"],
                &mut errors,
            );
        }
        "VolumeAttributesClass" => {
            for field in ["driverName", "parameters"] {
                if old[field] != new[field] {
                    let detail = format!("updates to {field} are forbidden.");
                    errors.push(FieldError::forbidden(field, &detail));
                }
            }
        }
        "CSIStorageCapacity" => check_fixed(old, new, &["nodeTopology", "storageClassName"], &mut errors),
        "CSIDriver" => {
            // The first name is as Kubernetes writes it.
            for (field, name) in [
                ("attachRequired", "attachedRequired"),
                ("fsGroupPolicy", "fsGroupPolicy"),
                ("volumeLifecycleModes", "volumeLifecycleModes"),
            ] {
                if old["spec"][field] != new["spec"][field] {
                    let path = format!("spec.{name}");
                    errors.push(FieldError::invalid(path, &new["spec"][field], "field is immutable"));
                }
            }
        }
        "CSINode" => check_fixed_drivers(old, new, &mut errors),
        "VolumeAttachment" if old["spec"] != new["spec"] => {
            let value = go_form::compact("VolumeAttachmentSpec", &new["spec"]);
            errors.push(FieldError::invalid_text("spec", &value, "field is immutable"));
        }
        _ => {}
    }
    errors
}

fn check_fixed(old: &Value, new: &Value, fixed: &[&str], errors: &mut Vec<FieldError>) {
    for field in fixed {
        if old[*field] != new[*field] {
            errors.push(FieldError::invalid(*field, &new[*field], "field is immutable"));
        }
    }
}

/// A driver may come and go, but while it is there it stays as it is.
fn check_fixed_drivers(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    for driver in meta::items(new, &["spec", "drivers"]) {
        let before = meta::items(old, &["spec", "drivers"]).iter();
        let same_name = |other: &&Value| other["name"] == driver["name"];
        // How many volumes a driver can take may be found out later.
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
}
