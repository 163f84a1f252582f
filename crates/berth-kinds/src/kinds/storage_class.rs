//! Storage classes.

use berth_core::names;
use serde_json::{Value, json};

use crate::admission::Lookup;
use crate::columns::{AGE, flag, made, text};
use crate::error::FieldError;
use crate::fields;
use crate::kind::Kind;
use crate::meta;
use crate::metadata::check_qualified_name;

/// Storage classes.
pub const KIND: Kind = Kind {
    short_names: &["sc"],
    columns: &[
        made("Name", |class, _| json!(shown_name(class))),
        text("Provisioner", &["provisioner"], ""),
        text("ReclaimPolicy", &["reclaimPolicy"], "Delete"),
        text("VolumeBindingMode", &["volumeBindingMode"], "Immediate"),
        flag("AllowVolumeExpansion", &["allowVolumeExpansion"], false).of_type("string"),
        AGE,
    ],
    defaults,
    validate,
    validate_update: |old, new| {
        let fixed = ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"];
        fields::check_fixed(old, new, &fixed)
    },
    ..Kind::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses")
};

fn defaults(class: &mut Value) {
    meta::default(class, &["reclaimPolicy"], "Delete");
    // If both keys are set, both are kept, and refused if they differ.
    let older = class[OLDER_MODE].clone();
    meta::default(class, &["volumeBindingMode"], older.clone());
    if class["volumeBindingMode"] == older {
        meta::set(class, &[OLDER_MODE], Value::Null);
    }
    meta::default(class, &["volumeBindingMode"], "Immediate");
}

/// The name of `volumeBindingMode` in KEP-490 (End to End Zonal Example).
const OLDER_MODE: &str = "bindingMode";

fn is_default(class: &Value) -> bool {
    [names::IS_DEFAULT_CLASS, names::IS_DEFAULT_CLASS_BETA]
        .iter()
        .any(|key| meta::annotation(class, key) == "true")
}

/// The class of claims that set none: the newest of several, then the first by name.
pub(crate) fn default_class(objects: &dyn Lookup) -> Option<String> {
    let defaults = objects.all(&KIND).filter(|class| is_default(class));
    let rank = |class: &Value| {
        let created = meta::text(class, &["metadata", "creationTimestamp"]);
        (created.to_owned(), std::cmp::Reverse(meta::name(class).to_owned()))
    };
    let newest = defaults.max_by_key(|class| rank(class))?;
    Some(meta::name(&newest).to_owned())
}

fn shown_name(class: &Value) -> String {
    let default = if is_default(class) { " (default)" } else { "" };
    format!("{}{default}", meta::name(class))
}

fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match meta::text(class, &["provisioner"]) {
        "" => errors.push(FieldError::required("provisioner", "")),
        name => check_qualified_name(&name.to_lowercase(), "provisioner", &mut errors),
    }
    if class["parameters"].get("").is_some() {
        let detail = "field can not be empty.";
        errors.push(FieldError::invalid("parameters", &"".into(), detail));
    }
    let policies = ["Delete", "Retain"];
    fields::check_one_of(class, &["reclaimPolicy"], &policies, &mut errors);
    let modes = ["Immediate", "WaitForFirstConsumer"];
    fields::check_one_of(class, &["volumeBindingMode"], &modes, &mut errors);
    if !class[OLDER_MODE].is_null() {
        let detail = "is the older name of volumeBindingMode, which says otherwise; keep one of them";
        errors.push(FieldError::invalid(OLDER_MODE, &class[OLDER_MODE], detail));
    }
    validate_topologies(class, &mut errors);
    fields::check_readable(class, &mut errors);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_named_in_one_way() {
        let zone = |values: Value| json!([{"matchLabelExpressions": [{"key": names::ZONE, "values": values}]}]);
        let class = |provisioner: &str, parameters: Value, allowed: Value| {
            let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "z"},
                "provisioner": provisioner, "parameters": parameters, "allowedTopologies": allowed});
            let errors = validate(&class);
            errors.into_iter().map(|error| error.detail).collect::<Vec<_>>()
        };
        let gce = "kubernetes.io/gce-pd";
        assert_eq!(class(gce, json!({"zone": "a"}), json!([])), [""; 0]);
        assert_eq!(
            class("disk.example.com", json!({"zone": "a"}), zone(json!(["b"]))),
            [""; 0]
        );
        let both = class(gce, json!({"zone": "a"}), zone(json!(["b"])));
        assert!(both[0].contains("parameter \"zone\" names zones"), "{both:?}");
        let twice = class(gce, json!({"zone": "a", "zones": "b"}), json!([]));
        assert!(twice[0].contains("\"zone\" and \"zones\""), "{twice:?}");
    }
}
