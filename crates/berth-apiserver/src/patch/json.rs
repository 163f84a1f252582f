//! JSON patch (RFC 6902, `application/json-patch+json`).

use serde_json::Value;

use crate::schema::json_type;

/// The most operations that one patch may hold: what kube-apiserver allows.
const OPERATIONS_MAX: usize = 10_000;

/// Why a JSON patch cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum JsonPatchError {
    /// The patch is not a list.
    #[error("error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp", json_type(.0))]
    Decode(Value),
    /// The list does not hold operations.
    #[error("the server rejected our request due to an error in our request")]
    Unknown(#[source] serde_json::Error),
    /// The patch is too long.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// An operation fails on this object; the object is as it was.
    #[error("the server rejected our request due to an error in our request")]
    Operation(#[source] json_patch::PatchError),
}

/// Applies the patch to a copy of the object.
pub fn apply(object: &Value, patch: &Value) -> Result<Value, JsonPatchError> {
    if !patch.is_array() {
        return Err(JsonPatchError::Decode(patch.clone()));
    }
    let operations: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(JsonPatchError::Unknown)?;
    if operations.len() > OPERATIONS_MAX {
        return Err(JsonPatchError::TooManyOperations(operations.len()));
    }
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &operations).map_err(JsonPatchError::Operation)?;
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_apply_in_order() {
        let check = |object: Value, patch: Value, expect: Value| {
            assert_eq!(apply(&object, &patch).expect("applies"), expect);
        };
        check(
            json!({"a": {"b": 1}}),
            json!([{"op": "add", "path": "/a/c", "value": 2}, {"op": "remove", "path": "/a/b"}]),
            json!({"a": {"c": 2}}),
        );
        check(
            json!({"l": [1, 3]}),
            json!([{"op": "add", "path": "/l/1", "value": 2}, {"op": "add", "path": "/l/-", "value": 4}]),
            json!({"l": [1, 2, 3, 4]}),
        );
        check(
            json!({"metadata": {"labels": {"a/b": "1"}}}),
            json!([{"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
                   {"op": "move", "from": "/metadata/labels/a~1b", "path": "/metadata/labels/c"}]),
            json!({"metadata": {"labels": {"c": "1"}}}),
        );
    }

    #[test]
    fn failing_patches_are_refused() {
        let check = |patch: Value, expect: &str| {
            let error = apply(&json!({"a": 1}), &patch).expect_err("fails").to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(json!({"a": 1}), "error decoding patch");
        check(
            json!([{"op": "remove", "path": "/b"}]),
            "the server rejected our request",
        );
        check(
            json!([{"op": "test", "path": "/a", "value": 2}]),
            "the server rejected our request",
        );
        let long = vec![json!({"op": "test", "path": "/a", "value": 1}); OPERATIONS_MAX + 1];
        check(Value::Array(long), "got 10001");
    }
}
