//! Role bindings and cluster role bindings. They are stored and validated; nothing is authorized by them.

use serde_json::{Value, json};

use super::role::GROUP;
use crate::columns::{AGE, Column, NAME, made, text_of};
use crate::error::FieldError;
use crate::go_form;
use crate::kind::Kind;
use crate::meta;
use crate::metadata::NameRule;

/// Bindings of roles in a namespace.
pub const KIND: Kind = Kind {
    name_rule: NameRule::PathSegment,
    columns: COLUMNS,
    defaults,
    validate: |binding| validate(binding, &["Role", "ClusterRole"]),
    validate_update,
    ..Kind::namespaced(GROUP, "v1", "RoleBinding", "rolebindings")
};

/// Bindings of roles in the cluster.
pub const CLUSTER: Kind = Kind {
    name_rule: NameRule::PathSegment,
    columns: COLUMNS,
    defaults,
    validate: |binding| validate(binding, &["ClusterRole"]),
    validate_update,
    ..Kind::cluster(GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings")
};

const COLUMNS: &[Column] = &[
    NAME,
    made("Role", |binding, _| {
        let role = &binding["roleRef"];
        json!(format!(
            "{}/{}",
            meta::text(role, &["kind"]),
            meta::text(role, &["name"])
        ))
    }),
    AGE,
    made("Users", |binding, _| json!(subjects(binding, "User"))).wide(),
    made("Groups", |binding, _| json!(subjects(binding, "Group"))).wide(),
    made("ServiceAccounts", |binding, _| {
        json!(subjects(binding, "ServiceAccount"))
    })
    .wide(),
];

fn subjects(binding: &Value, kind: &str) -> String {
    let subjects = meta::items(binding, &["subjects"]).iter();
    let found = subjects.filter(|subject| subject["kind"] == kind);
    let shown: Vec<String> = found
        .map(|subject| {
            let name = meta::text(subject, &["name"]);
            match text_of(&subject["namespace"]) {
                Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{name}"),
                _ => name.to_owned(),
            }
        })
        .collect();
    shown.join(", ")
}

fn defaults(binding: &mut Value) {
    if binding["roleRef"].is_object() {
        meta::default(binding, &["roleRef", "apiGroup"], GROUP);
    }
    for subject in meta::items_mut(binding, &["subjects"]) {
        if matches!(meta::text(subject, &["kind"]), "User" | "Group") {
            meta::default(subject, &["apiGroup"], GROUP);
        }
    }
}

fn validate(binding: &Value, kinds: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &binding["roleRef"];
    check_group(role, "roleRef", GROUP, &mut errors);
    let found = meta::text(role, &["kind"]);
    if !kinds.contains(&found) {
        errors.push(FieldError::not_supported("roleRef.kind", &found.into(), kinds));
    }
    let name = meta::text(role, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        check_name(name, "roleRef.name", &mut errors);
    }
    for (index, subject) in meta::items(binding, &["subjects"]).iter().enumerate() {
        validate_subject(kinds, subject, &format!("subjects[{index}]"), &mut errors);
    }
    errors
}

fn check_group(object: &Value, field: &str, expected: &str, errors: &mut Vec<FieldError>) {
    let group = meta::text(object, &["apiGroup"]);
    if object.is_object() && !group.is_empty() && group != expected {
        let field = format!("{field}.apiGroup");
        errors.push(FieldError::not_supported(field, &group.into(), &[expected]));
    }
}

/// A name that is a valid path segment.
fn check_name(name: &str, field: &str, errors: &mut Vec<FieldError>) {
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

fn validate_subject(roles: &[&str], subject: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if meta::text(subject, &["name"]).is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    match meta::text(subject, &["kind"]) {
        "ServiceAccount" => {
            check_group(subject, field, "", errors);
            // In a namespaced binding, an account without a namespace belongs to that of the binding.
            if !roles.contains(&"Role") && meta::text(subject, &["namespace"]).is_empty() {
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

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    if old["roleRef"] == new["roleRef"] {
        return Vec::new();
    }
    let value = go_form::compact("RoleRef", &new["roleRef"]);
    vec![FieldError::invalid_text("roleRef", &value, "cannot change roleRef")]
}
