//! Definitions of custom resources.

use serde_json::{Value, json};

use crate::admission::Admission;
use crate::columns::NAME_AND_TIME;
use crate::error::{FieldError, Refusal};
use crate::kind::{Generation, Kind, STATUS, Writes};
use crate::meta;
use crate::structural;

/// Definitions of custom resources.
pub const KIND: Kind = Kind {
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    subresources: &[STATUS],
    generation: Generation::Counted,
    writes: Writes {
        put_needs_version: true,
        ..Writes::USUAL
    },
    columns: NAME_AND_TIME,
    defaults,
    admit,
    admit_update: |admission, _, definition| {
        if admission.is_whole() {
            admit(admission, definition)?;
        }
        Ok(())
    },
    validate,
    warnings: structural::warnings,
    ..Kind::cluster(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    )
};

/// Finalizer of a definition: its objects are deleted first.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn defaults(definition: &mut Value) {
    let kind = meta::text(definition, &["spec", "names", "kind"]).to_owned();
    meta::default(definition, &["spec", "conversion"], json!({"strategy": "None"}));
    if kind.is_empty() {
        return;
    }
    meta::default(definition, &["spec", "names", "singular"], kind.to_lowercase());
    meta::default(definition, &["spec", "names", "listKind"], format!("{kind}List"));
}

/// The server serves the types at once, so the status is set at once.
fn admit(admission: &Admission<'_>, definition: &mut Value) -> Result<(), Refusal> {
    let before = definition["status"]["conditions"].clone();
    let mut status = established(definition, &admission.time());
    if !before.is_null() {
        meta::set(&mut status, &["conditions"], before);
    }
    meta::set(definition, &["status"], status);
    Ok(())
}

/// The status of a definition whose types are served.
fn established(definition: &Value, time: &Value) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time, "reason": reason, "message": message});
    let versions = meta::items(definition, &["spec", "versions"]);
    let stored: Vec<_> = versions
        .iter()
        .filter(|v| v["storage"] == true)
        .map(|v| v["name"].clone())
        .collect();
    json!({"acceptedNames": definition["spec"]["names"], "storedVersions": stored, "conditions": [
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]})
}

/// Records that a definition is being deleted, after its objects.
pub fn mark_deleted(definition: &mut Value, time: &str) {
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

fn validate(definition: &Value) -> Vec<FieldError> {
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
    structural::validate(definition, &mut errors);
    validate_conversion(spec, &mut errors);
    let names = ["plural", "singular", "kind", "listKind"].map(|name| ["names", name]);
    require(spec, &names.each_ref().map(|path| &path[..]), &mut errors);
    if meta::items(definition, &["status", "storedVersions"]).is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid("status.storedVersions", &Value::Null, detail));
    }
    errors
}

/// Versions are interchangeable. Webhooks are not called, so several versions cannot rely on one.
fn validate_conversion(spec: &Value, errors: &mut Vec<FieldError>) {
    let strategy = &spec["conversion"]["strategy"];
    let field = "spec.conversion.strategy";
    match strategy.as_str() {
        Some("None") => {}
        Some("Webhook") if spec["conversion"]["webhook"].is_null() => {
            let detail = "required when strategy is set to Webhook";
            errors.push(FieldError::required("spec.conversion.webhookClientConfig", detail));
            errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
        }
        Some("Webhook") if meta::items(spec, &["versions"]).len() < 2 => {}
        Some("Webhook") => {
            let detail = "this server calls no webhooks: versions that need one to be converted cannot be served";
            errors.push(FieldError::forbidden(field, detail));
        }
        _ => errors.push(FieldError::not_supported(field, strategy, &["None", "Webhook"])),
    }
}

fn require(spec: &Value, paths: &[&[&str]], errors: &mut Vec<FieldError>) {
    for path in paths {
        if meta::text(spec, path).is_empty() {
            errors.push(FieldError::required(format!("spec.{}", path.join(".")), ""));
        }
    }
}
