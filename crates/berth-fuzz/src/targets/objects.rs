//! Parts of objects: definitions of custom resources, selectors, quantities, and objects as decisions read them.

use crate::Shape;
use berth_apiserver::schema::{Schema, prune_unknown_fields, type_errors, unknown_fields};
use berth_core::api::Object;
use berth_core::quantity::{Quantity, canonical};
use berth_kinds::selector::{FieldSelector, LabelSelector, text_of};
use berth_kinds::{by_name, schema};
use serde_json::{Value, json};

/// A definition of a custom resource, and an object of it: `{"definition": ..., "object": ..., "old": ...}`.
pub(super) fn definition(input: &[u8]) -> Shape {
    let Ok(Value::Object(mut case)) = serde_json::from_slice(input) else {
        return Shape::of("no case");
    };
    let mut part = |name: &str| case.remove(name).unwrap_or_default();
    let (mut definition, mut object, old) = (part("definition"), part("object"), part("old"));
    let Some(kind) = by_name("apiextensions.k8s.io/v1", "CustomResourceDefinition") else {
        return Shape::of("no kind");
    };
    (kind.defaults)(&mut definition);
    let errors = (kind.validate)(&definition);
    if let Some(error) = errors.first() {
        return Shape::of(&error.to_string());
    }
    // Only accepted definitions are used.
    let version = &definition["spec"]["versions"][0];
    let openapi = &version["schema"]["openAPIV3Schema"];
    let Ok(typed) = Schema::from_crd_version(version) else {
        return Shape::of("no schema");
    };
    let _ = (unknown_fields(&object, &typed), type_errors(&object, &typed));
    prune_unknown_fields(&mut object, &typed);
    let pruned = object.clone();
    prune_unknown_fields(&mut object, &typed);
    assert_eq!(object, pruned, "pruned twice");
    schema::apply_defaults(&mut object, openapi);
    let completed = object.clone();
    schema::apply_defaults(&mut object, openapi);
    assert_eq!(object, completed, "completed twice");
    let mut errors = schema::validate(&object, openapi);
    if errors.is_empty() {
        errors = schema::rules::validate(&object, old.is_object().then_some(&old), openapi);
    }
    Shape::of(&errors.first().map_or("ok".to_owned(), ToString::to_string))
}

/// A selector as text, of labels or of fields, or as JSON.
pub(super) fn selector(input: &[u8]) -> Shape {
    let labelled = json!({"metadata": {"name": "a", "labels": {"app": "web", "tier": "a.b", "n": "7"}}});
    if let Ok(selector) = serde_json::from_slice::<Value>(input) {
        let parsed = LabelSelector::from_object(&selector);
        if let Ok(parsed) = &parsed {
            let _ = (parsed.matches(&labelled), text_of(&selector));
        }
        return Shape::of_result(&parsed);
    }
    let Ok(text) = std::str::from_utf8(input) else {
        return Shape::of("no text");
    };
    let labels = LabelSelector::parse(text);
    if let Ok(labels) = &labels {
        assert!(
            !labels.is_empty() || labels.matches(&labelled),
            "an empty selector selects everything"
        );
    }
    let fields = FieldSelector::parse(text);
    if let Ok(fields) = &fields {
        let _ = fields.matches(&labelled, &[]);
    }
    Shape::of_result(&labels).and(&Shape::of_result(&fields))
}

/// A quantity as text.
pub(super) fn quantity(input: &[u8]) -> Shape {
    let Ok(text) = std::str::from_utf8(input) else {
        return Shape::of("no text");
    };
    let parsed = text.parse::<Quantity>();
    let canonical_text = canonical(text);
    if let (Ok(parsed), Some(canonical_text)) = (&parsed, &canonical_text) {
        let again: Result<Quantity, _> = canonical_text.parse();
        assert!(
            again.as_ref() == Ok(parsed),
            "{text:?} is {parsed:?}, its canonical form {canonical_text:?} is {again:?}"
        );
        // A binary form without a suffix is read as a decimal one, which may get a suffix. After that it is stable.
        let read = canonical(canonical_text).unwrap_or_default();
        assert_eq!(canonical(&read), Some(read), "the canonical form of {text:?}");
        let (units, milli) = (parsed.value(), parsed.milli_value());
        assert!(
            units == i64::MAX || milli == i64::MAX || (units >= 0) == (milli >= 0) || units == 0,
            "{text}: {units} and {milli}"
        );
    }
    Shape::of_result(&parsed)
}

/// An object as decisions read it, also after an API server has completed it.
pub(super) fn object(input: &[u8]) -> Shape {
    let Ok(mut object) = serde_json::from_slice::<Value>(input) else {
        return Shape::of("no JSON");
    };
    let decoded = Object::decode(&object);
    if let Some(kind) = berth_kinds::kind_of(&object) {
        (kind.defaults)(&mut object);
        let completed = object.clone();
        (kind.defaults)(&mut object);
        assert_eq!(object, completed, "completed twice");
        let _ = (kind.validate)(&object);
        let _ = Object::decode(&object);
    }
    Shape::of_result(&decoded)
}
