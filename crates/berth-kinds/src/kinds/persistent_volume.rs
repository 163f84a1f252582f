//! Persistent volumes.

use berth_core::api::{NodeSelectorTerm, Object, Requirement, StringMap};
use berth_core::names;
use berth_core::quantity::Quantity;
use berth_core::zone_affinity::{NodeKeys, Plan, plan};
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::columns::{AGE, NAME, UNSET, made, text};
use crate::error::{FieldError, Refusal};
use crate::fields;
use crate::go_form;
use crate::kind::{Kind, STATUS};
use crate::kinds::node;
use crate::meta;
use crate::selector::check;
use crate::storage;

/// Persistent volumes.
pub const KIND: Kind = Kind {
    short_names: &["pv"],
    subresources: &[STATUS],
    columns: &[
        NAME,
        made("Capacity", |volume, _| {
            json!(storage::size(&volume["spec"]["capacity"]))
        }),
        made("Access Modes", |volume, _| {
            json!(storage::access_modes(&volume["spec"]))
        }),
        text("Reclaim Policy", &["spec", "persistentVolumeReclaimPolicy"], ""),
        made("Status", |volume, _| json!(storage::phase(volume))),
        made("Claim", |volume, _| json!(claim(volume))),
        made("StorageClass", |volume, _| json!(storage::class_name(volume))),
        text("VolumeAttributesClass", &["spec", "volumeAttributesClassName"], UNSET),
        text("Reason", &["status", "reason"], ""),
        AGE,
        text("VolumeMode", &["spec", "volumeMode"], UNSET).wide(),
    ],
    defaults,
    admit,
    admit_update: |admission, old, new| {
        note_phase(admission, old, new);
        Ok(())
    },
    compares_updates: true,
    validate,
    validate_update,
    warnings,
    ..Kind::cluster("", "v1", "PersistentVolume", "persistentvolumes")
};

/// Fields of a volume's spec that are not sources.
const NOT_A_SOURCE: [&str; 10] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "bindingMode",
];

/// The sources in the order in which Kubernetes checks them; others follow by name.
const SOURCE_ORDER: [&str; 4] = ["hostPath", "nfs", "local", "csi"];

