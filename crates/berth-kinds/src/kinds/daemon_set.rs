//! Daemon sets.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, integer, labelled};
use crate::error::FieldError;
use crate::kind::{Generation, Kind, STATUS};
use crate::meta;
use crate::workload::{self, CONTAINERS, IMAGES, SELECTOR, TEMPLATE};

/// Daemon sets.
pub const KIND: Kind = Kind {
    short_names: &["ds"],
    categories: &["all"],
    subresources: &[STATUS],
    generation: Generation::Counted,
    columns: &[
        NAME,
        integer("Desired", &["status", "desiredNumberScheduled"]),
        integer("Current", &["status", "currentNumberScheduled"]),
        integer("Ready", &["status", "numberReady"]),
        integer("Up-to-date", &["status", "updatedNumberScheduled"]),
        integer("Available", &["status", "numberAvailable"]),
        labelled("Node Selector", &["spec", "template", "spec", "nodeSelector"]),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    defaults,
    validate,
    validate_update: workload::check_fixed_selector,
    ..Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets")
};

fn defaults(set: &mut Value) {
    workload::default_template(set, TEMPLATE);
    workload::default_spec(set, &json!({"revisionHistoryLimit": 10}));
    workload::default_strategy(set, "updateStrategy", &json!({"maxSurge": 0, "maxUnavailable": 1}));
    let generation = ["metadata", "annotations", "deprecated.daemonset.template.generation"];
    meta::default(set, &generation, "1");
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    ];
    workload::default_status(set, &counts);
}

fn validate(set: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let strategy = &set["spec"]["updateStrategy"];
    let supported = ["RollingUpdate", "OnDelete"];
    if !supported.contains(&meta::text(strategy, &["type"])) {
        let shown = workload::shown_strategy(strategy);
        errors.push(FieldError::not_supported_text(
            "spec.updateStrategy",
            &shown,
            &supported,
        ));
    }
    if set["spec"]["selector"].is_null() {
        // Kubernetes reports only the consequence.
        errors.push(workload::not_selected(&set["spec"]["template"]));
    } else {
        workload::check_selector(set, "daemonset", &mut errors);
    }
    workload::check_template(set, TEMPLATE, &mut errors);
    errors
}
