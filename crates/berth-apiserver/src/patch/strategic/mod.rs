//! Strategic merge patch (`application/strategic-merge-patch+json`).
//!
//! Like merge patch, but lists merge by key or by value if the schema says so, and a patch can contain directives:
//! `$patch: replace|delete`, `$retainKeys`, `$deleteFromPrimitiveList/FIELD` and `$setElementOrder/FIELD`.

use std::collections::{HashMap, HashSet};

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
    /// `$patch` in an object has an unknown value.
    #[error("unknown patch type: {0} in map: {1}")]
    UnknownDirective(String, String),
    /// `$patch` in a list element is `merge`.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeInList,
    /// A list element lacks the merge key.
    #[error("map: {element} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The element.
        element: String,
        /// The field.
        key: String,
    },
    /// A list of objects should merge, but has no merge key.
    #[error("cannot merge lists without merge key for {0}")]
    ListWithoutMergeKey(String),
    /// A list mixes objects with other values.
    #[error("list element types are not identical: {0}")]
    MixedElements(String),
    /// `$retainKeys` is not a list, or omits a key that the patch sets.
    #[error("invalid patch format of retainKeys")]
    BadRetainKeys,
    /// `$deleteFromPrimitiveList` is not a list.
    #[error("invalid patch format of primitive list")]
    BadPrimitiveList,
    /// `$setElementOrder` is not a list.
    #[error("invalid patch format of setElementOrder list")]
    BadElementOrder,
    /// The elements of a list are not in the order of `$setElementOrder`.
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch {
        /// The elements in the patch.
        patch: String,
        /// The order.
        order: String,
    },
}

type Result<T> = std::result::Result<T, StrategicPatchError>;

/// Applies the patch to a copy of the object, with lists merged according to the schema.
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

fn is_directive(name: &str) -> bool {
    matches!(name, PATCH | RETAIN_KEYS) || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER)
}

fn merge_object(mut original: Object, patch: &Object, schema: Cursor<'_>) -> Result<Object> {
    match patch.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
        None => {}
        Some("replace") => return Ok(without_directives(patch)),
        Some("delete") => return Ok(Object::new()),
        Some(other) => {
            let map = go_text(&Value::Object(patch.clone()));
            return Err(StrategicPatchError::UnknownDirective(other.to_owned(), map));
        }
    }
    retain_keys(&mut original, patch)?;
    delete_from_lists(&mut original, patch)?;
    let orders = element_orders(&original, patch)?;
    for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        let merged = merge_value(original.remove(name), value, schema.field_or_any(name), name)?;
        if let Some(merged) = merged {
            original.insert(name.clone(), merged);
        }
    }
    for ElementOrder { field, order, before } in orders {
        let key = schema.field_or_any(field).patch_merge_key();
        check_order(patch.get(field), order, key)?;
        if let Some(Value::Array(list)) = original.get_mut(field) {
            let before = after_deletions(before, list, patch.get(field), key);
            *list = interleaved(std::mem::take(list), order, &before, key);
        }
    }
    Ok(original)
}

/// `$retainKeys`: the other keys are removed.
fn retain_keys(original: &mut Object, patch: &Object) -> Result<()> {
    let Some(keys) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let keys = keys.as_array().ok_or(StrategicPatchError::BadRetainKeys)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_named = |name: &String| keys.contains(name.as_str());
    // A key that is removed anyway need not be listed.
    let mut set = patch
        .iter()
        .filter(|(name, value)| !is_directive(name) && !value.is_null());
    if set.any(|(name, _)| !is_named(name)) {
        return Err(StrategicPatchError::BadRetainKeys);
    }
    original.retain(|name, _| is_named(name));
    Ok(())
}

/// `$deleteFromPrimitiveList/FIELD`: these elements are removed.
fn delete_from_lists(original: &mut Object, patch: &Object) -> Result<()> {
    for (name, values) in patch {
        let Some(field) = name.strip_prefix(DELETE_FROM) else {
            continue;
        };
        let values = values.as_array().ok_or(StrategicPatchError::BadPrimitiveList)?;
        let values: HashSet<&Value> = values.iter().collect();
        if let Some(Value::Array(list)) = original.get_mut(field) {
            list.retain(|item| !values.contains(item));
        }
    }
    Ok(())
}

/// `$setElementOrder/FIELD`, with the list before the patch.
struct ElementOrder<'a> {
    field: &'a str,
    order: &'a [Value],
    before: Vec<Value>,
}

fn element_orders<'a>(original: &Object, patch: &'a Object) -> Result<Vec<ElementOrder<'a>>> {
    let mut orders = Vec::new();
    for (name, order) in patch {
        let Some(field) = name.strip_prefix(SET_ORDER) else {
            continue;
        };
        let order = order.as_array().ok_or(StrategicPatchError::BadElementOrder)?;
        let before = original
            .get(field)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        orders.push(ElementOrder { field, order, before });
    }
    Ok(orders)
}

/// The assumed order of a list after elements of it were deleted: elements added by the same patch take the places
/// freed at its end. Kubernetes does so, and users see it whenever they replace one container with another.
fn after_deletions(before: Vec<Value>, merged: &[Value], patch: Option<&Value>, key: Option<&str>) -> Vec<Value> {
    let (Some(key), Some(Value::Array(patch))) = (key, patch) else {
        return before;
    };
    let places = before.len();
    let (was, is) = (Places::of(&before, Some(key)), Places::of(merged, Some(key)));
    let added = patch
        .iter()
        .filter(|item| item.get(PATCH).is_none() && was.of_item(item).is_none());
    let left = before.iter().filter(|item| is.of_item(item).is_some());
    left.chain(added).take(places).cloned().collect()
}