fn defaults(volume: &mut Value) {
    meta::default(volume, &["status", "phase"], "Pending");
    meta::default(volume, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
    meta::default(volume, &["spec", "volumeMode"], "Filesystem");
    fields::canonicalize(volume, &["spec", "capacity"]);
    if volume["spec"]["hostPath"].is_object() {
        meta::default(volume, &["spec", "hostPath", "type"], "");
    }
}

fn admit(admission: &Admission<'_>, volume: &mut Value) -> Result<(), Refusal> {
    if !admission.restores {
        note_phase(admission, &Value::Null, volume);
        // The controller upgrades a volume from an existing cluster.
        if admission.features.zone_affinity {
            write_zone_affinity(admission, volume);
        }
    }
    meta::add_finalizer(volume, names::VOLUME_PROTECTION);
    Ok(())
}

/// Adds node affinity to a volume that is located by zone labels only. Unreadable labels are left as they are: the controller
/// reports them.
fn write_zone_affinity(admission: &Admission<'_>, volume: &mut Value) {
    let has_label = |(key, older): &(&str, &str)| {
        let label = |key: &str| !meta::at(volume, &["metadata", "labels", key]).is_null();
        label(key) || label(older)
    };
    let labels = [(names::ZONE, names::ZONE_BETA), (names::REGION, names::REGION_BETA)];
    let has_affinity = !meta::at(volume, &["spec", "nodeAffinity", "required"]).is_null();
    if has_affinity || !labels.iter().any(has_label) {
        return;
    }
    let Ok(Some(Object::PersistentVolume(typed))) = Object::decode(volume) else {
        return;
    };
    let labels = |node: &Value| -> StringMap {
        let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
        labels
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect()
    };
    let nodes: Vec<StringMap> = admission.objects.all(&node::KIND).map(|node| labels(&node)).collect();
    let Plan::Upgrade(affinity) = plan(&typed, NodeKeys::of(&nodes)) else {
        return;
    };
    let requirement =
        |found: &Requirement| json!({"key": found.key, "operator": found.operator, "values": found.values});
    let term = |term: &NodeSelectorTerm| {
        let expressions: Vec<Value> = term.match_expressions.iter().map(requirement).collect();
        json!({"matchExpressions": expressions})
    };
    let terms: Vec<Value> = affinity.node_selector_terms.iter().map(term).collect();
    meta::set(
        volume,
        &["spec", "nodeAffinity", "required"],
        json!({"nodeSelectorTerms": terms}),
    );
}

/// Records the time of a phase change.
fn note_phase(admission: &Admission<'_>, old: &Value, new: &mut Value) {
    let phase = |volume: &Value| meta::text(volume, &["status", "phase"]).to_owned();
    if phase(old) != phase(new) {
        meta::set(new, &["status", "lastPhaseTransitionTime"], admission.time());
    }
}

/// Makes a new volume available, as the volume controller would do next. A volume that is reserved for an unbound claim is
/// available to that claim. For decisions on files without a controller.
pub fn settle(volume: &mut Value) {
    let is_new = matches!(meta::text(volume, &["status", "phase"]), "" | "Pending");
    if is_new && meta::text(volume, &["spec", "claimRef", "uid"]).is_empty() {
        meta::set(volume, &["status", "phase"], "Available".into());
    }
}

/// The claim of a volume, as printed.
fn claim(volume: &Value) -> String {
    match &volume["spec"]["claimRef"] {
        claim @ Value::Object(_) => format!("{}/{}", meta::text(claim, &["namespace"]), meta::text(claim, &["name"])),
        _ => String::new(),
    }
}

fn sources(volume: &Value) -> Value {
    let spec = volume["spec"].as_object().cloned().unwrap_or_default();
    let sources = spec
        .into_iter()
        .filter(|(name, _)| !NOT_A_SOURCE.contains(&name.as_str()));
    Value::Object(sources.collect())
}

fn validate(volume: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    fields::check_access_modes(volume, "", &mut errors);
    validate_capacity(&volume["spec"]["capacity"], &mut errors);
    validate_source(volume, &mut errors);
    let policies = ["Delete", "Recycle", "Retain"];
    let policy = ["spec", "persistentVolumeReclaimPolicy"];
    fields::check_one_of(volume, &policy, &policies, &mut errors);
    if let Some(class) = volume["spec"]["storageClassName"]
        .as_str()
        .filter(|class| !class.is_empty())
    {
        fields::check_subdomain(class, "spec.storageClassName", &mut errors);
    }
    fields::check_one_of(volume, &["spec", "volumeMode"], &["Block", "Filesystem"], &mut errors);
    validate_affinity(volume, &mut errors);
    errors
}

fn validate_capacity(capacity: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.capacity";
    let names: Vec<&String> = capacity.as_object().into_iter().flat_map(|c| c.keys()).collect();
    if names.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    if names != ["storage"] {
        errors.push(FieldError::not_supported(field, capacity, &["storage"]));
    }
    for (name, value) in capacity.as_object().into_iter().flatten() {
        let field = format!("{field}[{name}]");
        let Some(quantity) = fields::parse_quantity(value) else {
            continue;
        };
        if quantity.is_negative() {
            let whole = quantity.value().to_string();
            let detail = "must be a valid resource quantity";
            errors.push(FieldError::invalid_text(&field, &whole, detail));
        }
        if quantity <= Quantity::default() && name == "storage" {
            errors.push(FieldError::invalid(field, value, "must be greater than zero"));
        }
    }
}

fn validate_source(volume: &Value, errors: &mut Vec<FieldError>) {
    let found = sources(volume);
    let mut names: Vec<&String> = found
        .as_object()
        .into_iter()
        .flat_map(|sources| sources.keys())
        .collect();
    let place = |name: &str| SOURCE_ORDER.iter().position(|known| *known == name);
    names.sort_by_key(|name| place(name).unwrap_or(SOURCE_ORDER.len()));
    if names.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    for (index, name) in names.iter().enumerate() {
        let field = format!("spec.{name}");
        if index > 0 {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(field, detail));
        } else {
            validate_one_source(name, &found[name.as_str()], &field, volume, errors);
        }
    }
}

fn validate_one_source(name: &str, source: &Value, field: &str, volume: &Value, errors: &mut Vec<FieldError>) {
    let text = |key: &str| meta::text(source, &[key]);
    let require = |key: &str, errors: &mut Vec<FieldError>| {
        if text(key).is_empty() {
            errors.push(FieldError::required(format!("{field}.{key}"), ""));
        }
        !text(key).is_empty()
    };
    match name {
        "hostPath" | "local" => {
            if require("path", errors) && text("path").split('/').any(|step| step == "..") {
                let value = Value::from(text("path"));
                errors.push(FieldError::invalid(
                    format!("{field}.path"),
                    &value,
                    "must not contain '..'",
                ));
            }
            if name == "local" && volume["spec"]["nodeAffinity"]["required"].is_null() {
                let detail = "Local volume requires node affinity";
                errors.push(FieldError::required("spec.nodeAffinity", detail));
            }
        }
        "csi" => {
            if require("driver", errors) {
                fields::check_driver_name(text("driver"), &format!("{field}.driver"), errors);
            }
            require("volumeHandle", errors);
        }
        "nfs" => {
            require("server", errors);
            require("path", errors);
        }
        _ => {}
    }
}

