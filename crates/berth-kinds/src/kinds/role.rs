//! Roles and cluster roles. They are stored and validated; nothing is authorized by them.

use serde_json::Value;

use crate::columns::NAME_AND_TIME;
use crate::error::FieldError;
use crate::kind::Kind;
use crate::meta;
use crate::metadata::NameRule;

/// The group of roles and their bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles of a namespace.
pub const KIND: Kind = Kind {
    name_rule: NameRule::PathSegment,
    columns: NAME_AND_TIME,
    validate: |role| validate(role, true),
    ..Kind::namespaced(GROUP, "v1", "Role", "roles")
};

/// Roles of the cluster.
pub const CLUSTER: Kind = Kind {
    name_rule: NameRule::PathSegment,
    columns: NAME_AND_TIME,
    validate: |role| validate(role, false),
    ..Kind::cluster(GROUP, "v1", "ClusterRole", "clusterroles")
};

fn validate(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in meta::items(role, &["rules"]).iter().enumerate() {
        validate_rule(rule, namespaced, &format!("rules[{index}]"), &mut errors);
    }
    let aggregation = &role["aggregationRule"];
    if aggregation.is_object() && meta::items(aggregation, &["clusterRoleSelectors"]).is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required("aggregationRule.clusterRoleSelectors", detail));
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
