//! Events. They are served in two groups and stored once, in the form of the core group.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::age;
use crate::columns::{Column, NAME, UNKNOWN, count, joined, made, text, text_of};
use crate::error::FieldError;
use crate::kind::{Kind, SelectableField, StoredForm, Writes};
use crate::meta;

/// Events of the core group.
pub const KIND: Kind = Kind {
    short_names: &["ev"],
    writes: WRITES,
    columns: COLUMNS,
    selectable: &[
        SelectableField::new("involvedObject.kind"),
        SelectableField::new("involvedObject.namespace"),
        SelectableField::new("involvedObject.name"),
        SelectableField::new("involvedObject.uid"),
        SelectableField::new("involvedObject.apiVersion"),
        SelectableField::new("involvedObject.resourceVersion"),
        SelectableField::new("involvedObject.fieldPath"),
        SelectableField::new("reason"),
        SelectableField::new("reportingComponent"),
        SelectableField::new("source")
            .at("source.component")
            .or_at("reportingComponent"),
        SelectableField::new("type"),
    ],
    defaults,
    validate,
    ..Kind::namespaced("", "v1", "Event", "events")
};

/// Events of `events.k8s.io`: the same objects with different field names.
pub const NEWER: Kind = Kind {
    short_names: &["ev"],
    writes: WRITES,
    columns: COLUMNS,
    selectable: &[
        SelectableField::new("regarding.kind"),
        SelectableField::new("regarding.namespace"),
        SelectableField::new("regarding.name"),
        SelectableField::new("regarding.uid"),
        SelectableField::new("regarding.apiVersion"),
        SelectableField::new("regarding.resourceVersion"),
        SelectableField::new("regarding.fieldPath"),
        SelectableField::new("reason"),
        SelectableField::new("reportingController"),
        SelectableField::new("type"),
    ],
    stored_form: Some(StoredForm {
        table: "events",
        to_shown,
        to_stored,
    }),
    defaults,
    validate,
    ..Kind::namespaced("events.k8s.io", "v1", "Event", "events")
};

const WRITES: Writes = Writes {
    put_creates: true,
    ..Writes::USUAL
};

const COLUMNS: &[Column] = &[
    made("Last Seen", |event, now| json!(last_seen(event, now))),
    text("Type", &["type"], ""),
    text("Reason", &["reason"], ""),
    made("Object", |event, _| {
        let about = either(event, "involvedObject", "regarding");
        let kind = meta::text(about, &["kind"]).to_lowercase();
        json!(format!("{kind}/{}", meta::text(about, &["name"])))
    }),
    made("Subobject", |event, _| {
        json!(meta::text(either(event, "involvedObject", "regarding"), &["fieldPath"]))
    })
    .wide(),
    made("Source", |event, _| json!(shown_source(event))).wide(),
    made("Message", |event, _| {
        let message = either(event, "message", "note");
        json!(message.as_str().unwrap_or_default().trim())
    }),
    made("First Seen", |event, now| json!(first_seen(event, now))).wide(),
    made("Count", |event, _| json!(times_seen(event))).wide(),
    NAME.wide(),
];

/// Core name and `events.k8s.io` name of each field that differs.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("source", "deprecatedSource"),
];

fn to_shown(stored: Value) -> Value {
    let mut shown = rename(stored, |field| {
        let mut pairs = EVENT_FIELDS.iter();
        pairs.find(|(core, _)| *core == field).map(|(_, new)| *new)
    });
    meta::set(&mut shown, &["apiVersion"], "events.k8s.io/v1".into());
    shown
}

fn to_stored(shown: Value) -> Value {
    let mut stored = rename(shown, |field| {
        let mut pairs = EVENT_FIELDS.iter();
        pairs.find(|(_, new)| *new == field).map(|(core, _)| *core)
    });
    meta::set(&mut stored, &["apiVersion"], "v1".into());
    stored
}

fn rename<'n>(object: Value, new_name: impl Fn(&str) -> Option<&'n str>) -> Value {
    match object {
        Value::Object(fields) => {
            let renamed: Map<String, Value> = fields
                .into_iter()
                .map(|(name, value)| (new_name(&name).map_or(name.clone(), str::to_owned), value))
                .collect();
            Value::Object(renamed)
        }
        other => other,
    }
}

fn defaults(event: &mut Value) {
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

fn validate(event: &Value) -> Vec<FieldError> {
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
    // Stricter rules apply only to writers of the newer form.
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

/// The field under its older name, or else its newer one.
fn either<'e>(event: &'e Value, core: &str, newer: &str) -> &'e Value {
    match &event[core] {
        Value::Null => &event[newer],
        value => value,
    }
}

fn since(time: &Value, now: Timestamp) -> Option<String> {
    time.is_string().then(|| age::since(time, now))
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    since(either(event, "firstTimestamp", "deprecatedFirstTimestamp"), now)
        .or_else(|| since(&event["eventTime"], now))
        .unwrap_or_else(|| UNKNOWN.to_owned())
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    since(&event["series"]["lastObservedTime"], now)
        .or_else(|| since(either(event, "lastTimestamp", "deprecatedLastTimestamp"), now))
        .unwrap_or_else(|| first_seen(event, now))
}

fn times_seen(event: &Value) -> i64 {
    let series = event["series"]["count"].as_i64();
    series.unwrap_or_else(|| count(either(event, "count", "deprecatedCount")).max(1))
}

fn shown_source(event: &Value) -> String {
    let source = either(event, "source", "deprecatedSource");
    let reporter = text_of(&event["reportingComponent"]).or(text_of(&event["reportingController"]));
    let component = text_of(&source["component"]).or(reporter);
    let host = text_of(&source["host"]).or(text_of(&event["reportingInstance"]));
    joined(component.into_iter().chain(host)).replace(',', ", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_the_same_in_both_groups() {
        let shown = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "regarding": {"name": "p"}, "note": "hello", "reason": "Scheduled", "reportingController": "berth"});
        let stored = to_stored(shown.clone());
        let expected = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"name": "p"}, "message": "hello", "reason": "Scheduled", "reportingComponent": "berth"});
        assert_eq!(stored, expected);
        assert_eq!(to_shown(stored), shown);
    }
}
