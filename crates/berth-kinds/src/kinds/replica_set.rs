//! Replica sets.

use serde_json::{Value, json};

use crate::columns::{AGE, Column, NAME, integer, made};
use crate::error::FieldError;
use crate::kind::{Generation, Kind, SCALE, STATUS, SelectableField};
use crate::workload::{self, CONTAINERS, IMAGES, SELECTOR, TEMPLATE};

/// Replica sets.
pub const KIND: Kind = Kind {
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[SCALE, STATUS],
    generation: Generation::Counted,
    columns: COLUMNS,
    selectable: &[SelectableField::new("status.replicas").unset("0")],
    defaults,
    validate,
    validate_update: workload::check_fixed_selector,
    ..Kind::namespaced("apps", "v1", "ReplicaSet", "replicasets")
};

/// Columns of replica sets and replication controllers.
pub(super) const COLUMNS: &[Column] = &[
    NAME,
    made("Desired", |object, _| json!(workload::desired(object))).of_type("integer"),
    integer("Current", &["status", "replicas"]),
    integer("Ready", &["status", "readyReplicas"]),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn defaults(set: &mut Value) {
    workload::default_template(set, TEMPLATE);
    workload::default_spec(set, &json!({"replicas": 1}));
    workload::default_status(set, &["replicas"]);
}

fn validate(set: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    workload::check_replicas(set, &mut errors);
    workload::check_selector(set, "deployment", &mut errors);
    workload::check_template(set, TEMPLATE, &mut errors);
    errors
}
