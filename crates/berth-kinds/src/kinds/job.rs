//! Jobs.

use berth_core::names::{CONTROLLER_UID, CONTROLLER_UID_LEGACY, JOB_NAME, JOB_NAME_LEGACY};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::age;
use crate::columns::{AGE, NAME, count, has_condition, made};
use crate::error::FieldError;
use crate::go_form;
use crate::kind::{Generation, Kind, STATUS, SelectableField};
use crate::meta;
use crate::workload::{self, CONTAINERS, IMAGES, SELECTOR, TEMPLATE};

/// Jobs.
pub const KIND: Kind = Kind {
    categories: &["all"],
    subresources: &[STATUS],
    generation: Generation::Counted,
    columns: &[
        NAME,
        made("Status", |job, _| json!(shown_status(job))),
        made("Completions", |job, _| json!(shown_completions(job))),
        made("Duration", shown_duration),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    // The field counts succeeded pods under another name.
    selectable: &[SelectableField::new("status.successful")
        .at("status.succeeded")
        .unset("0")],
    defaults,
    admit: |_, job| {
        own_pods(job);
        Ok(())
    },
    validate,
    validate_update,
    ..Kind::namespaced("batch", "v1", "Job", "jobs")
};

fn defaults(job: &mut Value) {
    workload::default_template(job, TEMPLATE);
    let spec = json!({"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false, "manualSelector": false,
        "podReplacementPolicy": "TerminatingOrFailed"});
    workload::default_spec(job, &spec);
    if job["spec"]["completions"].is_null() && job["spec"]["parallelism"].is_null() {
        meta::set(job, &["spec", "completions"], 1.into());
    }
    meta::default(job, &["spec", "parallelism"], 1);
    workload::default_status(job, &[]);
}

/// A job selects its own pods by its UID, unless the user sets a manual selector.
fn own_pods(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta::uid(job).to_owned(), meta::name(job).to_owned());
    let has_template = job["spec"]["template"].is_object();
    let labels = [
        (CONTROLLER_UID, &uid),
        (JOB_NAME, &name),
        (CONTROLLER_UID_LEGACY, &uid),
        (JOB_NAME_LEGACY, &name),
    ];
    // A job without a template is refused: labels would create an incomplete template.
    for (key, value) in labels.into_iter().filter(|_| has_template) {
        let path = ["spec", "template", "metadata", "labels", key];
        meta::default(job, &path, value.as_str());
    }
    let selector = json!({"matchLabels": {CONTROLLER_UID: uid}});
    meta::default(job, &["spec", "selector"], selector);
    let labels = meta::at(job, &["spec", "template", "metadata", "labels"]).clone();
    meta::default(job, &["metadata", "labels"], labels);
}

/// A job's selector is generated, so it is not validated.
fn validate(job: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for count in ["parallelism", "completions"] {
        workload::check_pods(&job["spec"][count], &format!("spec.{count}"), &mut errors);
    }
    workload::check_template(job, TEMPLATE, &mut errors);
    check_restarts(job, TEMPLATE, &mut errors);
    errors
}

/// A pod that runs to completion must not restart forever.
pub(super) fn check_restarts(object: &Value, template: &[&str], errors: &mut Vec<FieldError>) {
    let path = [template, &["spec", "restartPolicy"]].concat();
    if meta::text(object, &path) == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(path.join("."), detail));
    }
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = workload::check_fixed_selector(old, new);
    if old["spec"]["template"] != new["spec"]["template"] {
        let value = go_form::compact("PodTemplateSpec", &new["spec"]["template"]);
        errors.push(FieldError::invalid_text("spec.template", &value, "field is immutable"));
    }
    errors
}

fn shown_status(job: &Value) -> &'static str {
    let status = &job["status"];
    let finished = ["Complete", "Failed"]
        .into_iter()
        .find(|condition| has_condition(status, condition));
    let under_way = ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(|condition| has_condition(status, condition));
    match (finished, under_way) {
        (Some(condition), _) => condition,
        _ if meta::is_deleting(job) => "Terminating",
        (None, Some(condition)) => condition,
        (None, None) => "Running",
    }
}

fn shown_completions(job: &Value) -> String {
    let spec = &job["spec"];
    let succeeded = count(&job["status"]["succeeded"]);
    match (spec["completions"].as_i64(), spec["parallelism"].as_i64()) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, Some(parallelism)) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn shown_duration(job: &Value, now: Timestamp) -> Value {
    let time = |field: &str| meta::text(job, &["status", field]).parse::<Timestamp>().ok();
    let duration = time("startTime").map(|start| age::between(start, time("completionTime").unwrap_or(now)));
    json!(duration.unwrap_or_default())
}
