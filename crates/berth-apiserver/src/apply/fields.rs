//! Walks objects by their schema: field sets, differences, merging and removing.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::path::{FieldSet, PathElement};
use crate::schema::{Cursor, ListType, Shape};

/// One part of a value that is owned separately from its siblings.
pub(super) struct Child<'v, 's> {
    pub(super) element: PathElement,
    pub(super) value: &'v Value,
    pub(super) schema: Cursor<'s>,
}

/// The parts that are owned separately, or `None` if the value is owned as a whole. Null is the same as absent.
pub(super) fn children<'v, 's>(value: &'v Value, schema: Cursor<'s>) -> Option<Vec<Child<'v, 's>>> {
    match value {
        Value::Object(fields) if is_granular_object(schema) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let children = fields.map(|(name, value)| Child {
                element: PathElement::Field(name.clone()),
                value,
                schema: schema.field_or_any(name),
            });
            Some(children.collect())
        }
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let element = list_element(item, schema)?;
                Some(Child {
                    element,
                    value: item,
                    schema: schema.items(),
                })
            })
            .collect::<Option<Vec<_>>>()
            .filter(|_| is_granular_list(schema)),
        _ => None,
    }
}

fn is_granular_object(schema: Cursor<'_>) -> bool {
    let shape = matches!(
        schema.shape(),
        Shape::Struct(_) | Shape::Map(_) | Shape::Any | Shape::Reference(_)
    );
    shape && !schema.is_atomic()
}

fn is_granular_list(schema: Cursor<'_>) -> bool {
    matches!(schema.shape(), Shape::List(_)) && *schema.list_type() != ListType::Atomic
}

/// The identity of a list element, or `None` if it lacks its keys or the list is atomic.
fn list_element(item: &Value, schema: Cursor<'_>) -> Option<PathElement> {
    match schema.list_type() {
        ListType::Atomic => None,
        ListType::Set => Some(PathElement::Value(item.clone())),
        ListType::Map(keys) => {
            let items = schema.items();
            let key_value = |key: &String| {
                let value = item
                    .get(key)
                    .filter(|v| !v.is_null())
                    .or_else(|| items.default_of(key))?;
                Some((key.clone(), value.clone()))
            };
            let keys = keys.iter().map(key_value).collect::<Option<_>>()?;
            item.is_object().then_some(PathElement::Key(keys))
        }
    }
}

fn is_list_item(element: &PathElement) -> bool {
    !matches!(element, PathElement::Field(_))
}

/// Which containers are members of a set in addition to the values in them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Containers {
    /// List elements, and objects that are map values: what an applied configuration owns.
    Applied,
    /// All of them: what a write that created them owns.
    Added,
}

/// The paths of all fields of a value.
pub(super) fn field_set(value: &Value, schema: Cursor<'_>, containers: Containers) -> FieldSet {
    let mut set = FieldSet::default();
    let in_map = matches!(schema.shape(), Shape::Map(_));
    for child in children(value, schema).into_iter().flatten() {
        insert_child(&mut set, child, in_map, containers);
    }
    set
}

fn insert_child(set: &mut FieldSet, child: Child<'_, '_>, in_map: bool, containers: Containers) {
    let is_leaf = children(child.value, child.schema).is_none_or(|below| below.is_empty());
    let below = field_set(child.value, child.schema, containers);
    if is_leaf || in_map || is_list_item(&child.element) || containers == Containers::Added {
        set.insert(child.element.clone());
    }
    set.insert_below(child.element, below);
}

/// The fields that an applied configuration sets to null: it owns their absence.
pub(super) fn null_fields(value: &Value, schema: Cursor<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    if let (Value::Object(fields), true) = (value, is_granular_object(schema)) {
        for (name, _) in fields.iter().filter(|(_, value)| value.is_null()) {
            set.insert(PathElement::Field(name.clone()));
        }
    }
    for child in children(value, schema).into_iter().flatten() {
        let below = null_fields(child.value, child.schema);
        set.insert_below(child.element, below);
    }
    set
}

/// What differs between two versions of an object.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Fields that exist only in the new version, and fields with another value.
    pub(super) changed: FieldSet,
    /// Fields that exist only in the old version; a member includes everything below it.
    pub(super) removed: FieldSet,
}

/// Compares two versions of a value.
pub(super) fn compare(old: &Value, new: &Value, schema: Cursor<'_>) -> Comparison {
    let mut comparison = Comparison::default();
    let before = children(old, schema).unwrap_or_default();
    let after = children(new, schema).unwrap_or_default();
    let in_map = matches!(schema.shape(), Shape::Map(_));
    let elements_after: HashSet<_> = after.iter().map(|child| &child.element).collect();
    for child in before.iter().filter(|child| !elements_after.contains(&child.element)) {
        comparison.removed.insert(child.element.clone());
    }
    let before: HashMap<_, _> = before.iter().map(|child| (&child.element, child)).collect();
    for child in after {
        match before.get(&child.element) {
            None => insert_child(&mut comparison.changed, child, in_map, Containers::Added),
            Some(old) if old.value == child.value => {}
            Some(old) => compare_child(old.value, child, &mut comparison),
        }
    }
    comparison
}

fn compare_child(old: &Value, new: Child<'_, '_>, comparison: &mut Comparison) {
    if children(old, new.schema).is_none() || children(new.value, new.schema).is_none() {
        comparison.changed.insert(new.element);
        return;
    }
    let below = compare(old, new.value, new.schema);
    comparison.changed.insert_below(new.element.clone(), below.changed);
    comparison.removed.insert_below(new.element, below.removed);
}

