//! Replication controllers.

use serde_json::{Value, json};

use super::replica_set;
use crate::error::FieldError;
use crate::kind::{Generation, Kind, SCALE, STATUS};
use crate::meta;
use crate::selector::LabelSelector;
use crate::workload::{self, TEMPLATE};

/// Replication controllers.
pub const KIND: Kind = Kind {
    short_names: &["rc"],
    categories: &["all"],
    subresources: &[SCALE, STATUS],
    generation: Generation::Counted,
    columns: replica_set::COLUMNS,
    defaults,
    validate,
    ..Kind::namespaced("", "v1", "ReplicationController", "replicationcontrollers")
};

fn defaults(controller: &mut Value) {
    workload::default_template(controller, TEMPLATE);
    workload::default_spec(controller, &json!({"replicas": 1}));
    // Without a selector, it selects the pods of its template.
    let labels = meta::at(controller, &["spec", "template", "metadata", "labels"]).clone();
    meta::default(controller, &["spec", "selector"], labels.clone());
    meta::default(controller, &["metadata", "labels"], labels);
    workload::default_status(controller, &["replicas"]);
}

fn validate(controller: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    workload::check_replicas(controller, &mut errors);
    check_selector(controller, &mut errors);
    workload::check_template(controller, TEMPLATE, &mut errors);
    errors
}

/// The selector is a plain map.
fn check_selector(controller: &Value, errors: &mut Vec<FieldError>) {
    let (selector, template) = (&controller["spec"]["selector"], &controller["spec"]["template"]);
    if selector.as_object().is_none_or(|selector| selector.is_empty()) {
        errors.push(FieldError::required("spec.selector", ""));
    } else if !LabelSelector::from_object(&json!({"matchLabels": selector})).is_ok_and(|s| s.matches(template)) {
        errors.push(workload::not_selected(template));
    }
}
