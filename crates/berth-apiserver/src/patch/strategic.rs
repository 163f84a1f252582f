//! Strategic merge patch (`application/strategic-merge-patch+json`).
//!
//! Like merge patch, but lists merge by key or by value where the schema says so, and a patch can carry
//! directives: `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD`.

use serde_json::{Map, Value};

use crate::schema::{Cursor, Schema};

type Object = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Why a strategic merge patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicPatchError {
    /// The patch is not an object.
    #[error("error decoding patch: json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
    /// `$patch` in an object has a value that does not exist.
    #[error("unknown patch type: {0} in map: {1}")]
    UnknownDirective(String, String),
    /// An element of a list does not have the field by which elements are told apart.
    #[error("map: {element} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The element.
        element: String,
        /// The field.
        key: String,
    },
    /// A list of objects should merge, but nothing tells its elements apart.
    #[error("cannot merge lists without merge key for {0}")]
    ListWithoutMergeKey(String),
    /// A list mixes objects with other values.
    #[error("list element types are not identical")]
    MixedElements,
    /// A directive does not have a list as its value.
    #[error("invalid patch format of {0}")]
    BadDirective(String),
    /// The elements of a list stand in another order than `$setElementOrder` says.
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch {
        /// The elements in the patch.
        patch: String,
        /// The order.
        order: String,
    },
}

type Result<T> = std::result::Result<T, StrategicPatchError>;

/// Applies the patch to a copy of the object, with lists merged as the schema says.
pub fn apply(object: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Array(_) => return Err(StrategicPatchError::NotAnObject("array")),
        Value::String(_) => return Err(StrategicPatchError::NotAnObject("string")),
        Value::Bool(_) => return Err(StrategicPatchError::NotAnObject("bool")),
        Value::Number(_) => return Err(StrategicPatchError::NotAnObject("number")),
        Value::Null => return Ok(object.clone()),
    };
    let original = object.as_object().cloned().unwrap_or_default();
    merge_object(original, patch, schema.cursor()).map(Value::Object)
}

fn merge_object(mut original: Object, patch: &Object, schema: Cursor<'_>) -> Result<Object> {
    match patch.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => return Ok(without_directives(patch)),
        Some("delete") => return Ok(Object::new()),
        Some(other) => {
            let map = Value::Object(patch.clone()).to_string();
            return Err(StrategicPatchError::UnknownDirective(other.to_owned(), map));
        }
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        let keys = directive_list(RETAIN_KEYS, keys)?;
        if patch
            .keys()
            .any(|name| !name.starts_with('$') && !keys.iter().any(|key| key == name))
        {
            return Err(StrategicPatchError::BadDirective(RETAIN_KEYS.to_owned()));
        }
        original.retain(|name, _| keys.iter().any(|key| key == name));
    }
    for (name, values) in patch {
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            let values = directive_list(name, values)?;
            if let Some(Value::Array(list)) = original.get_mut(field) {
                list.retain(|item| !values.contains(item));
            }
        }
    }
    let before = |original: &Object, field: &str| original.get(field).and_then(Value::as_array).cloned();
    let orders: Vec<_> = patch
        .iter()
        .filter_map(|(name, order)| name.strip_prefix(SET_ORDER).map(|field| (name, field, order)))
        .map(|(name, field, order)| (name, field, order, before(&original, field).unwrap_or_default()))
        .collect();
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let merged = merge_value(original.remove(name), value, schema.field_or_any(name), name)?;
        if let Some(merged) = merged {
            original.insert(name.clone(), merged);
        }
    }
    for (name, field, order, before) in orders {
        let order = directive_list(name, order)?;
        let key = schema.field_or_any(field).patch_merge_key();
        check_order(patch.get(field), order, key)?;
        if let Some(Value::Array(list)) = original.get_mut(field) {
            *list = interleaved(std::mem::take(list), order, &before, key);
        }
    }
    Ok(original)
}

fn directive_list<'a>(name: &str, value: &'a Value) -> Result<&'a [Value]> {
    let list = value.as_array().map(Vec::as_slice);
    list.ok_or_else(|| StrategicPatchError::BadDirective(name.to_owned()))
}

/// The new value of a field, or `None` if the patch removes it.
fn merge_value(original: Option<Value>, patch: &Value, schema: Cursor<'_>, name: &str) -> Result<Option<Value>> {
    match (original, patch) {
        (_, Value::Null) => Ok(None),
        (Some(Value::Object(original)), Value::Object(patch)) => {
            merge_object(original, patch, schema).map(|merged| Some(Value::Object(merged)))
        }
        (Some(Value::Array(original)), Value::Array(patch)) if schema.patch_merges() => {
            merge_list(original, patch, schema, name).map(|merged| Some(Value::Array(merged)))
        }
        // A field that is new, or of another type, or replaced as a whole.
        (_, patch) => Ok(Some(without_directives_below(patch))),
    }
}

