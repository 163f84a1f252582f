//! Deployments.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, integer};
use crate::error::FieldError;
use crate::kind::{Generation, Kind, SCALE, STATUS};
use crate::meta;
use crate::workload::{self, CONTAINERS, IMAGES, READY, SELECTOR, TEMPLATE};

/// Deployments.
pub const KIND: Kind = Kind {
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[SCALE, STATUS],
    generation: Generation::Counted,
    columns: &[
        NAME,
        READY,
        integer("Up-to-date", &["status", "updatedReplicas"]).of_type("string"),
        integer("Available", &["status", "availableReplicas"]).of_type("string"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    defaults,
    validate,
    validate_update: workload::check_fixed_selector,
    ..Kind::namespaced("apps", "v1", "Deployment", "deployments")
};

fn defaults(deployment: &mut Value) {
    workload::default_template(deployment, TEMPLATE);
    let spec = json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600});
    workload::default_spec(deployment, &spec);
    let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
    workload::default_strategy(deployment, "strategy", &rolling);
    workload::default_status(deployment, &[]);
}

fn validate(deployment: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    workload::check_replicas(deployment, &mut errors);
    check_strategy(&deployment["spec"]["strategy"], &mut errors);
    workload::check_selector(deployment, "deployment", &mut errors);
    workload::check_template(deployment, TEMPLATE, &mut errors);
    errors
}

fn check_strategy(strategy: &Value, errors: &mut Vec<FieldError>) {
    match meta::text(strategy, &["type"]) {
        "Recreate" if !strategy["rollingUpdate"].is_null() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
        }
        "Recreate" | "RollingUpdate" => {}
        _ => {
            let shown = workload::shown_strategy(strategy);
            let supported = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported_text("spec.strategy", &shown, &supported));
        }
    }
}
