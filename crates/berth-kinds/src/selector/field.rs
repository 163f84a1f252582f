//! Field selectors.

use serde_json::Value;

use super::SelectorError;
use crate::kind::{Kind, SelectableField};

/// One requirement of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Dotted path, for example `spec.nodeName`.
    pub field: String,
    /// Whether the field must have the value (`=`), or must not have it (`!=`).
    pub equal: bool,
    /// The value; empty also matches an absent field.
    pub value: String,
}

/// A conjunction of requirements on fields. The empty selector matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSelector {
    /// The requirements, in the given order.
    pub requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Parses the string form, for example `spec.nodeName=n1,status.phase!=Running`. A backslash escapes a comma, an
    /// equals sign or another backslash in a value.
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

    /// Whether the selector has no requirements.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The exact value that the selector requires of the field, if any.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|r| r.equal && r.field == field)
            .map(|r| r.value.as_str())
    }

    /// Refuses fields by which objects of this kind cannot be selected.
    pub fn check_supported(&self, kind: &Kind) -> Result<(), SelectorError> {
        for requirement in &self.requirements {
            let field = requirement.field.as_str();
            let always = matches!(field, "metadata.name" | "metadata.namespace");
            match kind.selectable {
                _ if always => {}
                [] => return Err(SelectorError::FieldNotKnown(field.to_owned())),
                fields if fields.iter().any(|known| known.name == field) => {}
                _ => return Err(SelectorError::FieldNotSupported(field.to_owned())),
            }
        }
        Ok(())
    }

    /// Refuses fields that are not among those that a custom kind's definition lists.
    pub fn check_among(&self, selectable: &[String]) -> Result<(), SelectorError> {
        let is_unknown = |field: &&String| {
            !matches!(field.as_str(), "metadata.name" | "metadata.namespace") && !selectable.contains(field)
        };
        match self.requirements.iter().map(|r| &r.field).find(is_unknown) {
            Some(field) => Err(SelectorError::FieldNotSupported(field.clone())),
            None => Ok(()),
        }
    }

    /// Whether the fields of an object satisfy every requirement. `selectable` are the selectable fields of its kind. An
    /// absent field has the empty value, unless the kind defines another one.
    pub fn matches(&self, object: &Value, selectable: &[SelectableField]) -> bool {
        self.requirements
            .iter()
            .all(|r| (field_value(object, &r.field, selectable) == r.value) == r.equal)
    }
}

/// The value of a field for comparison. Fields that a kind does not list are treated as paths.
fn field_value(object: &Value, name: &str, selectable: &[SelectableField]) -> String {
    let Some(field) = selectable.iter().find(|field| field.name == name) else {
        return text_at(object, name).unwrap_or_default();
    };
    text_at(object, field.path)
        .or_else(|| text_at(object, field.other_path))
        .unwrap_or_else(|| field.unset.to_owned())
}

fn text_at(object: &Value, path: &str) -> Option<String> {
    match path.split('.').fold(object, |value, step| &value[step]) {
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
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
    use crate::kinds::{event, pod};

    #[test]
    fn field_selectors_match() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"}
        });
        let check = |selector: &str, expect: bool| {
            let parsed = FieldSelector::parse(selector).expect(selector);
            parsed.check_supported(&pod::KIND).expect(selector);
            assert_eq!(parsed.matches(&pod, pod::KIND.selectable), expect, "{selector}");
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
        let error = selector.check_supported(&pod::KIND).unwrap_err().to_string();
        assert_eq!(error, "field label not supported: spec.foo");
    }

    #[test]
    fn events_are_selected_by_source_and_object() {
        let event = json!({"involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "s"}});
        let selector = FieldSelector::parse("involvedObject.kind=Pod,source=s").unwrap();
        selector.check_supported(&event::KIND).unwrap();
        assert!(selector.matches(&event, event::KIND.selectable));
        assert_eq!(selector.requires_exact_match("source"), Some("s"));
    }
}
