//! Validates node selectors and label selectors in objects.

use serde_json::Value;

use crate::error::FieldError;
use crate::fields;
use crate::meta;
use crate::metadata::check_qualified_name;

/// A node selector must have terms, and its requirements must be valid.
pub(crate) fn node_selector(selector: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let terms = meta::items(selector, &["nodeSelectorTerms"]);
    let field = format!("{field}.nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(
            &field,
            "must have at least one node selector term",
        ));
    }
    for (index, term) in terms.iter().enumerate() {
        node_selector_term(term, &format!("{field}[{index}]"), errors);
    }
}

pub(crate) fn node_selector_term(term: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (index, expression) in meta::items(term, &["matchExpressions"]).iter().enumerate() {
        check_node_requirement(expression, &format!("{field}.matchExpressions[{index}]"), errors);
    }
    for (index, requirement) in meta::items(term, &["matchFields"]).iter().enumerate() {
        check_field_requirement(requirement, &format!("{field}.matchFields[{index}]"), errors);
    }
}

fn check_node_requirement(requirement: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let count = meta::items(requirement, &["values"]).len();
    let values = format!("{field}.values");
    match meta::text(requirement, &["operator"]) {
        "In" | "NotIn" if count == 0 => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(values, detail));
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(values, detail));
        }
        "Gt" | "Lt" if count != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(values, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(not_an_operator(field, other)),
    }
    check_qualified_name(meta::text(requirement, &["key"]), &format!("{field}.key"), errors);
}

fn not_an_operator(field: &str, operator: &str) -> FieldError {
    let detail = "not a valid selector operator";
    FieldError::invalid(format!("{field}.operator"), &operator.into(), detail)
}

/// `metadata.name` is the only field that nodes can be selected by.
fn check_field_requirement(requirement: &Value, field: &str, errors: &mut Vec<FieldError>) {
    match meta::text(requirement, &["operator"]) {
        "In" | "NotIn" => {
            if meta::items(requirement, &["values"]).len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(FieldError::required(format!("{field}.values"), detail));
            }
        }
        other => errors.push(not_an_operator(field, other)),
    }
    let key = meta::text(requirement, &["key"]);
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        errors.push(FieldError::invalid(format!("{field}.key"), &key.into(), detail));
    }
}

/// A label selector, if there is one.
pub(crate) fn label_selector(selector: &Value, field: &str, errors: &mut Vec<FieldError>) {
    fields::check_labels(&selector["matchLabels"], &format!("{field}.matchLabels"), errors);
    for (index, requirement) in meta::items(selector, &["matchExpressions"]).iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let count = meta::items(requirement, &["values"]).len();
        match meta::text(requirement, &["operator"]) {
            "In" | "NotIn" if count == 0 => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{field}.values"), detail));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{field}.values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(not_an_operator(&field, other)),
        }
        check_qualified_name(meta::text(requirement, &["key"]), &format!("{field}.key"), errors);
    }
}
