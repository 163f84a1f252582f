//! Validates workloads that create pods, as an API server does before it accepts them.
//!
//! Workloads in files are unchecked, and one that does not select its own pods would create them without end. Their pods
//! are validated by the same decoder that reads pods, so that an error has the same wording everywhere. The fields of a
//! workload that decisions read are decoded elsewhere; nothing is changed here.

use berth_core::api::{DecodeError, LabelSelector, Object, StringMap};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use berth_kinds::workload::PODS_MAX;

/// The kinds that create pods or keep their revisions, with their groups.
const KINDS: [(&str, &str); 7] = [
    ("ControllerRevision", "apps"),
    ("DaemonSet", "apps"),
    ("Deployment", "apps"),
    ("Job", "batch"),
    ("ReplicaSet", "apps"),
    ("ReplicationController", ""),
    ("StatefulSet", "apps"),
];

/// Groups in which these kinds are, were, or are used by mistake. In other groups the same name has another meaning.
const GROUPS: [&str; 4] = ["", "apps", "batch", "extensions"];

/// What is wrong with a workload.
#[derive(Debug)]
pub struct Wrong {
    /// The path of the field.
    pub field: String,
    /// What was found and what was expected.
    pub problem: String,
}

impl Wrong {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// An error in a part of a workload that was decoded as a separate object.
    fn below(part: &str, error: DecodeError) -> Self {
        match error {
            DecodeError::Field { field, problem, .. } => Self::new(format!("{part}{field}"), problem),
            DecodeError::NotAnObject { .. } => Self::new(part.trim_end_matches('.'), error.to_string()),
        }
    }
}

