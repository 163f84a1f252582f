//! Kinds that are served in two groups but stored once: events.
//!
//! `events` and `events.events.k8s.io` show the same objects with other field names. The store keeps the core form.

use serde_json::{Map, Value};

use crate::meta;
use crate::registry::ResourceType;

/// Core name and `events.k8s.io` name of each field that differs.
const EVENT_FIELDS: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
const SOURCE: (&str, &str) = ("source", "deprecatedSource");

pub(crate) fn is_converted(resource: &ResourceType) -> bool {
    resource.group == "events.k8s.io" && resource.kind == "Event"
}

/// Where the store keeps objects of a built-in type.
pub(crate) fn table_of(resource: &ResourceType) -> String {
    if is_converted(resource) {
        "events".to_owned()
    } else {
        resource.qualified_plural()
    }
}

pub(crate) fn from_storage(resource: &ResourceType, stored: Value) -> Value {
    if !is_converted(resource) {
        return stored;
    }
    let mut shown = rename(stored, |field| {
        let pairs = EVENT_FIELDS.iter().chain([&SOURCE]);
        pairs
            .clone()
            .find(|(core, _)| *core == field)
            .map(|(_, new)| *new)
    });
    meta::set(&mut shown, &["apiVersion"], "events.k8s.io/v1".into());
    shown
}

pub(crate) fn to_storage(resource: &ResourceType, shown: Value) -> Value {
    if !is_converted(resource) {
        return shown;
    }
    let mut stored = rename(shown, |field| {
        let pairs = EVENT_FIELDS.iter().chain([&SOURCE]);
        pairs
            .clone()
            .find(|(_, new)| *new == field)
            .map(|(core, _)| *core)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{builtin, by_kind};
    use serde_json::json;

    #[test]
    fn an_event_reads_the_same_in_both_groups() {
        let resource = by_kind(builtin(), "events.k8s.io", "v1", "Event").unwrap();
        let shown = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "regarding": {"name": "p"}, "note": "hello", "reason": "Scheduled", "reportingController": "berth"});
        let stored = to_storage(resource, shown.clone());
        let expected = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"name": "p"}, "message": "hello", "reason": "Scheduled", "reportingComponent": "berth"});
        assert_eq!(stored, expected);
        assert_eq!(from_storage(resource, stored), shown);
    }
}
