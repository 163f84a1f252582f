//! JSON patch (RFC 6902, `application/json-patch+json`).
//!
//! The result of a patch can be far larger than the patch itself: forty copies of a parent into its own child double it
//! forty times. Each operation is therefore measured before it is applied.

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde_json::Value;

use crate::bounds::{DEPTH_MAX, Measure};
use crate::schema::json_type;

/// Maximum number of operations in one patch: the limit of kube-apiserver.
const OPERATIONS_MAX: usize = 10_000;
/// Maximum number of bytes that the operations of one patch may copy or move: the largest body, as in kube-apiserver.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Maximum number of list elements that may be shifted: 10,000 operations on a list of 5,000 elements, which take a
/// fraction of a second.
const SHIFTED_MAX: usize = 50_000_000;

/// Why a JSON patch cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum JsonPatchError {
    /// The patch is not a list.
    #[error("error decoding patch: json: cannot unmarshal {0} into Go value of type []handlers.jsonPatchOp")]
    Decode(&'static str),
    /// The list contains invalid operations.
    #[error("the server rejected our request due to an error in our request")]
    Unknown(#[source] serde_json::Error),
    /// The patch is too long.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {0}")]
    TooManyOperations(usize),
    /// The operations copy or move too much.
    #[error("operation {0} of the JSON patch: more than {COPIED_BYTES_MAX} bytes would be copied or moved")]
    TooMuchCopied(usize),
    /// An operation would nest the object too deeply.
    #[error("operation {0} of the JSON patch: the object would be nested more than {DEPTH_MAX} levels deep")]
    TooDeep(usize),
    /// The operations insert or remove at the start of a large list too often.
    #[error("operation {0} of the JSON patch: more than {SHIFTED_MAX} elements of lists would change places")]
    TooManyShifted(usize),
    /// An operation fails on this object, which is left unchanged.
    #[error("the server rejected our request due to an error in our request")]
    Operation(#[source] json_patch::PatchError),
}

/// Applies the patch to a copy of the object.
pub fn apply(object: &Value, patch: &Value) -> Result<Value, JsonPatchError> {
    let Value::Array(list) = patch else {
        return Err(JsonPatchError::Decode(json_type(patch)));
    };
    if list.len() > OPERATIONS_MAX {
        return Err(JsonPatchError::TooManyOperations(list.len()));
    }
    let operations: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(JsonPatchError::Unknown)?;
    let mut patched = object.clone();
    let mut effort = Effort::default();
    for (index, operation) in operations.iter().enumerate() {
        effort.count(index, &patched, operation)?;
        // The copy is discarded if an operation fails, so there is nothing to undo.
        json_patch::patch_unsafe(&mut patched, std::slice::from_ref(operation)).map_err(JsonPatchError::Operation)?;
    }
    Ok(patched)
}

/// The cost of the operations of a patch so far.
#[derive(Default)]
struct Effort {
    copied_bytes: usize,
    shifted: usize,
}

impl Effort {
    /// Counts an operation before it is applied.
    fn count(&mut self, index: usize, document: &Value, operation: &PatchOperation) -> Result<(), JsonPatchError> {
        let brought = match operation {
            PatchOperation::Add(add) => Measure::of(&add.value),
            PatchOperation::Replace(replace) => Measure::of(&replace.value),
            PatchOperation::Copy(copy) => self.copy(index, document, &copy.from)?,
            PatchOperation::Move(change) => {
                self.shift(index, document, &change.from)?;
                self.copy(index, document, &change.from)?
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => Measure::default(),
        };
        if operation.path().count() + brought.depth > DEPTH_MAX {
            return Err(JsonPatchError::TooDeep(index));
        }
        match operation {
            PatchOperation::Test(_) | PatchOperation::Replace(_) => Ok(()),
            _ => self.shift(index, document, operation.path()),
        }
    }

    fn copy(&mut self, index: usize, document: &Value, from: &Pointer) -> Result<Measure, JsonPatchError> {
        let source = document.pointer(from.as_str()).map(Measure::of).unwrap_or_default();
        self.copied_bytes += source.bytes;
        if self.copied_bytes > COPIED_BYTES_MAX {
            return Err(JsonPatchError::TooMuchCopied(index));
        }
        Ok(source)
    }

    /// Counts the shifted elements of the list that an element is added to or removed from.
    fn shift(&mut self, index: usize, document: &Value, path: &Pointer) -> Result<(), JsonPatchError> {
        let list = path
            .split_back()
            .and_then(|(parent, _)| document.pointer(parent.as_str()))
            .and_then(Value::as_array);
        self.shifted += list.map_or(0, Vec::len);
        if self.shifted > SHIFTED_MAX {
            return Err(JsonPatchError::TooManyShifted(index));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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

    /// Each of these would exhaust memory, stack or time.
    #[test]
    fn patches_that_would_grow_without_bound_are_refused() {
        let check = |object: Value, patch: Vec<Value>, expect: &str| {
            let error = apply(&object, &Value::Array(patch)).expect_err("fails").to_string();
            assert!(error.contains(expect), "{error}");
        };
        let object = json!({"data": {"a": "b"}});
        let doubling = |from: &str| -> Vec<Value> {
            let copy = |number| json!({"op": "copy", "from": from, "path": format!("/data/c{number}")});
            (0..40).map(copy).collect()
        };
        check(object.clone(), doubling(""), "bytes would be copied");
        check(object.clone(), doubling("/data"), "bytes would be copied");
        let deeper: Vec<_> = (0..200)
            .map(|n| json!({"op": "add", "path": format!("/data{}", "/a".repeat(n + 1)), "value": {}}))
            .collect();
        check(object, deeper, "levels deep");
        let long = json!({"l": vec![0; 10_000]});
        let shifting = json!({"op": "add", "path": "/l/0", "value": 0});
        check(long.clone(), vec![shifting; 10_000], "elements of lists");
        let turning = json!({"op": "move", "from": "/l", "path": "/l"});
        check(long, vec![turning; 10_000], "bytes would be copied or moved");
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i8>().prop_map(Value::from),
            "[a-z]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn operation() -> impl Strategy<Value = Value> {
        let kind = prop::sample::select(vec!["add", "add", "remove", "replace", "move", "copy", "copy", "test"]);
        let pointer = || {
            prop::collection::vec("[a-c]|[0-2]|-", 0..4)
                .prop_map(|parts| -> String { parts.iter().map(|part| format!("/{part}")).collect() })
        };
        (kind, pointer(), pointer(), value())
            .prop_map(|(op, from, path, value)| json!({"op": op, "from": from, "path": path, "value": value}))
    }

    proptest! {
        /// Operations that can be applied one by one can be applied together, or would grow too much.
        #[test]
        fn patches_do_what_their_operations_do_or_are_refused(object in value(), operations in prop::collection::vec(operation(), 0..60)) {
            let (mut patched, mut done) = (object.clone(), Vec::new());
            for operation in operations {
                if let Ok(next) = apply(&patched, &json!([operation])) {
                    patched = next;
                    done.push(operation);
                }
                if Measure::of(&patched).bytes > 1 << 20 {
                    break;
                }
            }
            prop_assert!(Measure::of(&patched).depth <= DEPTH_MAX);
            match apply(&object, &Value::Array(done)) {
                Ok(together) => prop_assert_eq!(together, patched),
                Err(error) => prop_assert!(matches!(error, JsonPatchError::TooMuchCopied(_)), "{}", error),
            }
        }
    }
}
