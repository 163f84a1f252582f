//! What happens to an object between the request and the store: defaults, admission and validation.
//!
//! The rules are those of `berth-kinds` for built-in kinds, and those of their schema for custom ones. Here they are
//! applied to the store and converted to responses.

use std::borrow::Cow;

use berth_kinds::admission::{Admission, Lookup};
use berth_kinds::error::{FieldError, Refusal};
use berth_kinds::kinds::namespace;
use berth_kinds::metadata::{self, NameRule};
use berth_kinds::{Kind, schema};
use serde_json::Value;

use crate::error::ApiError;
use crate::meta;
use crate::store::Store;
use crate::types::Served;
use crate::write::Change;

impl Lookup for Store {
    fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Cow<'_, Value>> {
        let object = self.latest(&kind.table(), &meta::key(namespace, name))?;
        Some(Cow::Owned(object.value()))
    }

    fn all<'a>(&'a self, kind: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        let objects = self.latest_all(&kind.table());
        Box::new(objects.into_iter().map(|object| Cow::Owned(object.value())))
    }

    fn within<'a>(&'a self, kind: &Kind, namespace: &'a str) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        let objects = self.latest_all(&kind.table()).into_iter();
        let within = objects.filter(move |object| object.namespace() == namespace);
        Box::new(within.map(|object| Cow::Owned(object.value())))
    }
}

fn admission<'a>(change: &'a Change<'_>) -> Admission<'a> {
    Admission {
        objects: &change.api.store,
        now: change.now,
        subresource: &change.subresource,
        restores: change.restores,
        features: change.api.features,
    }
}

fn refused(change: &Change<'_>, refusal: Refusal) -> ApiError {
    let (resource, name) = (&change.served.resource, &change.name);
    match refusal {
        Refusal::UnknownPriorityClass { .. }
        | Refusal::OtherPriority { .. }
        | Refusal::UnknownRuntimeClass { .. }
        | Refusal::OtherOverhead
        | Refusal::OverheadWithoutClass
        | Refusal::OtherNodes { .. }
        | Refusal::BeyondLimits(_)
        | Refusal::NotExpandable => ApiError::forbidden(resource, name, &refusal.to_string()),
        Refusal::NamespaceMissing { namespace } => match change.api.core_type("Namespace") {
            Some(served) => ApiError::not_found(&served.resource, &namespace),
            None => ApiError::internal(format!("namespace {namespace} cannot be looked up")),
        },
        Refusal::NamespaceTerminating { namespace } => ApiError::namespace_terminating(resource, name, &namespace),
        Refusal::Invalid(errors) => ApiError::invalid(resource, name, &errors),
    }
}

/// Warnings for the user about an otherwise valid object.
pub(crate) fn warnings(served: &Served, object: &Value) -> Vec<String> {
    served.kind.map_or_else(Vec::new, |kind| (kind.warnings)(object))
}

/// Applies the server's own rules to a new object, and completes it.
pub(crate) fn admit_create(change: &Change<'_>, object: &mut Value) -> Result<(), ApiError> {
    if change.served.resource.namespaced && !change.restores {
        namespace::check_accepts(&change.api.store, &change.namespace).map_err(|why| refused(change, why))?;
    }
    match change.served.kind {
        Some(kind) => (kind.admit)(&admission(change), object).map_err(|why| refused(change, why)),
        None => Ok(()),
    }
}

/// Applies the server's own rules to a change, and completes it.
pub(crate) fn admit_update(change: &Change<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    match change.served.kind {
        Some(kind) => (kind.admit_update)(&admission(change), old, new).map_err(|why| refused(change, why)),
        None => Ok(()),
    }
}

/// Fills in the kind's defaults for unset fields.
pub(crate) fn apply_defaults(served: &Served, object: &mut Value) {
    match (served.kind, &served.custom) {
        (Some(kind), _) => (kind.defaults)(object),
        (None, Some(custom)) => schema::apply_defaults(object, &custom.openapi),
        (None, None) => {}
    }
}

/// Validates a new object.
pub(crate) fn validate_create(served: &Served, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate(name_rule(served), object);
    errors.extend(validate_kind(served, object));
    if errors.is_empty() {
        errors.extend(validate_rules(served, object, None));
    }
    errors
}

/// Validates a change of an object.
pub(crate) fn validate_update(served: &Served, subresource: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = metadata::validate(name_rule(served), new);
    errors.extend(metadata::validate_update(old, new));
    if !subresource.is_empty() {
        if let Some(kind) = served.kind.filter(|_| subresource == "status") {
            errors.extend((kind.validate_status)(new));
        }
        return errors;
    }
    errors.extend(validate_kind(served, new));
    if let Some(kind) = served.kind {
        errors.extend((kind.validate_update)(old, new));
    }
    if errors.is_empty() {
        errors.extend(validate_rules(served, new, Some(old)));
    }
    errors
}

/// Custom resources that match their schema are checked by its rules.
fn validate_rules(served: &Served, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let Some(custom) = &served.custom else {
        return Vec::new();
    };
    schema::rules::validate(object, old, &custom.openapi)
}

fn name_rule(served: &Served) -> NameRule {
    served.kind.map_or(NameRule::Subdomain, |kind| kind.name_rule)
}

fn validate_kind(served: &Served, object: &Value) -> Vec<FieldError> {
    match (served.kind, &served.custom) {
        (Some(kind), _) => (kind.validate)(object),
        (None, Some(custom)) => schema::validate(object, &custom.openapi),
        (None, None) => Vec::new(),
    }
}
