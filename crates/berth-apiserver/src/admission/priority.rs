//! Priorities of pods: the class's name becomes a number.

use serde_json::{Value, json};

use super::fields;
use crate::error::{ApiError, FieldError};
use crate::meta;
use crate::store::PageQuery;
use crate::write::Change;

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
/// The largest value that users may give; the system's own classes are above.
const USER_VALUE_MAX: i64 = 1_000_000_000;

/// A class that every cluster has.
pub(crate) struct SystemClass {
    pub(crate) name: &'static str,
    value: i64,
    description: &'static str,
}

impl SystemClass {
    pub(crate) fn object(&self) -> Value {
        json!({"metadata": {"name": self.name}, "value": self.value, "description": self.description})
    }
}

/// The classes that exist without anybody creating them.
pub(crate) fn system_classes() -> [SystemClass; 2] {
    [
        SystemClass {
            name: "system-cluster-critical",
            value: 2_000_000_000,
            description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        },
        SystemClass {
            name: "system-node-critical",
            value: 2_000_001_000,
            description: "Used for system critical pods that must not be moved from their current node.",
        },
    ]
}

fn system_class(name: &str) -> Option<Value> {
    let class = system_classes().into_iter().find(|class| class.name == name)?;
    Some(class.object())
}

pub(super) fn admit_pod(change: &Change<'_>, pod: &mut Value) -> Result<(), ApiError> {
    let name = meta::text(pod, &["spec", "priorityClassName"]);
    let class = if name.is_empty() {
        global_default(change)
    } else {
        let stored = change.api.store.latest(CLASSES, name).map(|object| object.value());
        let found = stored.or_else(|| system_class(name));
        if found.is_none() && change.restores && pod["spec"]["priority"].is_i64() {
            // Files may hold a pod without its class: what the class said is in the pod.
            return Ok(());
        }
        if found.is_none() {
            let why = format!("no PriorityClass with name {name} was found");
            return Err(ApiError::forbidden(&change.served.resource, &change.name, &why));
        }
        found
    };
    let value = class.as_ref().map_or(0, |class| class["value"].as_i64().unwrap_or(0));
    let given = pod["spec"]["priority"].as_i64();
    if change.restores && given.is_some() {
        // A class may have changed since: the pod keeps the priority that it got.
        return Ok(());
    }
    if given.is_some_and(|given| given != value) {
        let why = format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name",
            given.unwrap_or_default()
        );
        return Err(ApiError::forbidden(&change.served.resource, &change.name, &why));
    }
    meta::set(pod, &["spec", "priority"], value.into());
    if let Some(class) = &class {
        meta::set(pod, &["spec", "priorityClassName"], meta::name(class).into());
    }
    let policy = class.and_then(|class| class["preemptionPolicy"].as_str().map(str::to_owned));
    meta::default(
        pod,
        &["spec", "preemptionPolicy"],
        policy.unwrap_or("PreemptLowerPriority".into()),
    );
    Ok(())
}

fn global_default(change: &Change<'_>) -> Option<Value> {
    let all = PageQuery::all("");
    let page = change.api.store.list(CLASSES, &all).ok()?;
    let defaults = page
        .objects
        .iter()
        .map(|object| object.value())
        .filter(|c| c["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64())
}

pub(super) fn validate_class(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let value = class["value"].as_i64().unwrap_or(0);
    let name = meta::name(class);
    if name.starts_with("system-") && system_class(name).is_none_or(|known| known["value"] != value) {
        let detail = "priority class names with 'system-' prefix are reserved for system use only";
        errors.push(FieldError::forbidden("metadata.name", detail));
    } else if !name.starts_with("system-") && value > USER_VALUE_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
        errors.push(FieldError::forbidden("value", &detail));
    }
    let policies = ["PreemptLowerPriority", "Never"];
    fields::check_one_of(class, &["preemptionPolicy"], &policies, &mut errors);
    errors
}

pub(super) fn validate_class_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["value", "preemptionPolicy"] {
        if old[field] != new[field] {
            errors.push(FieldError::forbidden(field, "may not be changed in an update."));
        }
    }
    errors
}
