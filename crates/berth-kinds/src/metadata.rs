//! Metadata rules for every kind, including custom ones.

use serde_json::Value;

use crate::error::FieldError;
use crate::fields;
use crate::go_form;
use crate::meta;

const SUBDOMAIN_BYTES_MAX: usize = 253;
pub(crate) const LABEL_BYTES_MAX: usize = 63;
/// Maximum total size of an object's annotations.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

pub(crate) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
pub(crate) const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Metadata that only the server sets: changes by clients are ignored.
pub const KEPT: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
];

/// Metadata that may be changed together with the status of an object of a built-in kind, but not of a custom one.
pub const CHANGED_WITH_STATUS: [&str; 3] = ["labels", "annotations", "finalizers"];

/// Which names are valid for objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain.
    Subdomain,
    /// A DNS label, without dots.
    DnsLabel,
    /// Any valid path segment.
    PathSegment,
}

/// Validates the metadata of an object.
#[must_use]
pub fn validate(name_rule: NameRule, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_name(name_rule, meta::name(object), &mut errors);
    let labels = meta::at(object, &["metadata", "labels"]);
    fields::check_labels(labels, "metadata.labels", &mut errors);
    let annotations = meta::at(object, &["metadata", "annotations"]);
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        check_qualified_name(&key.to_lowercase(), "metadata.annotations", &mut errors);
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX));
    }
    validate_owners(object, &mut errors);
    validate_finalizers(object, &mut errors);
    errors
}

fn validate_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let field = "metadata.finalizers";
    let finalizers = meta::finalizers(object);
    for finalizer in &finalizers {
        check_qualified_name(finalizer, field, errors);
    }
    for (index, finalizer) in finalizers.iter().enumerate() {
        // Kubernetes itself uses finalizers without a group.
        if !finalizer.contains('/')
            && !["orphan", "foregroundDeletion", "kubernetes"].contains(finalizer)
            && !finalizer.contains('.')
        {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            let field = format!("{field}[{index}]");
            errors.push(FieldError::invalid(field, &(*finalizer).into(), detail));
        }
    }
}

/// The value of a label.
pub(crate) fn check_label_value(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let text = value.as_str().unwrap_or_default();
    if text.len() > LABEL_BYTES_MAX {
        errors.push(FieldError::invalid(field, value, "must be no more than 63 bytes"));
    } else if !text.is_empty() && !is_label_word(text) {
        errors.push(FieldError::invalid(field, value, LABEL_VALUE));
    }
}

/// Validates a change of metadata.
#[must_use]
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if meta::is_deleting(old) {
        let before = meta::finalizers(old);
        let added: Vec<_> = meta::finalizers(new)
            .into_iter()
            .filter(|found| !before.contains(found))
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added
                    .iter()
                    .map(|name| format!("{name:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", &detail));
        }
    }
    errors
}

fn validate_name(rule: NameRule, name: &str, errors: &mut Vec<FieldError>) {
    let field = "metadata.name";
    let value = Value::from(name);
    let (is_valid, bytes_max, detail): (fn(&str) -> bool, _, _) = match rule {
        NameRule::PathSegment => {
            if name.contains('/') || name.contains('%') || matches!(name, "." | "..") {
                errors.push(FieldError::invalid(field, &value, "may not contain '/'"));
            }
            return;
        }
        NameRule::DnsLabel => (is_dns_label, LABEL_BYTES_MAX, DNS_LABEL),
        NameRule::Subdomain => (is_subdomain, SUBDOMAIN_BYTES_MAX, SUBDOMAIN),
    };
    if name.len() > bytes_max {
        let detail = format!("must be no more than {bytes_max} bytes");
        errors.push(FieldError::invalid(field, &value, &detail));
    } else if !is_valid(name) {
        // For a name that is valid elsewhere, the error explains what is not allowed here.
        let detail = if is_subdomain(name) {
            "must not contain dots"
        } else {
            detail
        };
        errors.push(FieldError::invalid(field, &value, detail));
    }
}

fn validate_owners(object: &Value, errors: &mut Vec<FieldError>) {
    let owners = meta::items(object, &["metadata", "ownerReferences"]);
    let field = "metadata.ownerReferences";
    for owner in owners {
        for part in ["apiVersion", "kind", "name", "uid"] {
            if meta::text(owner, &[part]).is_empty() {
                let detail = if part == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                errors.push(FieldError::invalid(format!("{field}.{part}"), &"".into(), detail));
            }
        }
    }
    let controllers: Vec<String> = owners
        .iter()
        .filter(|owner| owner["controller"] == true)
        .map(|owner| format!("{}/{}", meta::text(owner, &["kind"]), meta::text(owner, &["name"])))
        .collect();
    if let [first, second, ..] = controllers.as_slice() {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        let value: Vec<String> = owners
            .iter()
            .map(|owner| go_form::compact("OwnerReference", owner))
            .collect();
        let value = format!("[{}]", value.join(","));
        errors.push(FieldError::invalid_text(field, &value, &detail));
    }
}

pub(crate) fn check_qualified_name(key: &str, field: &str, errors: &mut Vec<FieldError>) {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(p, n)| (Some(p), n));
    let value = Value::from(key);
    if prefix == Some("") {
        errors.push(FieldError::invalid(field, &value, "prefix part must be non-empty"));
    } else if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        let detail = format!("prefix part {SUBDOMAIN}");
        errors.push(FieldError::invalid(field, &value, &detail));
    }
    if name.is_empty() {
        errors.push(FieldError::invalid(field, &value, "name part must be non-empty"));
    }
    if name.len() > LABEL_BYTES_MAX {
        let detail = "name part must be no more than 63 bytes";
        errors.push(FieldError::invalid(field, &value, detail));
    } else if !is_label_word(name) {
        errors.push(FieldError::invalid(field, &value, QUALIFIED_NAME));
    }
}

fn ends_with_alphanumeric(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter()
        .all(|byte| byte.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

fn is_label_word(text: &str) -> bool {
    ends_with_alphanumeric(text)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether a text is a DNS label.
pub(crate) fn is_dns_label(text: &str) -> bool {
    ends_with_alphanumeric(text)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_BYTES_MAX && text.split('.').all(is_dns_label)
}