/// Whether an object is a workload, by kind and API version.
pub fn is_workload(object: &Value) -> bool {
    let group = group(object);
    kind_of(object).is_some_and(|(_, expected)| expected == group)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn group(object: &Value) -> &str {
    text(object, "apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group)
}

fn kind_of(object: &Value) -> Option<(&'static str, &'static str)> {
    let kind = text(object, "kind");
    KINDS.iter().find(|(known, _)| *known == kind).copied()
}

/// Validates an object if it is, or was meant to be, a workload.
pub fn workload(object: &Value) -> Result<(), Wrong> {
    let Some((kind, expected)) = kind_of(object).filter(|_| GROUPS.contains(&group(object))) else {
        return Ok(());
    };
    check_version(object, expected)?;
    if kind == "ControllerRevision" {
        return Ok(());
    }
    let spec = &object["spec"];
    if !spec.is_object() {
        return Err(Wrong::new(
            "spec",
            "is missing; expected `selector` and `template`, as kubectl prints them",
        ));
    }
    check_selector(kind, object)?;
    for count in ["replicas", "parallelism", "completions"] {
        check_count(count, &spec[count], PODS_MAX)?;
    }
    check_count("minReadySeconds", &spec["minReadySeconds"], i32::MAX.unsigned_abs())?;
    check_template(kind, object)?;
    let templates = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    for (index, template) in templates.enumerate() {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": template["metadata"], "spec": template["spec"]});
        let part = format!("spec.volumeClaimTemplates[{index}].");
        Object::decode(&claim).map_err(|error| Wrong::below(&part, error))?;
    }
    check_labels(kind, spec)
}

fn check_version(object: &Value, group: &str) -> Result<(), Wrong> {
    let expected = match group {
        "" => "v1".to_owned(),
        group => format!("{group}/v1"),
    };
    let found = text(object, "apiVersion");
    if found == expected {
        return Ok(());
    }
    let problem = format!("found {found:?}, expected {expected:?}");
    Err(Wrong::new("apiVersion", problem))
}

/// Validates metadata and selector, as for any workload.
fn check_selector(kind: &str, object: &Value) -> Result<(), Wrong> {
    let selector = &object["spec"]["selector"];
    let (api_version, read_as) = match kind {
        "ReplicationController" => ("v1", kind),
        _ => ("apps/v1", "ReplicaSet"),
    };
    let read = json!({"apiVersion": api_version, "kind": read_as, "metadata": object["metadata"],
        "spec": {"selector": selector}});
    Object::decode(&read).map_err(|error| Wrong::below("", error))?;
    let is_needed = !matches!(kind, "Job" | "ReplicationController");
    if is_needed && selector.as_object().is_none_or(Map::is_empty) {
        let problem = "is missing; expected the labels of its pods, such as `matchLabels: {app: web}`";
        return Err(Wrong::new("spec.selector", problem));
    }
    Ok(())
}

fn check_count(name: &str, found: &Value, max: u32) -> Result<(), Wrong> {
    let is_count = found
        .as_i64()
        .is_some_and(|count| (0..=i64::from(max)).contains(&count));
    if found.is_null() || is_count {
        return Ok(());
    }
    let problem = match found {
        Value::String(text) if text.parse::<u32>().is_ok() => {
            format!("found the text {found}, expected a number; take the quotes away")
        }
        found => format!("found {found}, expected a whole number from 0 to {max}"),
    };
    Err(Wrong::new(format!("spec.{name}"), problem))
}

fn check_template(kind: &str, object: &Value) -> Result<(), Wrong> {
    let template = &object["spec"]["template"];
    if template.is_null() {
        if kind == "ReplicationController" {
            // A snapshot keeps only the selector, which is all that decisions read.
            return Ok(());
        }
        return Err(Wrong::new("spec.template", "is missing; expected the pod to make"));
    }
    let mut metadata = template["metadata"].clone();
    if metadata.is_null() {
        metadata = Value::Object(Map::new());
    }
    if let Value::Object(metadata) = &mut metadata {
        // The names of its pods are derived from its own.
        metadata.insert("name".to_owned(), object["metadata"]["name"].clone());
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
    Object::decode(&pod).map_err(|error| Wrong::below("spec.template.", error))?;
    Ok(())
}

/// A workload must select the pods that it creates, or it would never have enough of them.
fn check_labels(kind: &str, spec: &Value) -> Result<(), Wrong> {
    let selector = match kind {
        "ReplicationController" => json!({"matchLabels": spec["selector"]}),
        _ => spec["selector"].clone(),
    };
    if spec["selector"].is_null() || spec["template"].is_null() {
        return Ok(());
    }
    let labels = spec.pointer("/template/metadata/labels");
    let labels = labels.and_then(|labels| StringMap::deserialize(labels).ok());
    let labels = labels.unwrap_or_default();
    // An unreadable selector has already been refused.
    let selector = LabelSelector::deserialize(&selector).unwrap_or_default();
    if selector.matches(&labels) {
        return Ok(());
    }
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let found = match pairs.as_slice() {
        [] => "which has none".to_owned(),
        pairs => format!("{{{}}}", pairs.join(", ")),
    };
    let problem = format!(
        "does not match the labels of spec.template, {found}; give the template the labels that the selector asks for"
    );
    Err(Wrong::new("spec.selector", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(kind: &str, api_version: &str, spec: Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec})
    }

    fn spec(change: impl Fn(&mut Value)) -> Value {
        let mut spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "w"}},
            "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}});
        change(&mut spec);
        spec
    }

    fn said(object: &Value) -> String {
        match super::workload(object) {
            Ok(()) => String::new(),
            Err(wrong) => format!("{}: {}", wrong.field, wrong.problem),
        }
    }

    #[test]
    fn what_an_api_server_takes_is_taken() {
        for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
            assert_eq!(said(&workload(kind, "apps/v1", spec(|_| {}))), "");
        }
        let alone = spec(|spec| spec["selector"] = Value::Null);
        assert_eq!(said(&workload("Job", "batch/v1", alone.clone())), "");
        assert_eq!(said(&workload("ReplicationController", "v1", alone)), "");
        let plain = spec(|spec| spec["selector"] = json!({"app": "w"}));
        assert_eq!(said(&workload("ReplicationController", "v1", plain)), "");
        let kept = json!({"selector": {"app": "w"}});
        assert_eq!(said(&workload("ReplicationController", "v1", kept)), "");
        // Other kinds with the same name.
        let other = workload("Job", "batch.volcano.sh/v1alpha1", json!({"tasks": []}));
        assert_eq!(said(&other), "");
        assert!(!is_workload(&other));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field() {
        let deployment = |change: fn(&mut Value)| workload("Deployment", "apps/v1", spec(change));
        for (object, expected) in [
            (
                deployment(|spec| spec["template"]["metadata"]["labels"]["app"] = json!("other")),
                "spec.selector: does not match the labels of spec.template, {app: other}; give",
            ),
            (
                deployment(|spec| spec["template"]["metadata"] = Value::Null),
                "spec.selector: does not match the labels of spec.template, which has none",
            ),
            (
                deployment(|spec| spec["template"]["metadata"]["labels"]["app"] = json!(1)),
                "spec.template.metadata.labels.app: invalid type: integer `1`, expected a string",
            ),
            (
                deployment(|spec| spec["selector"]["matchLabels"]["app"] = json!(1)),
                "spec.selector.matchLabels.app: invalid type: integer `1`, expected a string",
            ),
            (
                deployment(|spec| spec["selector"] = Value::Null),
                "spec.selector: is missing",
            ),
            (
                deployment(|spec| spec["selector"] = json!({})),
                "spec.selector: is missing",
            ),
            (
                deployment(|spec| spec["template"] = Value::Null),
                "spec.template: is missing",
            ),
            (deployment(|spec| *spec = Value::Null), "spec: is missing"),
            (
                deployment(|spec| spec["replicas"] = json!(-1)),
                "spec.replicas: found -1, expected a whole number",
            ),
            (
                deployment(|spec| spec["replicas"] = json!(1_000_000)),
                "spec.replicas: found 1000000, expected a whole number from 0 to 150000",
            ),
            (
                deployment(|spec| spec["replicas"] = json!("3")),
                "spec.replicas: found the text \"3\", expected a number; take the quotes away",
            ),
            (
                deployment(|spec| {
                    spec["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1x"}});
                }),
                "spec.template.spec.containers[0].resources.requests.cpu: ",
            ),
            (
                deployment(|spec| spec["template"]["spec"]["containers"] = json!({})),
                "spec.template.spec.containers: invalid type: map",
            ),
            (
                workload(
                    "StatefulSet",
                    "apps/v1",
                    spec(|spec| {
                        spec["volumeClaimTemplates"] =
                            json!([{"metadata": {"name": "d"}, "spec": {"accessModes": ["Once"]}}]);
                    }),
                ),
                "spec.volumeClaimTemplates[0].spec.accessModes[0]: found \"Once\"",
            ),
            (
                workload("Deployment", "extensions/v1beta1", spec(|_| {})),
                "apiVersion: found \"extensions/v1beta1\", expected \"apps/v1\"",
            ),
            (
                workload("Deployment", "v1", spec(|_| {})),
                "apiVersion: found \"v1\", expected \"apps/v1\"",
            ),
        ] {
            let said = said(&object);
            assert!(said.starts_with(expected), "said {said}\nnot  {expected}");
        }
    }
}
