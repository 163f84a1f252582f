//! CustomResourceDefinitions.

use serde_json::{Value, json};

use crate::error::FieldError;
use crate::meta;
use crate::types;

/// Finalizer of a definition: its objects go first.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) fn default_definition(definition: &mut Value) {
    let kind = meta::text(definition, &["spec", "names", "kind"]).to_owned();
    meta::default(definition, &["spec", "conversion"], json!({"strategy": "None"}));
    if kind.is_empty() {
        return;
    }
    meta::default(definition, &["spec", "names", "singular"], kind.to_lowercase());
    meta::default(definition, &["spec", "names", "listKind"], format!("{kind}List"));
}

/// The server serves the types at once, so the status says so at once.
pub(super) fn admit(definition: &mut Value, time: &str) {
    let before = definition["status"]["conditions"].clone();
    let mut status = types::established(definition, time);
    if !before.is_null() {
        meta::set(&mut status, &["conditions"], before);
    }
    meta::set(definition, &["status"], status);
}

/// Notes that a definition is on its way out, and that its objects go first.
pub(crate) fn mark_deleted(definition: &mut Value, time: &str) {
    meta::add_finalizer(definition, CLEANUP);
    meta::set(definition, &["metadata", "deletionGracePeriodSeconds"], Value::Null);
    let mut conditions = meta::items(definition, &["status", "conditions"]).to_vec();
    if !conditions.iter().any(|found| found["type"] == "Terminating") {
        conditions.push(
            json!({"type": "Terminating", "status": "True", "lastTransitionTime": time,
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"}),
        );
    }
    meta::set(definition, &["status", "conditions"], conditions.into());
}

pub(super) fn validate(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &definition["spec"];
    let expected = format!(
        "{}.{}",
        meta::text(spec, &["names", "plural"]),
        meta::text(spec, &["group"])
    );
    let name = meta::name(definition);
    if name != expected {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &name.into(), detail));
    }
    require(spec, &[&["group"], &["scope"]], &mut errors);
    let scope = meta::text(spec, &["scope"]);
    if !["", "Cluster", "Namespaced"].contains(&scope) {
        let supported = ["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported("spec.scope", &scope.into(), &supported));
    }
    let versions = meta::items(spec, &["versions"]);
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], detail));
    }
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        }
    }
    let names = ["plural", "singular", "kind", "listKind"].map(|name| ["names", name]);
    require(spec, &names.each_ref().map(|path| &path[..]), &mut errors);
    if meta::items(definition, &["status", "storedVersions"]).is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", &Value::Null, detail));
    }
    errors
}

fn require(spec: &Value, paths: &[&[&str]], errors: &mut Vec<FieldError>) {
    for path in paths {
        if meta::text(spec, path).is_empty() {
            errors.push(FieldError::required(format!("spec.{}", path.join(".")), ""));
        }
    }
}
