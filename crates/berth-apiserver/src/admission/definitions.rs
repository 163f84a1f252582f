//! CustomResourceDefinitions.

use serde_json::{Value, json};

use crate::error::FieldError;
use crate::meta;
use crate::types;

/// Finalizer of a definition: its objects go first.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) fn default_definition(definition: &mut Value) {
    let kind = meta::text(definition, &["spec", "names", "kind"]).to_owned();
    meta::default(
        definition,
        &["spec", "conversion"],
        json!({"strategy": "None"}),
    );
    if kind.is_empty() {
        return;
    }
    meta::default(
        definition,
        &["spec", "names", "singular"],
        kind.to_lowercase(),
    );
    meta::default(
        definition,
        &["spec", "names", "listKind"],
        format!("{kind}List"),
    );
}

/// The server serves the types at once, so the status says so at once.
pub(super) fn admit(definition: &mut Value, time: &str) {
    if !meta::is_deleting(definition) {
        meta::add_finalizer(definition, CLEANUP);
    }
    let before = definition["status"]["conditions"].clone();
    let mut status = types::established(definition, time);
    if !before.is_null() {
        meta::set(&mut status, &["conditions"], before);
    }
    meta::set(definition, &["status"], status);
}

pub(super) fn validate(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &definition["spec"];
    for path in [
        &["group"][..],
        &["scope"],
        &["names", "plural"],
        &["names", "kind"],
    ] {
        if meta::text(spec, path).is_empty() {
            errors.push(FieldError::required(format!("spec.{}", path.join(".")), ""));
        }
    }
    let scope = meta::text(spec, &["scope"]);
    if !["", "Cluster", "Namespaced"].contains(&scope) {
        let supported = ["Cluster", "Namespaced"];
        errors.push(FieldError::not_supported("spec.scope", scope, &supported));
    }
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
    let versions = meta::items(spec, &["versions"]);
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        let detail = "must have exactly one version marked as storage version";
        let value = Value::from(versions.len());
        errors.push(FieldError::invalid("spec.versions", &value, detail));
    }
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, "schemas are required"));
        }
    }
    errors
}
