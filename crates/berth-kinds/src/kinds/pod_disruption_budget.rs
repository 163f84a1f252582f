//! Pod disruption budgets.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME, integer, made};
use crate::error::FieldError;
use crate::fields;
use crate::go_form;
use crate::kind::{Generation, Kind, STATUS, Writes};
use crate::meta;
use crate::selector::check;

/// Pod disruption budgets.
pub const KIND: Kind = Kind {
    short_names: &["pdb"],
    subresources: &[STATUS],
    generation: Generation::Counted,
    writes: Writes {
        put_needs_version: true,
        ..Writes::USUAL
    },
    columns: &[
        NAME,
        made("Min Available", |budget, _| {
            json!(limit(&budget["spec"]["minAvailable"]))
        }),
        made("Max Unavailable", |budget, _| {
            json!(limit(&budget["spec"]["maxUnavailable"]))
        }),
        integer("Allowed Disruptions", &["status", "disruptionsAllowed"]),
        AGE,
    ],
    defaults,
    validate,
    ..Kind::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
};

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

fn defaults(budget: &mut Value) {
    for field in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
        meta::default(budget, &["status", field], json!(0));
    }
}

fn validate(budget: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &budget["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let value = go_form::compact("PodDisruptionBudgetSpec", spec);
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid_text("spec", &value, detail));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        check_share(&spec[field], &format!("spec.{field}"), &mut errors);
    }
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    let policy = ["spec", "unhealthyPodEvictionPolicy"];
    fields::check_one_of(budget, &policy, &policies, &mut errors);
    check::label_selector(&spec["selector"], "spec.selector", &mut errors);
    errors
}

/// A number of pods, or a percentage.
fn check_share(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    fields::check_count(value, field, errors);
    let Some(text) = value.as_str() else {
        return;
    };
    let number = text.strip_suffix('%').filter(|number| !number.is_empty());
    match number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
        None => errors.push(FieldError::invalid(field, value, PERCENT)),
        Some(number) if number.parse::<u32>().is_ok_and(|percent| percent <= 100) => {}
        Some(_) => errors.push(FieldError::invalid(field, value, "must not be greater than 100%")),
    }
}

fn limit(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "N/A".to_owned(),
    }
}
