//! Patches and server-side apply. An input is `{"object": ..., "patch": ...}`.

use crate::Shape;
use berth_apiserver::apply::{Operation, Writer, apply as apply_fields, managed_fields_after_update};
use berth_apiserver::patch;
use berth_apiserver::registry::{builtin, by_kind};
use berth_apiserver::schema::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// The object and the patch. The body of a request is parsed with the same limit on depth.
fn parse(input: &[u8]) -> Option<(Value, Value)> {
    let mut case: Value = serde_json::from_slice(input).ok()?;
    let case = case.as_object_mut()?;
    Some((case.remove("object")?, case.remove("patch")?))
}

const NO_CASE: &str = "no case";

pub(super) fn json(input: &[u8]) -> Shape {
    let Some((object, patch)) = parse(input) else {
        return Shape::of(NO_CASE);
    };
    let result = patch::json::apply(&object, &patch);
    if let Ok(patched) = &result {
        // Forty copies of a parent into its child: the limit is on what is copied, and so on what comes out.
        let bytes = patched.to_string().len();
        assert!(
            bytes < (8 << 20) + 2 * input.len(),
            "{bytes} bytes of a patch of {}",
            input.len()
        );
    }
    Shape::of_result(&result)
}

pub(super) fn merge(input: &[u8]) -> Shape {
    let Some((object, patch)) = parse(input) else {
        return Shape::of(NO_CASE);
    };
    let once = patch::merge::apply(&object, &patch);
    assert_eq!(
        once,
        patch::merge::apply(&once, &patch),
        "a merge patch changes nothing the second time"
    );
    if let (Value::Object(from), Value::Object(to)) = (&object, &once)
        && !has_null(&once)
    {
        let difference = Value::Object(patch::merge::diff(from, to));
        assert_eq!(
            patch::merge::apply(&object, &difference),
            once,
            "a difference leads from one to the other"
        );
    }
    Shape::of(kind_of(&once))
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        _ => "scalar",
    }
}

/// The schema of an object, or one that knows nothing.
fn schema_of(object: &Value) -> Schema {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
    by_kind(builtin(), group, version, text("kind")).map_or_else(Schema::untyped, Schema::of)
}

pub(super) fn strategic(input: &[u8]) -> Shape {
    let Some((object, patch)) = parse(input) else {
        return Shape::of(NO_CASE);
    };
    let schema = schema_of(&object);
    let result = patch::strategic::apply(&object, &patch, &schema);
    if let Ok(patched) = &result {
        let left_over = |fields: &Map<String, Value>| fields.keys().any(|name| name.starts_with("$setElementOrder/"));
        let was_there = object.as_object().is_some_and(left_over);
        let is_there = patched.as_object().is_some_and(left_over);
        assert!(was_there || !is_there, "a directive was stored: {patched}");
    }
    Shape::of_result(&result)
}

pub(super) fn apply(input: &[u8]) -> Shape {
    let Some((object, patch)) = parse(input) else {
        return Shape::of(NO_CASE);
    };
    let schema = schema_of(&object);
    let writer = |manager| Writer {
        manager,
        api_version: "v1",
        subresource: "",
        time: Timestamp::UNIX_EPOCH,
        reset: &["status"],
    };
    let live = object.is_object().then_some(&object);
    let result = apply_fields(live, &patch, writer("one"), true, &schema);
    // Without any owner, the next apply records who owned the fields before, as in Kubernetes.
    let is_owned = |object: &Value| object.pointer("/metadata/managedFields/0").is_some();
    if let Some(applied) = result.as_ref().ok().filter(|applied| is_owned(applied)) {
        let again = apply_fields(Some(applied), &patch, writer("one"), false, &schema);
        match again {
            Ok(again) => assert_eq!(&again, applied, "applied again, nothing changes"),
            Err(error) => assert!(
                !matches!(error, berth_apiserver::apply::ApplyError::Conflicts(_)),
                "a forced apply conflicts with itself: {error}"
            ),
        }
        let _ = managed_fields_after_update(live, applied, writer("two"), Operation::Update, &schema);
    }
    Shape::of_result(&result)
}
