//! Roles and their bindings. They are stored and checked; nothing is decided by them.

use serde_json::Value;

use crate::error::FieldError;
use crate::go_form;
use crate::meta;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn default_binding(binding: &mut Value) {
    if binding["roleRef"].is_object() {
        meta::default(binding, &["roleRef", "apiGroup"], GROUP);
    }
    for subject in meta::items_mut(binding, &["subjects"]) {
        if matches!(meta::text(subject, &["kind"]), "User" | "Group") {
            meta::default(subject, &["apiGroup"], GROUP);
        }
    }
}

pub(super) fn validate(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match kind {
        "Role" | "ClusterRole" => {
            for (index, rule) in meta::items(object, &["rules"]).iter().enumerate() {
                validate_rule(rule, kind == "Role", &format!("rules[{index}]"), &mut errors);
            }
            let aggregation = &object["aggregationRule"];
            if aggregation.is_object() && meta::items(aggregation, &["clusterRoleSelectors"]).is_empty() {
                let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.push(FieldError::required("aggregationRule.clusterRoleSelectors", detail));
            }
        }
        _ => validate_binding(kind, object, &mut errors),
    }
    errors
}

fn validate_rule(rule: &Value, namespaced: bool, field: &str, errors: &mut Vec<FieldError>) {
    let has = |list: &str| !meta::items(rule, &[list]).is_empty();
    let mut require = |list: &str, detail: &str| {
        if !has(list) {
            errors.push(FieldError::required(format!("{field}.{list}"), detail));
        }
    };
    require("verbs", "verbs must contain at least one value");
    if !has("nonResourceURLs") {
        require("apiGroups", "resource rules must supply at least one api group");
        require("resources", "resource rules must supply at least one resource");
        return;
    }
    let detail = if namespaced {
        "namespaced rules cannot apply to non-resource URLs"
    } else if has("apiGroups") || has("resources") || has("resourceNames") {
        "rules cannot apply to both regular resources and non-resource URLs"
    } else {
        return;
    };
    let field = format!("{field}.nonResourceURLs");
    errors.push(FieldError::invalid(field, &rule["nonResourceURLs"], detail));
}

fn validate_binding(kind: &str, binding: &Value, errors: &mut Vec<FieldError>) {
    let role = &binding["roleRef"];
    check_group(role, "roleRef", GROUP, errors);
    let kinds: &[&str] = match kind {
        "RoleBinding" => &["Role", "ClusterRole"],
        _ => &["ClusterRole"],
    };
    let found = meta::text(role, &["kind"]);
    if !kinds.contains(&found) {
        errors.push(FieldError::not_supported("roleRef.kind", &found.into(), kinds));
    }
    let name = meta::text(role, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        check_name(name, "roleRef.name", errors);
    }
    for (index, subject) in meta::items(binding, &["subjects"]).iter().enumerate() {
        validate_subject(kind, subject, &format!("subjects[{index}]"), errors);
    }
}

fn check_group(object: &Value, field: &str, expected: &str, errors: &mut Vec<FieldError>) {
    let group = meta::text(object, &["apiGroup"]);
    if object.is_object() && !group.is_empty() && group != expected {
        let field = format!("{field}.apiGroup");
        errors.push(FieldError::not_supported(field, &group.into(), &[expected]));
    }
}

/// A name that can be a part of a path.
pub(super) fn check_name(name: &str, field: &str, errors: &mut Vec<FieldError>) {
    for part in ['/', '%'] {
        if name.contains(part) {
            let detail = format!("may not contain '{part}'");
            errors.push(FieldError::invalid(field, &name.into(), &detail));
        }
    }
    if matches!(name, "." | "..") {
        let detail = format!("may not be '{name}'");
        errors.push(FieldError::invalid(field, &name.into(), &detail));
    }
}

fn validate_subject(kind: &str, subject: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if meta::text(subject, &["name"]).is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    match meta::text(subject, &["kind"]) {
        "ServiceAccount" => {
            check_group(subject, field, "", errors);
            // In a namespace, an account without one is of that namespace.
            if kind == "ClusterRoleBinding" && meta::text(subject, &["namespace"]).is_empty() {
                errors.push(FieldError::required(format!("{field}.namespace"), ""));
            }
        }
        "User" | "Group" => check_group(subject, field, GROUP, errors),
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(
                format!("{field}.kind"),
                &other.into(),
                &kinds,
            ));
        }
    }
}

pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    if old["roleRef"] == new["roleRef"] {
        return Vec::new();
    }
    let value = go_form::compact("RoleRef", &new["roleRef"]);
    vec![FieldError::invalid_text("roleRef", &value, "cannot change roleRef")]
}