fn merge_list(original: Vec<Value>, patch: &[Value], schema: Cursor<'_>, name: &str) -> Result<Vec<Value>> {
    let objects = original.iter().chain(patch).filter(|item| item.is_object()).count();
    if objects == 0 {
        return Ok(merge_scalars(original, patch));
    }
    if objects != original.len() + patch.len() {
        return Err(StrategicPatchError::MixedElements);
    }
    let key = schema
        .patch_merge_key()
        .ok_or_else(|| StrategicPatchError::ListWithoutMergeKey(name.to_owned()))?;
    let mut merged = original.clone();
    let mut changes = Vec::new();
    let mut replace = false;
    for item in patch {
        match item[PATCH].as_str() {
            Some("replace") => replace = true,
            Some("delete") => {
                let wanted = merge_key(item, key)?;
                merged.retain(|other| &other[key] != wanted);
            }
            None | Some("merge") => changes.push(item),
            Some(other) => {
                return Err(StrategicPatchError::UnknownDirective(
                    other.to_owned(),
                    item.to_string(),
                ));
            }
        }
    }
    if replace {
        return Ok(changes.into_iter().map(without_directives_below).collect());
    }
    for item in &changes {
        let wanted = merge_key(item, key)?;
        let change = item.as_object().cloned().unwrap_or_default();
        match merged.iter_mut().find(|other| &other[key] == wanted) {
            Some(Value::Object(found)) => *found = merge_object(std::mem::take(found), &change, schema.items())?,
            _ => merged.push(without_directives_below(item)),
        }
    }
    let order: Vec<Value> = changes.into_iter().cloned().collect();
    Ok(interleaved(merged, &order, &original, Some(key)))
}

fn merge_scalars(original: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
    for item in original.iter().chain(patch) {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    interleaved(merged, patch, &original, None)
}

fn merge_key<'a>(item: &'a Value, key: &str) -> Result<&'a Value> {
    item.get(key).ok_or_else(|| StrategicPatchError::NoMergeKey {
        element: item.to_string(),
        key: key.to_owned(),
    })
}

fn position(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    match key {
        Some(key) => list.iter().position(|other| other[key] == item[key]),
        None => list.iter().position(|other| other == item),
    }
}

/// Merges two ordered runs, the elements that `order` names and the others, so that elements which both
/// stood in the list `before` keep their relation. Elements that are new come first.
fn interleaved(list: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| position(order, item, key).is_some());
    named.sort_by_key(|item| position(order, item, key));
    others.sort_by_key(|item| position(before, item, key));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    while let (Some(first_named), Some(first_other)) = (named.peek(), others.peek()) {
        let other_first = match (position(before, first_other, key), position(before, first_named, key)) {
            (Some(other), Some(named)) => other < named,
            _ => false,
        };
        result.extend(if other_first { others.next() } else { named.next() });
    }
    result.extend(named);
    result.extend(others);
    result
}

/// The elements of the patch must stand in the order that the directive names.
fn check_order(patch: Option<&Value>, order: &[Value], key: Option<&str>) -> Result<()> {
    let Some(Value::Array(items)) = patch else {
        return Ok(());
    };
    let items = items.iter().filter(|item| item.get(PATCH).is_none());
    let positions: Vec<_> = items.map(|item| position(order, item, key)).collect();
    if positions.iter().all(Option::is_some) && positions.is_sorted() {
        return Ok(());
    }
    Err(StrategicPatchError::OrderMismatch {
        patch: patch.map(Value::to_string).unwrap_or_default(),
        order: Value::Array(order.to_vec()).to_string(),
    })
}

/// What is left of a patch where there is nothing to merge it with: no directives, no nulls.
fn without_directives(patch: &Object) -> Object {
    let kept = patch.iter().filter(|(name, value)| {
        let directive = matches!(name.as_str(), PATCH | RETAIN_KEYS)
            || name.starts_with(DELETE_FROM)
            || name.starts_with(SET_ORDER);
        !directive && !value.is_null()
    });
    kept.map(|(name, value)| (name.clone(), without_directives_below(value)))
        .collect()
}

