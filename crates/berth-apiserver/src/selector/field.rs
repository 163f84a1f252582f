//! Field selectors.

use serde_json::Value;

use super::SelectorError;

/// One requirement of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Dotted path, such as `spec.nodeName`.
    pub field: String,
    /// Whether the field must have the value (`=`), or must not have it (`!=`).
    pub equal: bool,
    /// The value; empty stands for an absent field, too.
    pub value: String,
}

/// A conjunction of requirements on fields. The empty selector matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    /// The requirements, in the order in which they were written.
    pub requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Parses the string form, such as `spec.nodeName=n1,status.phase!=Running`.
    /// A backslash escapes a comma, an equals sign or another backslash in a value.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for part in split_unescaped(text) {
            if part.is_empty() {
                continue;
            }
            let not_understood = || SelectorError::Field {
                selector: text.to_owned(),
                part: part.clone(),
            };
            let at = part.find('=').ok_or_else(not_understood)?;
            let (field, equal, rest) = if part[..at].ends_with('!') {
                (&part[..at - 1], false, &part[at + 1..])
            } else if part[at + 1..].starts_with('=') {
                (&part[..at], true, &part[at + 2..])
            } else {
                (&part[..at], true, &part[at + 1..])
            };
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                equal,
                value: unescape(rest).ok_or_else(not_understood)?,
            });
        }
        Ok(FieldSelector { requirements })
    }

    /// Whether the selector asks nothing.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value that the field must have exactly, if the selector says so.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| r.equal && r.field == field)
            .map(|r| r.value.as_str())
    }

    /// Refuses fields that objects of this kind cannot be selected by.
    pub fn check_supported(&self, group: &str, kind: &str) -> Result<(), SelectorError> {
        for requirement in &self.requirements {
            let field = requirement.field.as_str();
            let always = matches!(field, "metadata.name" | "metadata.namespace");
            match selectable_fields(group, kind) {
                _ if always => {}
                [] => return Err(SelectorError::FieldNotKnown(field.to_owned())),
                fields if fields.contains(&field) => {}
                _ => return Err(SelectorError::FieldNotSupported(field.to_owned())),
            }
        }
        Ok(())
    }

    /// Whether a custom kind, whose definition names these fields, can be selected by the fields of the selector.
    pub fn check_among(&self, selectable: &[String]) -> Result<(), SelectorError> {
        let is_unknown = |field: &&String| {
            !matches!(field.as_str(), "metadata.name" | "metadata.namespace") && !selectable.contains(field)
        };
        match self.requirements.iter().map(|r| &r.field).find(is_unknown) {
            Some(field) => Err(SelectorError::FieldNotSupported(field.clone())),
            None => Ok(()),
        }
    }

    /// Whether the object's fields satisfy every requirement. An absent field has the empty value.
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|r| (field_value(object, &r.field) == r.value) == r.equal)
    }
}

/// The fields that objects of a kind can be selected by, besides their name and namespace.
pub fn selectable_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("apps", "ReplicaSet") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        _ => &[],
    }
}

fn field_value(object: &Value, field: &str) -> String {
    let path = match field {
        "source" => return event_source(object),
        "status.podIPs" => "status.podIP",
        // The field of a Job counts its succeeded pods under another name.
        "status.successful" => "status.succeeded",
        other => other,
    };
    let mut value = object;
    for step in path.split('.') {
        value = &value[step];
    }
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(n) => n.to_string(),
        // A flag that is not set reads as false, and a counter as 0.
        _ => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            "status.replicas" | "status.succeeded" => "0".to_owned(),
            _ => String::new(),
        },
    }
}

fn event_source(object: &Value) -> String {
    let component = object["source"]["component"].as_str().unwrap_or_default();
    if component.is_empty() {
        object["reportingComponent"].as_str().unwrap_or_default().to_owned()
    } else {
        component.to_owned()
    }
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn unescape(value: &str) -> Option<String> {
    let mut result = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => result.push(escaped),
                _ => return None,
            },
            '=' | ',' => return None,
            other => result.push(other),
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_selectors_match() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"}
        });
        let check = |selector: &str, expect: bool| {
            let parsed = FieldSelector::parse(selector).expect(selector);
            parsed.check_supported("", "Pod").expect(selector);
            assert_eq!(parsed.matches(&pod), expect, "{selector}");
        };
        check("", true);
        check("metadata.name=p", true);
        check("metadata.name==p,metadata.namespace=d", true);
        check("spec.nodeName!=n1", false);
        check("spec.nodeName=", false);
        check("spec.schedulerName=", true);
        check("status.phase=Running,spec.nodeName=n2", false);
        check("spec.hostNetwork=false", true);
        check("metadata.name=a\\,b", false);
    }

    #[test]
    fn bad_field_selectors_are_refused() {
        let error = FieldSelector::parse("metadata.name").unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
        let selector = FieldSelector::parse("spec.foo=1").unwrap();
        let error = selector.check_supported("", "Pod").unwrap_err().to_string();
        assert_eq!(error, "field label not supported: spec.foo");
    }

    #[test]
    fn events_are_selected_by_source_and_object() {
        let event = json!({"involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "s"}});
        let selector = FieldSelector::parse("involvedObject.kind=Pod,source=s").unwrap();
        selector.check_supported("", "Event").unwrap();
        assert!(selector.matches(&event));
        assert_eq!(selector.requires_exact_match("source"), Some("s"));
    }
}