/// A value as Go prints it, for messages.
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_text(value)))
                .collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
    }
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
        // A new field, one of another type, or one that is replaced as a whole.
        (_, patch) => Ok(unmerged(patch)),
    }
}

fn merge_list(original: Vec<Value>, patch: &[Value], schema: Cursor<'_>, name: &str) -> Result<Vec<Value>> {
    let objects = original.iter().chain(patch).filter(|item| item.is_object()).count();
    if objects == 0 {
        return Ok(merge_scalars(original, patch));
    }
    if objects != original.len() + patch.len() {
        let lists = Value::Array(vec![Value::Array(original), Value::Array(patch.to_vec())]);
        return Err(StrategicPatchError::MixedElements(go_text(&lists)));
    }
    let key = schema
        .patch_merge_key()
        .ok_or_else(|| StrategicPatchError::ListWithoutMergeKey(name.to_owned()))?;
    let mut deleted = HashSet::new();
    let mut changes = Vec::new();
    let mut replace = false;
    for item in patch {
        match item[PATCH].as_str() {
            Some("replace") => replace = true,
            Some("delete") => {
                deleted.insert(merge_key(item, key)?);
            }
            None => changes.push(item),
            Some("merge") => return Err(StrategicPatchError::MergeInList),
            Some(other) => {
                return Err(StrategicPatchError::UnknownDirective(other.to_owned(), go_text(item)));
            }
        }
    }
    if replace {
        return Ok(changes.into_iter().filter_map(unmerged).collect());
    }
    let mut merged: Vec<Value> = original
        .iter()
        .filter(|item| !deleted.contains(&item[key]))
        .cloned()
        .collect();
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(merged.len());
    for (place, item) in merged.iter().enumerate() {
        places.entry(item[key].clone()).or_insert(place);
    }
    for item in &changes {
        let wanted = merge_key(item, key)?;
        let change = item.as_object().cloned().unwrap_or_default();
        match places.get(wanted).and_then(|place| merged.get_mut(*place)) {
            Some(Value::Object(found)) => {
                *found = merge_object(std::mem::take(found), &change, schema.items())?;
            }
            _ => {
                if let Some(new) = unmerged(item) {
                    places.insert(wanted.clone(), merged.len());
                    merged.push(new);
                }
            }
        }
    }
    let order: Vec<Value> = changes.into_iter().cloned().collect();
    Ok(interleaved(merged, &order, &original, Some(key)))
}

fn merge_scalars(original: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(original.len() + patch.len());
    let all = original.iter().chain(patch);
    let merged = all.filter(|item| seen.insert(*item)).cloned().collect();
    interleaved(merged, patch, &original, None)
}

fn merge_key<'a>(item: &'a Value, key: &str) -> Result<&'a Value> {
    item.get(key).ok_or_else(|| StrategicPatchError::NoMergeKey {
        element: go_text(item),
        key: key.to_owned(),
    })
}

/// The positions of list elements. Of duplicates, the first one counts.
struct Places<'a> {
    key: Option<&'a str>,
    places: HashMap<&'a Value, usize>,
}

impl<'a> Places<'a> {
    fn of(list: &'a [Value], key: Option<&'a str>) -> Self {
        let mut places = HashMap::with_capacity(list.len());
        for (place, item) in list.iter().enumerate() {
            places.entry(identity(item, key)).or_insert(place);
        }
        Self { key, places }
    }

    fn of_item(&self, item: &Value) -> Option<usize> {
        self.places.get(identity(item, self.key)).copied()
    }
}

/// The identity of a list element: its merge key, or its value.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> &'a Value {
    key.map_or(item, |key| &item[key])
}

/// Merges two ordered runs, the elements listed in `order` and the others, so that elements which were both in the list
/// `before` keep their relative order. New elements come first.
fn interleaved(list: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let (order, before) = (Places::of(order, key), Places::of(before, key));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        list.into_iter().partition(|item| order.of_item(item).is_some());
    named.sort_by_key(|item| order.of_item(item));
    others.sort_by_key(|item| before.of_item(item));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    while let (Some(first_named), Some(first_other)) = (named.peek(), others.peek()) {
        let other_first = match (before.of_item(first_other), before.of_item(first_named)) {
            (Some(other), Some(named)) => other < named,
            _ => false,
        };
        result.extend(if other_first { others.next() } else { named.next() });
    }
    result.extend(named);
    result.extend(others);
    result
}

/// The elements of the patch must be in the order of the directive.
fn check_order(patch: Option<&Value>, order: &[Value], key: Option<&str>) -> Result<()> {
    let Some(Value::Array(items)) = patch else {
        return Ok(());
    };
    let items = items.iter().filter(|item| item[PATCH] != "delete");
    let places = Places::of(order, key);
    let positions: Vec<_> = items.map(|item| places.of_item(item)).collect();
    if positions.iter().all(Option::is_some) && positions.is_sorted() {
        return Ok(());
    }
    Err(StrategicPatchError::OrderMismatch {
        patch: patch.map(go_text).unwrap_or_default(),
        order: go_text(&Value::Array(order.to_vec())),
    })
}

/// An object of a patch that has nothing to merge with: without directives and nulls.
fn without_directives(patch: &Object) -> Object {
    let kept = patch
        .iter()
        .filter(|(name, value)| !is_directive(name) && !value.is_null());
    kept.filter_map(|(name, value)| Some((name.clone(), unmerged(value)?)))
        .collect()
}

/// A value of a patch that has nothing to merge with. An object with a patch directive has no meaning there, and is
/// omitted.
fn unmerged(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => Some(Value::Object(without_directives(fields))),
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(unmerged).collect())),
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests;
