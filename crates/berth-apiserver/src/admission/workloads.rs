//! The kinds that make pods: apps and batch.

use serde_json::{Value, json};

use super::{fields, pods, schedules};
use crate::error::FieldError;
use crate::go_form;
use crate::meta;
use crate::selector::LabelSelector;

/// Where the pod template of a kind stands.
fn template_path(kind: &str) -> Option<&'static [&'static str]> {
    match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => {
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
            json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
        }
        "ReplicaSet" | "ReplicationController" => json!({"replicas": 1}),
        "StatefulSet" => {
            json!({"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}})
        }
        "DaemonSet" => json!({"revisionHistoryLimit": 10}),
        "Job" => json!({"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed"}),
        "CronJob" => json!({"concurrencyPolicy": "Allow", "suspend": false,
            "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}),
        _ => return,
    };
    for (field, value) in defaults.as_object().into_iter().flatten() {
        meta::default(object, &["spec", field], value.clone());
    }
    default_strategy(kind, object);
    match kind {
        "Job" => default_job_counts(object),
        "DaemonSet" => {
            let path = ["metadata", "annotations", "deprecated.daemonset.template.generation"];
            meta::default(object, &path, "1");
        }
        "CronJob" => {
            meta::default(object, &["spec", "jobTemplate", "metadata"], json!({}));
            meta::default(
                object,
                &["spec", "jobTemplate", "spec", "template", "metadata"],
                json!({}),
            );
        }
        _ => {}
    }
    if kind == "ReplicationController" {
        select_template(object);
    }
    default_status(kind, object);
    for claim in meta::items_mut(object, &["spec", "volumeClaimTemplates"]) {
        meta::default(claim, &["apiVersion"], "v1");
        meta::default(claim, &["kind"], "PersistentVolumeClaim");
        meta::default(claim, &["spec", "volumeMode"], "Filesystem");
        meta::default(claim, &["status", "phase"], "Pending");
    }
}

/// Where a kind says how its pods are replaced.
fn strategy_field(kind: &str) -> Option<&'static str> {
    match kind {
        "Deployment" => Some("strategy"),
        "StatefulSet" | "DaemonSet" => Some("updateStrategy"),
        _ => None,
    }
}

/// How pods are replaced. What is given of it stays, and the rest is filled in.
fn default_strategy(kind: &str, object: &mut Value) {
    let Some(field) = strategy_field(kind) else {
        return;
    };
    let is_silent = meta::text(object, &["spec", field, "type"]).is_empty();
    if is_silent {
        meta::set(object, &["spec", field, "type"], "RollingUpdate".into());
    }
    let rolling = ["spec", field, "rollingUpdate"];
    let is_rolling = meta::text(object, &["spec", field, "type"]) == "RollingUpdate";
    // A stateful set that names its strategy and no more is left so.
    let is_bare = kind == "StatefulSet" && !is_silent && meta::at(object, &rolling).is_null();
    if !is_rolling || is_bare {
        return;
    }
    let defaults = match kind {
        "Deployment" => json!({"maxSurge": "25%", "maxUnavailable": "25%"}),
        "StatefulSet" => json!({"partition": 0}),
        _ => json!({"maxSurge": 0, "maxUnavailable": 1}),
    };
    for (name, value) in defaults.as_object().into_iter().flatten() {
        meta::default(object, &["spec", field, "rollingUpdate", name], value.clone());
    }
}

/// The strategy must be one that the kind knows.
fn validate_strategy(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let Some(field) = strategy_field(kind) else {
        return;
    };
    let (path, strategy) = (format!("spec.{field}"), &object["spec"][field]);
    let shown = format!(
        "{{\"Type\":{},\"RollingUpdate\":{}}}",
        strategy["type"], strategy["rollingUpdate"]
    );
    match (kind, meta::text(strategy, &["type"])) {
        ("Deployment", "Recreate") if !strategy["rollingUpdate"].is_null() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(format!("{path}.rollingUpdate"), detail));
        }
        (_, "RollingUpdate") | ("Deployment", "Recreate") | ("StatefulSet" | "DaemonSet", "OnDelete") => {}
        ("Deployment", _) => {
            errors.push(FieldError::not_supported_text(
                path,
                &shown,
                &["Recreate", "RollingUpdate"],
            ));
        }
        ("StatefulSet", _) => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid_text(path, &shown, detail));
        }
        _ => errors.push(FieldError::not_supported_text(
            path,
            &shown,
            &["RollingUpdate", "OnDelete"],
        )),
    }
}

/// Counts that are written even if there is nothing to count.
fn default_status(kind: &str, object: &mut Value) {
    let counts: &[&str] = match kind {
        "ReplicaSet" | "ReplicationController" => &["replicas"],
        "StatefulSet" => &["replicas", "availableReplicas"],
        "DaemonSet" => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
        ],
        _ => &[],
    };
    meta::default(object, &["status"], json!({}));
    for count in counts {
        meta::default(object, &["status", count], json!(0));
    }
}

