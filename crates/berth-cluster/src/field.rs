//! Reads and writes fields of objects that are plain JSON values. A missing field or one of another type reads as "not
//! set": objects may come from any file.

use berth_core::api;
use berth_core::effect::Merge;
use berth_core::quantity::Quantity;
pub use berth_core::time::seconds;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A part of an object by a path of keys and indexes, each preceded by a slash, for example `/spec/containers/0`.
/// Unlike a full JSON pointer it cannot contain keys with slashes, and so does not allocate: controllers read millions
/// of fields.
pub fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = object;
    let mut rest = path.strip_prefix('/')?;
    loop {
        // Keys are short: scanning bytes is faster than searching for the next slash.
        let end = rest.bytes().position(|byte| byte == b'/').unwrap_or(rest.len());
        let (key, below) = rest.split_at_checked(end)?;
        found = match found {
            Value::Object(fields) => fields.get(key)?,
            Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        match below.strip_prefix('/') {
            Some(more) => rest = more,
            None => return Some(found),
        }
    }
}

/// A text by its path, empty if missing.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// A whole number by its path.
pub fn number(object: &Value, path: &str) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// A count by its path. Kubernetes stores counts in 32 bits and refuses negative ones.
pub fn count(object: &Value, path: &str) -> Option<i64> {
    number(object, path).map(|found| found.clamp(0, i64::from(i32::MAX)))
}

/// A boolean by its path, false if missing.
pub fn flag(object: &Value, path: &str) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of a list by its path.
pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A time by its path.
pub fn time(object: &Value, path: &str) -> Option<Timestamp> {
    text(object, path).parse().ok()
}

/// Any part of an object as a type that decisions use; an unreadable part counts as missing.
pub fn typed<T: DeserializeOwned>(object: &Value, path: &str) -> Option<T> {
    at(object, path).and_then(|found| T::deserialize(found).ok())
}

/// The kind of an object.
pub fn kind(object: &Value) -> &str {
    text(object, "/kind")
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The namespace of an object, empty for cluster-scoped objects.
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// The uid of an object.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The value of a label, empty if missing.
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// The class of a volume or claim; empty if not set. The legacy annotation wins over the field.
#[must_use]
pub fn class_name(object: &Value) -> &str {
    let older = annotation(object, berth_core::names::STORAGE_CLASS_BETA);
    older.unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// The value of an annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// The labels of an object; values that are not strings are ignored.
pub fn labels(object: &Value) -> api::StringMap {
    let pairs = object["metadata"]["labels"].as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// The number of bytes of a quantity at a path.
pub fn bytes(object: &Value, path: &str) -> Option<i64> {
    let quantity = match at(object, path)? {
        Value::String(text) => text.parse::<Quantity>(),
        Value::Number(number) => number.to_string().parse::<Quantity>(),
        _ => return None,
    };
    quantity.ok().map(Quantity::value)
}

/// Whether the object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The controller reference of an object.
pub fn controller_of(object: &Value) -> Option<&Value> {
    let references = items(object, "/metadata/ownerReferences");
    references.iter().find(|reference| reference["controller"] == true)
}

/// Whether an object is controlled by another one.
pub fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    controller_of(object).is_some_and(|reference| reference["uid"] == owner["metadata"]["uid"])
}

/// A controller reference to an object.
pub fn controller_reference(owner: &Value) -> Value {
    let mut reference = owner_reference(owner);
    set(&mut reference, &["controller"], json!(true));
    set(&mut reference, &["blockOwnerDeletion"], json!(true));
    reference
}

/// An owner reference to an object.
pub fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    })
}

/// Sets a field, creating the objects on its path. Other values on the path are replaced.
pub fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut at = object;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        match at {
            Value::Object(fields) => at = fields.entry(*key).or_insert(Value::Null),
            _ => return,
        }
    }
    *at = value;
}

/// Removes a field.
pub fn unset(object: &mut Value, path: &[&str]) {
    if let [parents @ .., last] = path {
        let mut at = object;
        for key in parents {
            match at.get_mut(*key) {
                Some(below) => at = below,
                None => return,
            }
        }
        if let Value::Object(fields) = at {
            fields.remove(*last);
        }
    }
}

/// Applies a JSON merge patch (RFC 7386). Returns whether it changed anything: `json_patch::merge` does not, and a write
/// that changes nothing must not count.
pub fn merge(object: &mut Value, patch: &Value) -> bool {
    merge_as(object, patch, Merge::Json)
}

fn merge_as(object: &mut Value, patch: &Value, merge: Merge) -> bool {
    let Value::Object(changes) = patch else {
        let changed = object != patch;
        if changed {
            object.clone_from(patch);
        }
        return changed;
    };
    let mut changed = false;
    if !object.is_object() {
        *object = Value::Object(Map::new());
        changed = true;
    }
    for (key, change) in changes {
        changed |= merge_field(object, key, change, merge);
    }
    changed
}

/// Merges a patch into one field of an object. Returns whether it changed anything.
pub fn merge_field(object: &mut Value, key: &str, patch: &Value, merge: Merge) -> bool {
    let Value::Object(fields) = object else {
        return false;
    };
    if patch.is_null() {
        return fields.remove(key).is_some();
    }
    if !fields.contains_key(key) {
        fields.insert(key.to_owned(), Value::Null);
    }
    let Some(known) = fields.get_mut(key) else {
        return false;
    };
    if known.is_null() && patch.is_array() && merge == Merge::Strategic && merge_key(key).is_some() {
        *known = Value::Array(Vec::new());
    }
    match (merge, merge_key(key), &mut *known, patch) {
        (Merge::Strategic, Some(by), Value::Array(known), Value::Array(changes)) => merge_items(known, changes, by),
        _ => merge_as(known, patch, merge),
    }
}

/// The merge key of a list in strategic merges. Other lists are replaced.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" => Some("type"),
        "storage" => Some("storageClassName"),
        "pools" => Some("name"),
        _ => None,
    }
}

fn merge_items(known: &mut Vec<Value>, changes: &[Value], by: &str) -> bool {
    let mut changed = false;
    for change in changes {
        let at = known.iter().position(|known| known[by] == change[by]);
        let goes = change["$patch"] == "delete";
        changed |= match at {
            Some(at) if goes => {
                known.remove(at);
                true
            }
            Some(at) => merge_as(&mut known[at], change, Merge::Strategic),
            None if goes => false,
            None => {
                // As a patch of nothing: removed fields are not present.
                let mut item = Value::Null;
                merge_as(&mut item, change, Merge::Strategic);
                known.push(item);
                true
            }
        };
    }
    changed
}

/// The JSON merge patch that turns one value into another; `None` if they are equal.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut changes = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(known) => difference(known, value),
            None => Some(value.clone()),
        };
        changes.extend(change.map(|change| (key.clone(), change)));
    }
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    changes.extend(gone.map(|key| (key.clone(), Value::Null)));
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// A time some seconds later; the maximum time on overflow.
pub fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}
