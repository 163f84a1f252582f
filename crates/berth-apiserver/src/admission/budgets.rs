//! PodDisruptionBudgets.

use serde_json::{Value, json};

use super::{fields, selectors};
use crate::error::FieldError;
use crate::go_form;
use crate::meta;

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

pub(super) fn default_budget(budget: &mut Value) {
    for field in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
        meta::default(budget, &["status", field], json!(0));
    }
}

pub(super) fn validate(budget: &Value) -> Vec<FieldError> {
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
    selectors::check_label_selector(&spec["selector"], "spec.selector", &mut errors);
    errors
}

/// A number of pods, or a share of them.
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