fn default_job_counts(job: &mut Value) {
    if job["spec"]["completions"].is_null() && job["spec"]["parallelism"].is_null() {
        meta::set(job, &["spec", "completions"], 1.into());
    }
    meta::default(job, &["spec", "parallelism"], 1);
}

/// A replication controller that does not say which pods are its own selects those it makes.
fn select_template(controller: &mut Value) {
    let labels = meta::at(controller, &["spec", "template", "metadata", "labels"]).clone();
    meta::default(controller, &["spec", "selector"], labels.clone());
    meta::default(controller, &["metadata", "labels"], labels);
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
    let labels = meta::at(job, &["spec", "template", "metadata", "labels"]).clone();
    meta::default(job, &["metadata", "labels"], labels);
}

pub(super) fn validate(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(template) = template_path(kind) else {
        return errors;
    };
    let found = meta::at(object, template);
    let field = template.join(".");
    fields::check_count(&object["spec"]["replicas"], "spec.replicas", &mut errors);
    validate_strategy(kind, object, &mut errors);
    match kind {
        "CronJob" => validate_schedule(object, &mut errors),
        // A job's selector is made for it.
        "Job" => {}
        "ReplicationController" => validate_label_map(object, found, &field, &mut errors),
        _ => validate_selector(kind, object, found, &field, &mut errors),
    }
    let mut spec = found["spec"].clone();
    // The claims of a stateful set become volumes of its pods, under the same names.
    let claims = meta::items(object, &["spec", "volumeClaimTemplates"]).iter();
    let from_claims = claims.map(|claim| json!({"name": meta::name(claim), "emptyDir": {}}));
    let volumes: Vec<Value> = meta::items(&spec, &["volumes"])
        .iter()
        .cloned()
        .chain(from_claims)
        .collect();
    if !volumes.is_empty() {
        meta::set(&mut spec, &["volumes"], volumes.into());
    }
    let mut of_template = pods::validate_pod_spec(&spec, &format!("{field}.spec"));
    errors.append(&mut of_template);
    let is_job = matches!(kind, "Job" | "CronJob");
    if is_job && meta::text(&spec, &["restartPolicy"]) == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(format!("{field}.spec.restartPolicy"), detail));
    }
    errors
}

fn validate_schedule(job: &Value, errors: &mut Vec<FieldError>) {
    let schedule = &job["spec"]["schedule"];
    let text = schedule.as_str().unwrap_or_default();
    if text.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if text.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid("spec.schedule", schedule, detail));
    } else if let Some(problem) = schedules::problem(text) {
        errors.push(FieldError::invalid("spec.schedule", schedule, &problem));
    }
}

fn not_selected(template: &Value, field: &str) -> FieldError {
    let labels = meta::at(template, &["metadata", "labels"]);
    let detail = "`selector` does not match template `labels`";
    FieldError::invalid(format!("{field}.metadata.labels"), labels, detail)
}

/// The selector of a replication controller is a plain map.
fn validate_label_map(object: &Value, template: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let selector = &object["spec"]["selector"];
    if selector.as_object().is_none_or(|selector| selector.is_empty()) {
        errors.push(FieldError::required("spec.selector", ""));
    } else if !LabelSelector::from_object(&json!({"matchLabels": selector})).is_ok_and(|s| s.matches(template)) {
        errors.push(not_selected(template, field));
    }
}

fn validate_selector(kind: &str, object: &Value, template: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let selector = &object["spec"]["selector"];
    if selector.is_null() {
        // Of a daemon set Kubernetes says only what follows from it.
        if kind != "DaemonSet" {
            errors.push(FieldError::required("spec.selector", ""));
        }
        errors.push(not_selected(template, field));
        return;
    }
    match LabelSelector::from_object(selector) {
        Ok(parsed) if parsed.is_empty() => {
            let kind = match kind {
                "StatefulSet" => "statefulset",
                "DaemonSet" => "daemonset",
                _ => "deployment",
            };
            let detail = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid("spec.selector", selector, &detail));
        }
        Ok(parsed) if !parsed.matches(template) => errors.push(not_selected(template, field)),
        Ok(_) => {}
        Err(error) => {
            errors.push(FieldError::invalid("spec.selector", selector, &error.to_string()));
        }
    }
}

pub(super) fn validate_update(kind: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if matches!(kind, "Deployment" | "ReplicaSet" | "DaemonSet" | "Job")
        && old["spec"]["selector"] != new["spec"]["selector"]
    {
        let value = &new["spec"]["selector"];
        errors.push(FieldError::invalid("spec.selector", value, "field is immutable"));
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
        let value = go_form::compact("PodTemplateSpec", &new["spec"]["template"]);
        errors.push(FieldError::invalid_text("spec.template", &value, "field is immutable"));
    }
    errors
}
