//! The kinds of storage.k8s.io.

use serde_json::{Value, json};

use super::fields;
use crate::error::FieldError;
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
        _ => {}
    }
}

pub(super) fn validate(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match kind {
        "StorageClass" => {
            if meta::text(object, &["provisioner"]).is_empty() {
                errors.push(FieldError::required("provisioner", ""));
            }
            let policies = ["Delete", "Retain"];
            fields::check_one_of(object, &["reclaimPolicy"], &policies, &mut errors);
            let modes = ["Immediate", "WaitForFirstConsumer"];
            fields::check_one_of(object, &["volumeBindingMode"], &modes, &mut errors);
        }
        "CSIStorageCapacity" => {
            if meta::text(object, &["storageClassName"]).is_empty() {
                errors.push(FieldError::required("storageClassName", ""));
            }
            for field in ["capacity", "maximumVolumeSize"] {
                if !object[field].is_null() {
                    fields::check_quantity(&object[field], field, &mut errors);
                }
            }
        }
        "CSINode" => validate_node_drivers(object, &mut errors),
        "VolumeAttachment" => {
            for path in [["spec", "attacher"], ["spec", "nodeName"]] {
                if meta::text(object, &path).is_empty() {
                    errors.push(FieldError::required(path.join("."), ""));
                }
            }
        }
        _ => {}
    }
    errors
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
        seen.push(&driver["name"]);
    }
}

pub(super) fn validate_update(kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match kind {
        "StorageClass" => {
            for field in ["parameters", "provisioner", "reclaimPolicy"] {
                if old[field] != new[field] {
                    let detail = format!("updates to {field} are forbidden.");
                    errors.push(FieldError::forbidden(field, &detail));
                }
            }
            if old["volumeBindingMode"] != new["volumeBindingMode"] {
                let value = &new["volumeBindingMode"];
                errors.push(FieldError::invalid(
                    "volumeBindingMode",
                    value,
                    "field is immutable",
                ));
            }
        }
        "CSIStorageCapacity" => {
            for field in ["nodeTopology", "storageClassName"] {
                if old[field] != new[field] {
                    errors.push(FieldError::invalid(
                        field,
                        &new[field],
                        "field is immutable",
                    ));
                }
            }
        }
        "CSIDriver" => {
            for field in ["attachRequired", "fsGroupPolicy", "volumeLifecycleModes"] {
                if old["spec"][field] != new["spec"][field] {
                    let path = format!("spec.{field}");
                    errors.push(FieldError::invalid(
                        path,
                        &new["spec"][field],
                        "field is immutable",
                    ));
                }
            }
        }
        "VolumeAttachment" if old["spec"] != new["spec"] => {
            errors.push(FieldError::invalid(
                "spec",
                &new["spec"],
                "field is immutable",
            ));
        }
        _ => {}
    }
    errors
}
