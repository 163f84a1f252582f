//! Reads and writes parts of an object without panicking on an unexpected shape.

use serde_json::{Map, Value};

/// The text at a path of map keys; empty if missing.
#[must_use]
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The value at a path of map keys; null if missing.
#[must_use]
pub fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, key| &value[*key])
}

/// The elements at a path; empty if there is no list.
#[must_use]
pub fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The elements at a path, mutable.
pub fn items_mut<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut [Value] {
    path.iter()
        .try_fold(object, |value, key| value.get_mut(*key))
        .and_then(Value::as_array_mut)
        .map(Vec::as_mut_slice)
        .unwrap_or_default()
}

/// The map at a path, created if missing. `None` if a value of another type is in the way.
pub fn map_mut<'a>(object: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut value = object;
    for key in path {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        value = value.as_object_mut()?.entry(*key).or_insert(Value::Null);
    }
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Sets the value at a path; null removes it.
pub fn set(object: &mut Value, path: &[&str], new: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    if new.is_null() && at(object, parents).is_null() {
        return;
    }
    if let Some(map) = map_mut(object, parents) {
        if new.is_null() {
            map.remove(*last);
        } else {
            map.insert((*last).to_owned(), new);
        }
    }
}

/// Sets the value at a path unless it is already set.
pub fn default(object: &mut Value, path: &[&str], new: impl Into<Value>) {
    if at(object, path).is_null() {
        set(object, path, new.into());
    }
}

/// Copies the value at a path from one object to another unless it is already set.
pub(crate) fn copy_if_absent(from: &Value, to: &mut Value, path: &[&str]) {
    if at(to, path).is_null() {
        copy(from, to, path);
    }
}

/// Copies the value at a path from one object to another, or removes it if missing.
pub fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    set(to, path, at(from, path).clone());
}

/// The object's name; empty if it has none.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// The object's namespace; empty if it has none.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

/// The object's uid; empty if it has none.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// The value of an annotation; empty if there is none.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &["metadata", "annotations", key])
}

/// Whether the object is being deleted.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

/// The finalizers of the object.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    items(object, &["metadata", "finalizers"])
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

/// Adds a finalizer unless it is already set.
pub fn add_finalizer(object: &mut Value, finalizer: &str) {
    if finalizers(object).contains(&finalizer) {
        return;
    }
    let mut all: Vec<Value> = items(object, &["metadata", "finalizers"]).to_vec();
    all.push(finalizer.into());
    set(object, &["metadata", "finalizers"], Value::Array(all));
}

/// Removes a finalizer; returns whether it was set.
pub fn remove_finalizer(object: &mut Value, finalizer: &str) -> bool {
    let before = finalizers(object).len();
    let rest: Vec<Value> = finalizers(object)
        .into_iter()
        .filter(|found| *found != finalizer)
        .map(Value::from)
        .collect();
    let removed = rest.len() < before;
    let rest = if rest.is_empty() {
        Value::Null
    } else {
        Value::Array(rest)
    };
    set(object, &["metadata", "finalizers"], rest);
    removed
}

/// The key of an object in the store.
#[must_use]
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shapes_that_do_not_fit_are_left_alone() {
        let mut object = json!({"spec": "text", "metadata": {"finalizers": ["a"]}});
        set(&mut object, &["spec", "nodeName"], "n1".into());
        default(&mut object, &["status", "phase"], "Pending");
        set(&mut object, &["nothing", "here"], Value::Null);
        assert!(remove_finalizer(&mut object, "a"));
        add_finalizer(&mut object, "b");
        let expected = json!({"spec": "text", "metadata": {"finalizers": ["b"]}, "status": {"phase": "Pending"}});
        assert_eq!(object, expected);
    }
}
