//! Events, in the form in which they are stored.

use serde_json::{Value, json};

use crate::error::FieldError;
use crate::meta;

pub(super) fn default_event(event: &mut Value) {
    let is_new = meta::text(event, &["apiVersion"]) != "v1";
    let controller = if is_new {
        "reportingController"
    } else {
        "reportingComponent"
    };
    let source = if is_new { "deprecatedSource" } else { "source" };
    meta::default(event, &[controller], "");
    meta::default(event, &["reportingInstance"], "");
    meta::default(event, &[source], json!({}));
}

pub(super) fn validate(event: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let is_new = meta::text(event, &["apiVersion"]) != "v1";
    let subject = if is_new { "regarding" } else { "involvedObject" };
    let namespace = meta::text(event, &[subject, "namespace"]);
    if !["", meta::namespace(event)].contains(&namespace) {
        let detail = "does not match event.namespace";
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &namespace.into(),
            detail,
        ));
    }
    // Only those who write the newer form are asked for more.
    if is_new {
        if event["eventTime"].is_null() {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = meta::text(event, &["type"]);
        if !["Normal", "Warning"].contains(&kind) {
            errors.push(FieldError::invalid(
                "type",
                &"".into(),
                &format!("has invalid value: {kind}"),
            ));
        }
    }
    errors
}
