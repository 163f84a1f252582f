//! CSI drivers.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, NONE, UNSET, flag, items, joined, made};
use crate::error::FieldError;
use crate::fields;
use crate::kind::{Generation, Kind, STATUS};
use crate::meta;

/// CSI drivers.
pub const KIND: Kind = Kind {
    subresources: &[STATUS],
    generation: Generation::CountedLater,
    columns: &[
        NAME,
        flag("AttachRequired", &["spec", "attachRequired"], true),
        flag("PodInfoOnMount", &["spec", "podInfoOnMount"], false),
        flag("StorageCapacity", &["spec", "storageCapacity"], false),
        made("TokenRequests", |driver, _| json!(audiences(driver))),
        flag("RequiresRepublish", &["spec", "requiresRepublish"], false),
        made("Modes", |driver, _| json!(modes(driver))),
        AGE,
    ],
    defaults,
    validate,
    validate_status: |driver| {
        let mut errors = Vec::new();
        fields::check_readable(driver, &mut errors);
        errors
    },
    validate_update,
    ..Kind::cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers")
};

fn defaults(driver: &mut Value) {
    for (field, value) in [
        ("attachRequired", json!(true)),
        ("podInfoOnMount", json!(false)),
        ("storageCapacity", json!(false)),
        ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
        ("volumeLifecycleModes", json!(["Persistent"])),
        ("requiresRepublish", json!(false)),
        ("seLinuxMount", json!(false)),
    ] {
        meta::default(driver, &["spec", field], value);
    }
}

fn validate(driver: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    fields::check_one_of(driver, &["spec", "fsGroupPolicy"], &policies, &mut errors);
    let modes = ["Persistent", "Ephemeral"];
    for mode in meta::items(driver, &["spec", "volumeLifecycleModes"]) {
        if !modes.contains(&mode.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, &modes));
        }
    }
    fields::check_readable(driver, &mut errors);
    errors
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    // The first name is spelled as in Kubernetes.
    let fixed = [
        ("attachRequired", "attachedRequired"),
        ("fsGroupPolicy", "fsGroupPolicy"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ];
    let changed = fixed
        .iter()
        .filter(|(field, _)| old["spec"][*field] != new["spec"][*field]);
    changed
        .map(|(field, name)| FieldError::invalid(format!("spec.{name}"), &new["spec"][*field], "field is immutable"))
        .collect()
}

fn audiences(driver: &Value) -> String {
    match items(&driver["spec"]["tokenRequests"]) {
        [] => UNSET.to_owned(),
        requests => joined(requests.iter().map(|request| meta::text(request, &["audience"]))),
    }
}

fn modes(driver: &Value) -> String {
    let modes = items(&driver["spec"]["volumeLifecycleModes"]).iter();
    let modes = joined(modes.filter_map(Value::as_str));
    if modes.is_empty() { NONE.to_owned() } else { modes }
}