/// The live value with the applied one merged into it.
pub(super) fn merge(live: &Value, applied: &Value, schema: Cursor<'_>) -> Value {
    match (children(live, schema), children(applied, schema)) {
        (Some(_), Some(_)) if live.is_object() && applied.is_object() => merge_objects(live, applied, schema),
        (Some(live), Some(applied)) => Value::Array(merge_lists(&live, &applied)),
        _ => without_nulls(applied),
    }
}

fn merge_objects(live: &Value, applied: &Value, schema: Cursor<'_>) -> Value {
    let mut merged = live.as_object().cloned().unwrap_or_default();
    for (name, value) in applied.as_object().into_iter().flatten() {
        if value.is_null() {
            merged.remove(name);
            continue;
        }
        let value = match merged.get(name) {
            Some(live) => merge(live, value, schema.field_or_any(name)),
            None => without_nulls(value),
        };
        merged.insert(name.clone(), value);
    }
    Value::Object(merged)
}

/// Applied elements keep the order in which they were applied; the others stay before those that they preceded.
fn merge_lists(live: &[Child<'_, '_>], applied: &[Child<'_, '_>]) -> Vec<Value> {
    let is_applied: HashSet<_> = applied.iter().map(|child| &child.element).collect();
    let mut places = HashMap::with_capacity(live.len());
    for (place, child) in live.iter().enumerate() {
        places.entry(&child.element).or_insert(place);
    }
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let mut next_live = 0;
    for child in applied {
        let before = places.get(&child.element).copied();
        if let Some(before) = before {
            let others = live.iter().take(before).skip(next_live);
            merged.extend(
                others
                    .filter(|other| !is_applied.contains(&other.element))
                    .map(|other| other.value.clone()),
            );
            next_live = next_live.max(before + 1);
        }
        merged.push(match before.and_then(|index| live.get(index)) {
            Some(old) => merge(old.value, child.value, child.schema),
            None => without_nulls(child.value),
        });
    }
    let rest = live
        .iter()
        .skip(next_live)
        .filter(|other| !is_applied.contains(&other.element));
    merged.extend(rest.map(|other| other.value.clone()));
    merged
}

pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                fields
                    .map(|(name, value)| (name.clone(), without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Removes fields that no manager owns any more. `kept` are the owned fields: an element is removed as a whole only if
/// nothing in it is owned.
pub(super) fn remove(value: &mut Value, removed: &FieldSet, kept: &FieldSet, schema: Cursor<'_>) {
    match value {
        Value::Object(fields) => remove_fields(fields, removed, kept, schema),
        Value::Array(items) => items.retain_mut(|item| match list_element(item, schema) {
            Some(element) if removed.touches(&element) => keep_child(item, &element, removed, kept, schema.items()),
            _ => true,
        }),
        _ => {}
    }
}

fn remove_fields(fields: &mut Map<String, Value>, removed: &FieldSet, kept: &FieldSet, schema: Cursor<'_>) {
    fields.retain(|name, value| {
        let element = PathElement::Field(name.clone());
        !removed.touches(&element) || keep_child(value, &element, removed, kept, schema.field_or_any(name))
    });
}

/// Removes fields below a child, and returns whether the child itself stays.
fn keep_child(
    child: &mut Value,
    element: &PathElement,
    removed: &FieldSet,
    kept: &FieldSet,
    schema: Cursor<'_>,
) -> bool {
    if removed.has(element) && !kept.touches(element) {
        return false;
    }
    let nothing = FieldSet::default();
    let removed_below = removed.below(element).unwrap_or(&nothing);
    let mut kept_below = kept.below(element).cloned().unwrap_or_default();
    if let PathElement::Key(keys) = element {
        // An element that stays must keep its keys.
        keys.keys()
            .for_each(|key| kept_below.insert(PathElement::Field(key.clone())));
    }
    let was_empty = is_empty(child);
    remove(child, removed_below, &kept_below, schema);
    was_empty || !is_empty(child) || kept.has(element)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Why an applied configuration is invalid: elements without their keys, or duplicates.
pub(super) fn list_errors(value: &Value, schema: Cursor<'_>, path: &str, errors: &mut Vec<String>) {
    match value {
        Value::Object(fields) if is_granular_object(schema) => {
            for (name, value) in fields {
                list_errors(value, schema.field_or_any(name), &format!("{path}.{name}"), errors);
            }
        }
        Value::Array(items) if is_granular_list(schema) => {
            let mut seen: HashSet<PathElement> = HashSet::new();
            for (index, item) in items.iter().enumerate() {
                let Some(element) = list_element(item, schema) else {
                    errors.push(omitted_key(item, schema, path, index));
                    continue;
                };
                list_errors(item, schema.items(), &format!("{path}{}", element.display()), errors);
                if seen.contains(&element) {
                    errors.push(format!("{path}: duplicate entries for key {}", element.display()));
                }
                seen.insert(element);
            }
        }
        _ => {}
    }
}

fn omitted_key(item: &Value, schema: Cursor<'_>, path: &str, index: usize) -> String {
    let ListType::Map(keys) = schema.list_type() else {
        return format!("{path}: element {index}: invalid");
    };
    if !item.is_object() {
        return format!("{path}: element {index}: associative list with keys may not have non-map elements");
    }
    let items = schema.items();
    let omitted = keys
        .iter()
        .find(|key| item.get(key.as_str()).is_none() && items.default_of(key).is_none());
    format!(
        "{path}: element {index}: associative list with keys has an element that omits key field \"{}\" \
         (and doesn't have default value)",
        omitted.map_or("", String::as_str)
    )
}