fn validate_affinity(volume: &Value, errors: &mut Vec<FieldError>) {
    let affinity = &volume["spec"]["nodeAffinity"];
    if affinity.is_null() {
        return;
    }
    let field = "spec.nodeAffinity.required";
    if affinity["required"].is_null() {
        errors.push(FieldError::required(field, "must specify required node constraints"));
        return;
    }
    check::node_selector(&affinity["required"], field, errors);
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (before, after) = (sources(old), sources(new));
    if before != after {
        let difference = go_form::difference("PersistentVolumeSource", &before, &after);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.push(FieldError::forbidden("spec.persistentvolumesource", &detail));
    }
    if old["spec"]["volumeMode"] != new["spec"]["volumeMode"] {
        let value = &new["spec"]["volumeMode"];
        errors.push(FieldError::invalid("volumeMode", value, "field is immutable"));
    }
    let (before, after) = (&old["spec"]["nodeAffinity"], &new["spec"]["nodeAffinity"]);
    if !before.is_null() && with_stable_labels(before) != with_stable_labels(after) {
        let value = match after {
            Value::Null => "null".to_owned(),
            affinity => go_form::compact("VolumeNodeAffinity", affinity),
        };
        let detail = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError::invalid_text("nodeAffinity", &value, detail));
    }
    errors
}

/// Each key of a volume's affinity, with its path.
fn affinity_keys(affinity: &Value) -> impl Iterator<Item = (String, &str)> {
    let terms = meta::items(affinity, &["required", "nodeSelectorTerms"])
        .iter()
        .enumerate();
    terms.flat_map(|(term_index, term)| {
        let expressions = meta::items(term, &["matchExpressions"]).iter().enumerate();
        expressions.map(move |(index, expression)| {
            let field =
                format!("spec.nodeAffinity.required.nodeSelectorTerms[{term_index}].matchExpressions[{index}].key");
            (field, meta::text(expression, &["key"]))
        })
    })
}

fn stable_label(label: &str) -> Option<&'static str> {
    match label {
        names::ZONE_BETA => Some(names::ZONE),
        names::REGION_BETA => Some(names::REGION),
        _ => None,
    }
}

/// Warnings for the user about an otherwise valid volume.
fn warnings(volume: &Value) -> Vec<String> {
    affinity_keys(&volume["spec"]["nodeAffinity"])
        .filter_map(|(field, label)| {
            let stable = stable_label(label)?;
            Some(format!(
                "{field}: {label} is deprecated since v1.17; use \"{stable}\" instead"
            ))
        })
        .collect()
}

/// The deprecated topology labels may be replaced by the current ones.
fn with_stable_labels(affinity: &Value) -> Value {
    let mut affinity = affinity.clone();
    for term in meta::items_mut(&mut affinity, &["required", "nodeSelectorTerms"]) {
        for expression in meta::items_mut(term, &["matchExpressions"]) {
            if let Some(stable) = stable_label(meta::text(expression, &["key"])) {
                meta::set(expression, &["key"], json!(stable));
            }
        }
    }
    affinity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Features, Nothing, complete};
    use jiff::Timestamp;

    #[test]
    fn zone_labels_become_affinity_if_that_is_switched_on() {
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "v", "labels": {"failure-domain.beta.kubernetes.io/zone": "a__b"}},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
        let created = |zone_affinity: bool| {
            let mut admission = Admission::new(&Nothing, Timestamp::UNIX_EPOCH);
            admission.features = Features {
                zone_affinity,
                ..Features::default()
            };
            let mut volume = volume.clone();
            complete(&mut volume, &admission).unwrap();
            volume["spec"]["nodeAffinity"].clone()
        };
        assert_eq!(created(false), Value::Null);
        let expression =
            json!({"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]});
        let terms = json!([{"matchExpressions": [expression]}]);
        assert_eq!(created(true), json!({"required": {"nodeSelectorTerms": terms}}));
    }
}
