//! What the kinds that create pods share: template, selector and strategy.

use serde_json::{Value, json};

use crate::columns::{Column, count, each_of, made, selecting};
use crate::error::FieldError;
use crate::fields;
use crate::meta;
use crate::pod_spec;
use crate::selector::LabelSelector;

/// Maximum number of pods of one workload: the maximum for a whole cluster that Kubernetes supports. More is a typo, and
/// would exhaust memory before it could be reported.
pub const PODS_MAX: u32 = 150_000;

/// The path of the template in most kinds.
pub(crate) const TEMPLATE: &[&str] = &["spec", "template"];

/// How many of the desired replicas are ready.
pub(crate) const READY: Column = made("Ready", |object, _| {
    let ready = count(&object["status"]["readyReplicas"]);
    json!(format!("{ready}/{}", desired(object)))
});
/// Names of the containers in the template.
pub(crate) const CONTAINERS: Column = each_of("Containers", &["spec", "template", "spec", "containers"], "name").wide();
/// Images of the containers in the template.
pub(crate) const IMAGES: Column = each_of("Images", &["spec", "template", "spec", "containers"], "image").wide();
/// The selector.
pub(crate) const SELECTOR: Column = selecting("Selector", &["spec", "selector"]).wide();

/// The desired number of replicas: 1 by default.
pub(crate) fn desired(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Fills in the fields of a spec, unless they are set.
pub(crate) fn default_spec(object: &mut Value, defaults: &Value) {
    for (field, value) in defaults.as_object().into_iter().flatten() {
        meta::default(object, &["spec", field], value.clone());
    }
}

/// Fills in the pod template at a path.
pub(crate) fn default_template(object: &mut Value, template: &[&str]) {
    if !meta::at(object, template).is_object() {
        return;
    }
    pod_spec::apply_defaults(object, &[template, &["spec"]].concat());
    // Older servers and `kubectl create --dry-run` write an empty time.
    let created = [template, &["metadata", "creationTimestamp"]].concat();
    if meta::at(object, &created).is_null() {
        meta::set(object, &created, Value::Null);
    }
}

/// Counts that are written even if they are zero.
pub(crate) fn default_status(object: &mut Value, counts: &[&str]) {
    meta::default(object, &["status"], json!({}));
    for count in counts {
        meta::default(object, &["status", count], json!(0));
    }
}

/// Fills in the missing parts of the update strategy.
pub(crate) fn default_strategy(object: &mut Value, field: &str, rolling: &Value) {
    if meta::text(object, &["spec", field, "type"]).is_empty() {
        meta::set(object, &["spec", field, "type"], "RollingUpdate".into());
    }
    if meta::text(object, &["spec", field, "type"]) == "RollingUpdate" {
        for (name, value) in rolling.as_object().into_iter().flatten() {
            meta::default(object, &["spec", field, "rollingUpdate", name], value.clone());
        }
    }
}

/// A strategy as Kubernetes prints it in an error.
pub(crate) fn shown_strategy(strategy: &Value) -> String {
    format!(
        "{{\"Type\":{},\"RollingUpdate\":{}}}",
        strategy["type"], strategy["rollingUpdate"]
    )
}

/// Validates the number of replicas.
pub(crate) fn check_replicas(object: &Value, errors: &mut Vec<FieldError>) {
    check_pods(&object["spec"]["replicas"], "spec.replicas", errors);
}

/// Validates a number of pods. Kubernetes accepts more than [`PODS_MAX`], and then never has them.
pub fn check_pods(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    fields::check_count(value, field, errors);
    if value.as_i64().is_some_and(|count| count > i64::from(PODS_MAX)) {
        let detail = format!("must be less than or equal to {PODS_MAX}, the most pods of a cluster");
        errors.push(FieldError::invalid(field, value, &detail));
    }
}

/// Validates the pod template at a path.
pub(crate) fn check_template(object: &Value, template: &[&str], errors: &mut Vec<FieldError>) {
    let spec = &meta::at(object, template)["spec"];
    errors.extend(pod_spec::validate(spec, &format!("{}.spec", template.join("."))));
}

/// The error for a template that the selector does not match.
pub(crate) fn not_selected(template: &Value) -> FieldError {
    let labels = meta::at(template, &["metadata", "labels"]);
    let detail = "`selector` does not match template `labels`";
    FieldError::invalid("spec.template.metadata.labels", labels, detail)
}

/// The selector must match the pods of the template. `kind` is the name of the kind in the error.
pub(crate) fn check_selector(object: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let (selector, template) = (&object["spec"]["selector"], &object["spec"]["template"]);
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
        errors.push(not_selected(template));
        return;
    }
    match LabelSelector::from_object(selector) {
        Ok(parsed) if parsed.is_empty() => {
            let detail = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid("spec.selector", selector, &detail));
        }
        Ok(parsed) if !parsed.matches(template) => errors.push(not_selected(template)),
        Ok(_) => {}
        Err(error) => {
            errors.push(FieldError::invalid("spec.selector", selector, &error.to_string()));
        }
    }
}

/// The selector is immutable.
pub(crate) fn check_fixed_selector(old: &Value, new: &Value) -> Vec<FieldError> {
    let value = &new["spec"]["selector"];
    if old["spec"]["selector"] == *value {
        return Vec::new();
    }
    vec![FieldError::invalid("spec.selector", value, "field is immutable")]
}