fn without_directives_below(value: &Value) -> Value {
    match value {
        Value::Object(fields) if fields.get(PATCH) == Some(&Value::from("delete")) => Value::Object(Object::new()),
        Value::Object(fields) => Value::Object(without_directives(fields)),
        Value::Array(items) => {
            let is_kept = |item: &&Value| !matches!(item[PATCH].as_str(), Some("delete" | "replace"));
            Value::Array(items.iter().filter(is_kept).map(without_directives_below).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pod() -> &'static Schema {
        Schema::builtin("", "v1", "Pod").expect("pods have a schema")
    }

    fn check(object: Value, patch: Value, expect: Value) {
        assert_eq!(apply(&object, &patch, pod()).expect("applies"), expect, "{patch}");
    }

    #[test]
    fn lists_merge_by_key() {
        check(
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}),
            json!({"spec": {"containers": [{"name": "b", "image": "2"}]}}),
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}),
        );
        // A new element stands before those that only the server knows.
        check(
            json!({"spec": {"containers": [{"name": "a"}]}}),
            json!({"spec": {"containers": [{"name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}),
        );
        check(
            json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}]}]}}),
        );
    }

    #[test]
    fn other_lists_are_replaced() {
        check(
            json!({"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}),
            json!({"spec": {"tolerations": [{"key": "c"}]}}),
            json!({"spec": {"tolerations": [{"key": "c"}]}}),
        );
    }

    #[test]
    fn scalars_merge_by_value() {
        check(
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["b", "c"]}}),
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        );
        check(
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            json!({"metadata": {"finalizers": ["b"]}}),
        );
        check(
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"],
                "$setElementOrder/finalizers": ["c", "d"], "finalizers": ["d"]}}),
            json!({"metadata": {"finalizers": ["b", "c", "d"]}}),
        );
    }

    #[test]
    fn nulls_remove_and_are_never_stored() {
        check(json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2}));
        check(
            json!({"metadata": {}}),
            json!({"metadata": {"labels": {"a": null, "b": "1"}}}),
            json!({"metadata": {"labels": {"b": "1"}}}),
        );
    }

    #[test]
    fn directives_replace_and_delete() {
        check(
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
            json!({"spec": {"containers": [{"name": "b"}]}}),
        );
        check(
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}),
            json!({"spec": {"containers": [{"name": "c"}]}}),
        );
        check(
            json!({"spec": {"securityContext": {"runAsUser": 1, "fsGroup": 2}}}),
            json!({"spec": {"securityContext": {"$patch": "replace", "runAsUser": 3}}}),
            json!({"spec": {"securityContext": {"runAsUser": 3}}}),
        );
        check(
            json!({"spec": {"securityContext": {"runAsUser": 1}}}),
            json!({"spec": {"securityContext": {"$patch": "delete"}}}),
            json!({"spec": {"securityContext": {}}}),
        );
    }

    #[test]
    fn volumes_change_their_source_by_retained_keys() {
        check(
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}]}}),
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        );
    }

    #[test]
    fn element_order_is_set() {
        check(
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "server"}]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}),
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}, {"name": "server"}]}}),
        );
        check(
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                "containers": [{"name": "c"}, {"$patch": "delete", "name": "b"}]}}),
            json!({"spec": {"containers": [{"name": "c"}, {"name": "a"}]}}),
        );
    }

    #[test]
    fn bad_patches_are_refused() {
        let check = |patch: Value, expect: &str| {
            let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "x": {}}});
            let error = apply(&object, &patch, pod()).expect_err("fails").to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(
            json!([1]),
            "cannot unmarshal array into Go value of type map[string]interface {}",
        );
        check(
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "does not contain declared merge key: name",
        );
        check(json!({"spec": {"x": {"$patch": "swap"}}}), "unknown patch type: swap");
        check(
            json!({"spec": {"containers": ["x"]}}),
            "list element types are not identical",
        );
        check(
            json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                "containers": [{"name": "b"}, {"name": "a"}]}}),
            "doesn't match $setElementOrder list",
        );
    }

    fn containers() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-d]", "[x-z]", 0..4).prop_map(|images| {
            let list = images
                .into_iter()
                .map(|(name, image)| json!({"name": name, "image": image}));
            json!({"spec": {"containers": list.collect::<Vec<_>>()}})
        })
    }

    proptest! {
        #[test]
        fn a_patch_applied_twice_changes_nothing_more(object in containers(), patch in containers()) {
            let once = apply(&object, &patch, pod()).unwrap();
            prop_assert_eq!(apply(&once, &patch, pod()).unwrap(), once);
        }

        #[test]
        fn no_patch_panics(object in any_json(), patch in any_json()) {
            let _ = apply(&object, &patch, pod());
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i8>().prop_map(Value::from),
            "a|delete|replace".prop_map(Value::from)
        ];
        let names = "spec|containers|name|metadata|finalizers|\\$patch|\\$retainKeys|\\$setElementOrder/containers|\\$deleteFromPrimitiveList/finalizers";
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(names, inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }
}
