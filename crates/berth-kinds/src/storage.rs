//! What claims, claim templates and volumes share.

use berth_core::names;
use serde_json::Value;

use crate::columns::joined;
use crate::fields;
use crate::meta;

/// The defaults of a claim's spec, in a claim or in a template.
pub(crate) fn default_claim_spec(claim: &mut Value) {
    meta::default(claim, &["spec", "volumeMode"], "Filesystem");
    for list in ["limits", "requests"] {
        fields::canonicalize(claim, &["spec", "resources", list]);
    }
}

/// The phase, or `Terminating` if the object is being deleted.
pub(crate) fn phase(object: &Value) -> &str {
    if meta::is_deleting(object) {
        "Terminating"
    } else {
        meta::text(object, &["status", "phase"])
    }
}

/// The class of a volume or claim; the legacy annotation wins over the field.
pub(crate) fn class_name(object: &Value) -> &str {
    let annotation = meta::at(object, &["metadata", "annotations", names::STORAGE_CLASS_BETA]);
    let class = annotation
        .as_str()
        .or_else(|| object["spec"]["storageClassName"].as_str());
    class.unwrap_or_default()
}

/// The size among quantities, as written.
pub(crate) fn size(capacity: &Value) -> String {
    match &capacity["storage"] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// The access modes of a spec or status, abbreviated.
pub(crate) fn access_modes(of: &Value) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = meta::items(of, &["accessModes"]);
    let has = |mode: &str| modes.iter().any(|found| found == mode);
    joined(SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short))
}
