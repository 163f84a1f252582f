//! Tables of volumes, claims, classes and CSI objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{CREATED, NONE, Printer, UNSET, age, boolean, integer, items, joined, name, text, text_of, text_or, wide};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let printer = match (group, kind) {
        ("", "PersistentVolume") => VOLUME,
        ("", "PersistentVolumeClaim") => CLAIM,
        ("storage.k8s.io", "StorageClass") => CLASS,
        ("storage.k8s.io", "VolumeAttributesClass") => ATTRIBUTES_CLASS,
        ("storage.k8s.io", "CSINode") => CSI_NODE,
        ("storage.k8s.io", "CSIDriver") => CSI_DRIVER,
        ("storage.k8s.io", "CSIStorageCapacity") => CREATED,
        ("storage.k8s.io", "VolumeAttachment") => ATTACHMENT,
        _ => return None,
    };
    Some(printer)
}

const VOLUME: Printer = Printer {
    columns: &[
        text("Name"),
        text("Capacity"),
        text("Access Modes"),
        text("Reclaim Policy"),
        text("Status"),
        text("Claim"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Reason"),
        text("Age"),
        wide("VolumeMode"),
    ],
    row: volume,
};

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let claim = match &spec["claimRef"] {
        Value::Object(claim) => {
            let part = |name: &str| claim.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{}/{}", part("namespace"), part("name"))
        }
        _ => String::new(),
    };
    vec![
        name(object),
        json!(quantity(&spec["capacity"]["storage"])),
        json!(access_modes(&spec["accessModes"])),
        text_or(&spec["persistentVolumeReclaimPolicy"], ""),
        json!(phase(object)),
        json!(claim),
        json!(class_name(object)),
        text_or(&spec["volumeAttributesClassName"], UNSET),
        text_or(&status["reason"], ""),
        age::of(object, now),
        text_or(&spec["volumeMode"], UNSET),
    ]
}

const CLAIM: Printer = Printer {
    columns: &[
        text("Name"),
        text("Status"),
        text("Volume"),
        text("Capacity"),
        text("Access Modes"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Age"),
        wide("VolumeMode"),
    ],
    row: claim,
};

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let volume = text_of(&spec["volumeName"]);
    // A claim without a volume has no size yet, whatever its status still says.
    let bound = |value: String| {
        if volume.is_some() { value } else { String::new() }
    };
    vec![
        name(object),
        json!(phase(object)),
        json!(volume.unwrap_or_default()),
        json!(bound(quantity(&status["capacity"]["storage"]))),
        json!(bound(access_modes(&status["accessModes"]))),
        json!(class_name(object)),
        text_or(&spec["volumeAttributesClassName"], UNSET),
        age::of(object, now),
        text_or(&spec["volumeMode"], UNSET),
    ]
}

/// The phase, or that the object is being deleted.
fn phase(object: &Value) -> &str {
    if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        object["status"]["phase"].as_str().unwrap_or_default()
    }
}

/// The class of a volume or claim; the annotation is older and still wins.
fn class_name(object: &Value) -> &str {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = annotation
        .as_str()
        .or_else(|| object["spec"]["storageClassName"].as_str());
    class.unwrap_or_default()
}

fn quantity(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

fn access_modes(modes: &Value) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| items(modes).iter().any(|m| m == mode);
    joined(SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short))
}

const CLASS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Provisioner"),
        text("ReclaimPolicy"),
        text("VolumeBindingMode"),
        text("AllowVolumeExpansion"),
        text("Age"),
    ],
    row: |object, now| {
        let annotations = &object["metadata"]["annotations"];
        let is_default = annotations["storageclass.kubernetes.io/is-default-class"] == "true"
            || annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true";
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let name = if is_default {
            format!("{name} (default)")
        } else {
            name.to_owned()
        };
        vec![
            json!(name),
            text_or(&object["provisioner"], ""),
            text_or(&object["reclaimPolicy"], "Delete"),
            text_or(&object["volumeBindingMode"], "Immediate"),
            json!(object["allowVolumeExpansion"].as_bool().unwrap_or(false)),
            age::of(object, now),
        ]
    },
};

const ATTRIBUTES_CLASS: Printer = Printer {
    columns: &[text("Name"), text("DriverName"), text("Age")],
    row: |object, now| vec![name(object), text_or(&object["driverName"], ""), age::of(object, now)],
};

const CSI_NODE: Printer = Printer {
    columns: &[text("Name"), integer("Drivers"), text("Age")],
    row: |object, now| {
        vec![
            name(object),
            json!(items(&object["spec"]["drivers"]).len()),
            age::of(object, now),
        ]
    },
};

const CSI_DRIVER: Printer = Printer {
    columns: &[
        text("Name"),
        boolean("AttachRequired"),
        boolean("PodInfoOnMount"),
        boolean("StorageCapacity"),
        text("TokenRequests"),
        boolean("RequiresRepublish"),
        text("Modes"),
        text("Age"),
    ],
    row: |object, now| {
        let spec = &object["spec"];
        let flag = |name: &str, default: bool| json!(spec[name].as_bool().unwrap_or(default));
        let audiences = joined(
            items(&spec["tokenRequests"])
                .iter()
                .map(|t| t["audience"].as_str().unwrap_or_default()),
        );
        let modes = joined(items(&spec["volumeLifecycleModes"]).iter().filter_map(Value::as_str));
        vec![
            name(object),
            flag("attachRequired", true),
            flag("podInfoOnMount", false),
            flag("storageCapacity", false),
            json!(if items(&spec["tokenRequests"]).is_empty() {
                UNSET
            } else {
                &audiences
            }),
            flag("requiresRepublish", false),
            json!(if modes.is_empty() { NONE } else { &modes }),
            age::of(object, now),
        ]
    },
};

const ATTACHMENT: Printer = Printer {
    columns: &[
        text("Name"),
        text("Attacher"),
        text("PV"),
        text("Node"),
        boolean("Attached"),
        text("Age"),
    ],
    row: |object, now| {
        let spec = &object["spec"];
        vec![
            name(object),
            text_or(&spec["attacher"], ""),
            text_or(&spec["source"]["persistentVolumeName"], ""),
            text_or(&spec["nodeName"], ""),
            json!(object["status"]["attached"].as_bool().unwrap_or(false)),
            age::of(object, now),
        ]
    },
};
