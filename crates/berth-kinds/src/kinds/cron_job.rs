//! Cron jobs.

use serde_json::{Value, json};

use super::job;
use crate::age;
use crate::columns::{AGE, NAME, NONE, each_of, length, made, selecting, text};
use crate::error::FieldError;
use crate::kind::{Generation, Kind, STATUS};
use crate::meta;
use crate::schedule;
use crate::workload;

/// Cron jobs.
pub const KIND: Kind = Kind {
    short_names: &["cj"],
    categories: &["all"],
    subresources: &[STATUS],
    generation: Generation::Counted,
    columns: &[
        NAME,
        text("Schedule", &["spec", "schedule"], ""),
        text("Timezone", &["spec", "timeZone"], NONE),
        made("Suspend", |cron, _| {
            json!(if cron["spec"]["suspend"] == true {
                "True"
            } else {
                "False"
            })
        })
        .of_type("boolean"),
        length("Active", &["status", "active"]).of_type("integer"),
        made("Last Schedule", |cron, now| match &cron["status"]["lastScheduleTime"] {
            last @ Value::String(_) => json!(age::since(last, now)),
            _ => json!(NONE),
        }),
        AGE,
        each_of("Containers", CONTAINERS, "name").wide(),
        each_of("Images", CONTAINERS, "image").wide(),
        selecting("Selector", &["spec", "jobTemplate", "spec", "selector"]).wide(),
    ],
    defaults,
    validate,
    ..Kind::namespaced("batch", "v1", "CronJob", "cronjobs")
};

const TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];
const CONTAINERS: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec", "containers"];

fn defaults(cron: &mut Value) {
    workload::default_template(cron, TEMPLATE);
    let spec = json!({"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1});
    workload::default_spec(cron, &spec);
    meta::default(cron, &["spec", "jobTemplate", "metadata"], json!({}));
    if meta::at(cron, TEMPLATE).is_object() {
        meta::default(cron, &[TEMPLATE, &["metadata"]].concat(), json!({}));
    }
    workload::default_status(cron, &[]);
}

fn validate(cron: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_schedule(&cron["spec"]["schedule"], &mut errors);
    workload::check_template(cron, TEMPLATE, &mut errors);
    job::check_restarts(cron, TEMPLATE, &mut errors);
    errors
}

fn check_schedule(schedule: &Value, errors: &mut Vec<FieldError>) {
    let text = schedule.as_str().unwrap_or_default();
    if text.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if text.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(FieldError::invalid("spec.schedule", schedule, detail));
    } else if let Some(problem) = schedule::problem(text) {
        errors.push(FieldError::invalid("spec.schedule", schedule, &problem));
    }
}
