//! Where pools are, read as the places of volumes are.

use berth_cluster::field;
use berth_cluster::simulation::VolumePlace;
use serde_json::{Value, json};

/// The place that a node selector names, as in the status of a driver.
pub(crate) fn of_selector(selector: &Value) -> VolumePlace {
    VolumePlace::of(&json!({"spec": {"nodeAffinity": {"required": selector}}}))
}

/// The place that a label selector names, as in a `CSIStorageCapacity`.
pub(crate) fn of_labels(selector: &Value) -> VolumePlace {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions: Vec<Value> = labels
        .map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}))
        .collect();
    expressions.extend_from_slice(field::items(selector, "/matchExpressions"));
    of_selector(&json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]}))
}
