//! Pod properties that controllers need, and pods from templates.

use crate::field;
use crate::status;
use berth_core::api;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Whether a pod has ended.
pub fn is_over(pod: &Value) -> bool {
    matches!(field::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a pod counts for a controller: neither finished nor being deleted.
pub(super) fn is_active(pod: &Value) -> bool {
    !is_over(pod) && !field::is_deleting(pod)
}

/// Whether a pod runs and is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    field::text(pod, "/status/phase") == "Running" && status::holds(pod, "Ready")
}

/// Since when a pod has been ready.
pub(super) fn ready_since(pod: &Value) -> Option<Timestamp> {
    let condition = status::find(pod, "Ready").filter(|_| is_ready(pod))?;
    field::time(condition, "/lastTransitionTime")
}

/// When a pod is available: ready for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It is.
    Now,
    /// It will be then, if it stays ready.
    From(Timestamp),
    /// It is not ready.
    Never,
}

pub(super) fn availability(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> Availability {
    if !is_active(pod) || !is_ready(pod) {
        return Availability::Never;
    }
    if min_ready_seconds == 0 {
        return Availability::Now;
    }
    match ready_since(pod).map(|since| field::after(since, min_ready_seconds)) {
        Some(then) if then > now => Availability::From(then),
        Some(_) | None => Availability::Now,
    }
}

pub(super) fn is_available(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> bool {
    availability(pod, min_ready_seconds, now) == Availability::Now
}

/// A label selector for a workload's pods. It reads labels in place: a step checks every pod of its workload, and
/// interning their labels first would cost more than everything else.
pub struct Selector(Option<api::LabelSelector>);

impl Selector {
    /// The selector of a workload. An unreadable one selects nothing.
    pub fn of(workload: &Value) -> Self {
        if field::kind(workload) != "ReplicationController" {
            return Self::at(workload, "/spec/selector");
        }
        // It has plain labels; if empty, those of its template.
        let labels = field::typed(workload, "/spec/selector");
        let labels = labels.or_else(|| field::typed(workload, "/spec/template/metadata/labels"));
        Self(labels.map(|match_labels| api::LabelSelector {
            match_labels,
            ..api::LabelSelector::default()
        }))
    }

    /// The selector at a path of any object.
    pub fn at(object: &Value, path: &str) -> Self {
        Self(field::typed(object, path))
    }

    /// Whether an object has the labels.
    pub fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let meets = |requirement: &api::Requirement| {
            let found = labels[&requirement.key].as_str();
            let is_listed = found.is_some_and(|found| requirement.values.iter().any(|value| value == found));
            match requirement.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        };
        self.0.as_ref().is_some_and(|selector| {
            selector.match_labels.iter().all(|(key, value)| labels[key] == **value)
                && selector.match_expressions.iter().all(meets)
        })
    }
}

/// A pod from a template, in the namespace of its owner and controlled by it. It has no name yet.
pub(super) fn template_pod(owner: &Value, template: &Value) -> Value {
    let mut metadata = Map::new();
    for part in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][part].is_null() {
            metadata.insert(part.to_owned(), template["metadata"][part].clone());
        }
    }
    metadata.insert("namespace".to_owned(), owner["metadata"]["namespace"].clone());
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([field::controller_reference(owner)]),
    );
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// Names a pod after its owner, with a generated suffix.
pub(super) fn name_pod(pod: &mut Value, base: &str, name: &str) {
    field::set(pod, &["metadata", "generateName"], json!(base));
    field::set(pod, &["metadata", "name"], json!(name));
}
