//! The kinds that make pods: apps and batch.

use serde_json::{Value, json};

use super::pods;
use crate::error::FieldError;
use crate::meta;
use crate::selector::LabelSelector;

/// Where the pod template of a kind stands.
fn template_path(kind: &str) -> Option<&'static [&'static str]> {
    match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" => {
            Some(&["spec", "template"])
        }
        "CronJob" => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

pub(super) fn default_workload(kind: &str, object: &mut Value) {
    let Some(template) = template_path(kind) else {
        return;
    };
    if meta::at(object, template).is_object() {
        let mut path = template.to_vec();
        path.push("spec");
        pods::default_pod_spec(object, &path);
    }
    let defaults = match kind {
        "Deployment" => {
            json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}})
        }
        "ReplicaSet" => json!({"replicas": 1}),
        "StatefulSet" => {
            json!({"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}})
        }
        "DaemonSet" => json!({"revisionHistoryLimit": 10,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}),
        "Job" => json!({"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed"}),
        "CronJob" => json!({"concurrencyPolicy": "Allow", "suspend": false,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}),
        _ => return,
    };
    for (field, value) in defaults.as_object().into_iter().flatten() {
        meta::default(object, &["spec", field], value.clone());
    }
    if kind == "Job" {
        default_job_counts(object);
    }
    for claim in meta::items_mut(object, &["spec", "volumeClaimTemplates"]) {
        meta::default(claim, &["apiVersion"], "v1");
        meta::default(claim, &["kind"], "PersistentVolumeClaim");
        meta::default(claim, &["spec", "volumeMode"], "Filesystem");
        meta::default(claim, &["status", "phase"], "Pending");
    }
}

fn default_job_counts(job: &mut Value) {
    if job["spec"]["completions"].is_null() && job["spec"]["parallelism"].is_null() {
        meta::set(job, &["spec", "completions"], 1.into());
    }
    meta::default(job, &["spec", "parallelism"], 1);
}

/// A job selects its own pods by its uid, unless the user wants otherwise.
pub(super) fn own_job_pods(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta::uid(job).to_owned(), meta::name(job).to_owned());
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    for (key, value) in labels {
        let path = ["spec", "template", "metadata", "labels", key];
        meta::default(job, &path, value.as_str());
    }
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    meta::default(job, &["spec", "selector"], selector);
}

pub(super) fn validate(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(template) = template_path(kind) else {
        return errors;
    };
    let found = meta::at(object, template);
    let field = template.join(".");
    // A job's selector is made for it, and a cron job has none.
    if !matches!(kind, "Job" | "CronJob") {
        validate_selector(object, found, &field, &mut errors);
    }
    let mut of_template = pods::validate_pod_spec(&found["spec"], &format!("{field}.spec"));
    errors.append(&mut of_template);
    if let Some(replicas) = object["spec"]["replicas"]
        .as_i64()
        .filter(|replicas| *replicas < 0)
    {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(
            "spec.replicas",
            &replicas.into(),
            detail,
        ));
    }
    if kind == "CronJob" && meta::text(object, &["spec", "schedule"]).is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    }
    errors
}

fn validate_selector(object: &Value, template: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let selector = &object["spec"]["selector"];
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
        return;
    }
    match LabelSelector::from_object(selector) {
        Ok(parsed) if parsed.is_empty() => {
            let detail = "empty selector is invalid for deployment";
            errors.push(FieldError::invalid("spec.selector", selector, detail));
        }
        Ok(parsed) if !parsed.matches(template) => {
            let labels = meta::at(template, &["metadata", "labels"]);
            let detail = "`selector` does not match template `labels`";
            errors.push(FieldError::invalid(
                format!("{field}.metadata.labels"),
                labels,
                detail,
            ));
        }
        Ok(_) => {}
        Err(error) => {
            errors.push(FieldError::invalid(
                "spec.selector",
                selector,
                &error.to_string(),
            ));
        }
    }
}

pub(super) fn validate_update(kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if matches!(kind, "Deployment" | "ReplicaSet" | "DaemonSet" | "Job")
        && old["spec"]["selector"] != new["spec"]["selector"]
    {
        let value = &new["spec"]["selector"];
        errors.push(FieldError::invalid(
            "spec.selector",
            value,
            "field is immutable",
        ));
    }
    if kind == "StatefulSet" {
        let fixed = |set: &Value| {
            let mut spec = set["spec"].clone();
            for field in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                meta::set(&mut spec, &[field], Value::Null);
            }
            spec
        };
        if fixed(old) != fixed(new) {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(FieldError::forbidden("spec", detail));
        }
    }
    if kind == "Job" && old["spec"]["template"] != new["spec"]["template"] {
        let value = &new["spec"]["template"];
        errors.push(FieldError::invalid(
            "spec.template",
            value,
            "field is immutable",
        ));
    }
    errors
}
