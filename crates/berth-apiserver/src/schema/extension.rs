//! Fields that this API has in addition to the published types: storage pools in a CSIDriver's status, the size of an
//! inline CSI volume, and the older name of a class's binding mode.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::builtin::REFERENCE_PREFIX;

const STORAGE: &str = "io.k8s.api.storage.v1.";

fn reference(name: &str) -> String {
    format!("{REFERENCE_PREFIX}{name}")
}

/// Adds the fields to the definitions.
pub(super) fn add_fields(definitions: &mut BTreeMap<String, Value>) {
    let quantity = reference("io.k8s.apimachinery.pkg.api.resource.Quantity");
    add_property(
        definitions,
        "io.k8s.api.core.v1.CSIVolumeSource",
        "fsSize",
        json!({
            "description": "fsSize is the size of the volume. Without it, the driver decides.",
            "$ref": quantity,
        }),
    );
    add_property(
        definitions,
        &format!("{STORAGE}CSIDriverSpec"),
        "capacityTracking",
        json!({
            "description": "capacityTracking defines whether the driver deployment will provide capacity \
                            information as part of the driver status.",
            "type": "boolean",
        }),
    );
    add_property(
        definitions,
        &format!("{STORAGE}CSIDriver"),
        "status",
        json!({
            "description": "status represents the storage that the driver provides at present.",
            "$ref": reference(&format!("{STORAGE}CSIDriverStatus")),
        }),
    );
    add_property(
        definitions,
        &format!("{STORAGE}StorageClass"),
        "bindingMode",
        json!({
            "description": "bindingMode is the name of volumeBindingMode in an example of KEP-490. It is kept as \
                            volumeBindingMode.",
            "type": "string",
        }),
    );
    definitions.insert(format!("{STORAGE}CSIStoragePool"), pool(&quantity));
    add_storage(definitions);
}

/// The status of a driver, including its pools.
fn add_storage(definitions: &mut BTreeMap<String, Value>) {
    definitions.insert(
        format!("{STORAGE}CSIDriverStatus"),
        json!({
            "description": "CSIDriverStatus represents dynamic information about the driver and its storage.",
            "type": "object",
            "properties": {"storage": {
                "description": "The kinds of storage that the driver provides.",
                "type": "array",
                "items": {"$ref": reference(&format!("{STORAGE}CSIStorage"))},
            }},
        }),
    );
    definitions.insert(
        format!("{STORAGE}CSIStorage"),
        json!({
            "description": "CSIStorage contains information for one kind of storage provided by a CSI driver.",
            "type": "object",
            "required": ["storageClassName"],
            "properties": {
                "storageClassName": {
                    "description": "The name of a StorageClass that the information applies to, or <ephemeral> for \
                                    inline volumes, or <fallback> where there is no more specific entry.",
                    "type": "string",
                },
                "pools": {
                    "description": "The pools that the driver allocates storage from.",
                    "type": "array",
                    "items": {"$ref": reference(&format!("{STORAGE}CSIStoragePool"))},
                },
            },
        }),
    );
}

fn pool(quantity: &str) -> Value {
    json!({
        "description": "CSIStoragePool is one pool of storage, accessible from the nodes that either nodeTopology \
                        or nodeList describes, or from the entire cluster.",
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"description": "A name that is unique in this list.", "type": "string"},
            "nodeTopology": {
                "description": "The nodes that the pool is available to, by their labels.",
                "$ref": format!("{REFERENCE_PREFIX}io.k8s.api.core.v1.NodeSelector"),
            },
            "nodeList": {
                "description": "The nodes that the pool is available to, by their names.",
                "type": "array",
                "items": {"type": "string"},
            },
            "capacity": {
                "description": "The size of the largest volume that can be created at present, as far as known.",
                "$ref": quantity,
            },
            "expiryTime": {
                "description": "The time at which this entry becomes obsolete. Without it, the entry stays valid.",
                "$ref": format!("{REFERENCE_PREFIX}io.k8s.apimachinery.pkg.apis.meta.v1.Time"),
            },
        },
    })
}

fn add_property(definitions: &mut BTreeMap<String, Value>, name: &str, property: &str, schema: Value) {
    if let Some(Value::Object(properties)) = definitions.get_mut(name).and_then(|d| d.get_mut("properties")) {
        properties.insert(property.to_owned(), schema);
    }
}
